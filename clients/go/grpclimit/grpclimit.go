// Package grpclimit limits the calls of a gRPC server by tollgate.
//
//	limiter, err := grpclimit.New(client, []grpclimit.Descriptor{
//		{grpclimit.RemoteAddress("remote_address")},
//	})
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(limiter.Unary()),
//		grpc.StreamInterceptor(limiter.Stream()),
//	)
package grpclimit

import (
	"context"
	"errors"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/answer"
	"github.com/tollgate-limits/tollgate-go/internal/request"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Checker checks limits. [tollgate.Client] is one.
type Checker interface {
	Check(ctx context.Context, request tollgate.CheckRequest) (tollgate.Decision, error)
}

// Call is a call of a gRPC client.
type Call struct {
	// Context of the call, with its metadata and peer.
	Context context.Context
	// FullMethod is /package.Service/Method.
	FullMethod string
}

// Limiter limits calls. It is safe for concurrent use.
type Limiter struct {
	checker     Checker
	options     options
	descriptors [][]request.Entry
	rules       *request.Rules
}

// New returns a limiter that checks the descriptors of each call. A call without descriptors passes
// without a check. New returns an error that is [tollgate.ErrInvalidArgument] if an argument can
// never be right.
func New(checker Checker, descriptors []Descriptor, opts ...Option) (*Limiter, error) {
	o := options{count: answer.CountAll, headers: []string{answer.RateLimit}}
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	entries, err := entriesOf(descriptors)
	if err != nil {
		return nil, err
	}
	rules, err := request.NewRules(o.trustedProxies, o.skipPaths)
	if err != nil {
		return nil, err
	}
	return &Limiter{checker: checker, options: o, descriptors: entries, rules: rules}, nil
}

// Unary returns the interceptor of unary calls.
//
// A refused call ends with RESOURCE_EXHAUSTED, or with UNAVAILABLE if [tollgate.OnErrorDeny] refused
// it. A call whose check fails by its arguments, or since the client is closed, ends with INTERNAL.
func (l *Limiter) Unary() grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		headers, trailers, end, err := l.check(Call{Context: ctx, FullMethod: info.FullMethod})
		if len(trailers) > 0 {
			_ = grpc.SetTrailer(ctx, trailers)
		}
		if err != nil {
			return nil, err
		}
		if len(headers) > 0 {
			_ = grpc.SetHeader(ctx, headers)
		}
		failed := true
		defer func() { end(failed) }()
		response, err := handler(ctx, req)
		failed = err != nil
		return response, err
	}
}

// Stream returns the interceptor of streaming calls. It checks once, when the call starts. Otherwise
// it is as Unary.
func (l *Limiter) Stream() grpc.StreamServerInterceptor {
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		headers, trailers, end, err := l.check(Call{Context: stream.Context(), FullMethod: info.FullMethod})
		if len(trailers) > 0 {
			stream.SetTrailer(trailers)
		}
		if err != nil {
			return err
		}
		if len(headers) > 0 {
			_ = stream.SetHeader(headers)
		}
		failed := true
		defer func() { end(failed) }()
		err = handler(srv, stream)
		failed = err != nil
		return err
	}
}

// check returns the metadata of an allowed call and a function that ends it, or the trailers and the
// error of a refused one.
func (l *Limiter) check(call Call) (headers, trailers metadata.MD, end func(failed bool), err error) {
	descriptors := l.descriptorsOf(call)
	if len(descriptors) == 0 {
		return nil, nil, func(bool) {}, nil
	}
	request := tollgate.CheckRequest{
		Descriptors: descriptors, DryRun: l.options.count != answer.CountAll, Middleware: true,
	}
	if l.options.hits != nil {
		hits := l.options.hits(call)
		request.Hits = &hits
	}
	decision, err := l.checker.Check(call.Context, request)
	if err != nil {
		if call.Context.Err() != nil {
			return nil, nil, nil, status.FromContextError(call.Context.Err()).Err()
		}
		if errors.Is(err, tollgate.ErrInvalidArgument) {
			return nil, nil, nil, status.Error(codes.Internal, "the arguments of the rate limit check are invalid")
		}
		return nil, nil, nil, status.Error(codes.Internal, "the rate limit check failed")
	}
	l.report(call, decision)
	end = func(failed bool) {
		answer.TakeHits(call.Context, l.checker.Check, request, &decision, l.options.count, failed)
	}
	if l.options.shadow {
		return nil, nil, end, nil
	}
	fields := metadata.MD{}
	for _, field := range answer.Headers(&decision, l.options.headers) {
		fields.Set(field.Name, field.Value)
	}
	if decision.Allowed {
		return fields, nil, end, nil
	}
	return nil, fields, nil, refusal(&decision)
}

func (l *Limiter) descriptorsOf(call Call) []tollgate.Descriptor {
	view := viewOf(call)
	if l.rules.Skips(&view) || l.options.skip != nil && l.options.skip(call) {
		return nil
	}
	return l.rules.Descriptors(&view, l.descriptors)
}

func viewOf(call Call) request.View {
	view := request.View{
		Request: call,
		Method:  "POST",
		Path:    call.FullMethod,
		Header: func(name string) []string {
			return metadata.ValueFromIncomingContext(call.Context, name)
		},
	}
	if connection, ok := peer.FromContext(call.Context); ok && connection.Addr != nil {
		view.Peer = connection.Addr.String()
	}
	return view
}

// refusal returns the error of a refused call.
func refusal(decision *tollgate.Decision) error {
	if answer.IsUnavailable(decision) {
		wait := answer.Unavailable
		return withRetryInfo(status.New(codes.Unavailable, "rate limit service unavailable"), &wait)
	}
	return withRetryInfo(status.New(codes.ResourceExhausted, "rate limited"), decision.RetryAfter)
}

func withRetryInfo(refused *status.Status, wait *time.Duration) error {
	if wait == nil {
		return refused.Err()
	}
	detailed, err := refused.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(*wait)})
	if err != nil {
		return refused.Err()
	}
	return detailed.Err()
}

// report calls the function of the option on decision. A panic of it does not fail the call.
func (l *Limiter) report(call Call, decision tollgate.Decision) {
	if l.options.onDecision == nil {
		return
	}
	defer func() { _ = recover() }()
	l.options.onDecision(call, decision)
}
