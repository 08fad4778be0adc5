// Package httplimit limits the requests of a net/http server by tollgate.
//
//	limiter, err := httplimit.New(client, []httplimit.Descriptor{
//		{httplimit.RemoteAddress("remote_address")},
//	})
//	if err != nil {
//		return err
//	}
//	return http.ListenAndServe(":8000", limiter.Handler(mux))
package httplimit

import (
	"context"
	"net/http"
	"strings"

	"github.com/felixge/httpsnoop"
	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/answer"
	"github.com/tollgate-limits/tollgate-go/internal/request"
)

// Checker checks limits. [tollgate.Client] is one.
type Checker interface {
	Check(ctx context.Context, request tollgate.CheckRequest) (tollgate.Decision, error)
}

// Limiter limits requests. It is safe for concurrent use.
type Limiter struct {
	checker     Checker
	options     options
	descriptors [][]request.Entry
	rules       *request.Rules
}

// New returns a limiter that checks the descriptors of each request. A request without descriptors
// passes without a call. New returns an error that is [tollgate.ErrInvalidArgument] if an argument
// can never be right.
func New(checker Checker, descriptors []Descriptor, opts ...Option) (*Limiter, error) {
	o := defaultOptions()
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

// Handler returns a handler that passes allowed requests to next, and answers refused ones.
//
// A request whose context ends before the answer is answered by 503.
// A request whose check fails by its arguments, or since the client is closed, is answered by 500.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		descriptors := l.descriptorsOf(r)
		if len(descriptors) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		check := tollgate.CheckRequest{
			Descriptors: descriptors, DryRun: l.options.count != answer.CountAll, Middleware: true,
		}
		if l.options.hits != nil {
			hits := l.options.hits(r)
			check.Hits = &hits
		}
		decision, err := l.checker.Check(r.Context(), check)
		switch {
		case err == nil:
		case r.Context().Err() != nil:
			http.Error(w, unavailableBody, http.StatusServiceUnavailable)
			return
		default:
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		l.report(r, decision)
		if !l.options.shadow {
			for _, field := range answer.Headers(&decision, l.options.headers) {
				w.Header()[field.Canonical] = []string{field.Value}
			}
			if !decision.Allowed {
				l.options.refuse(w, &decision)
				return
			}
		}
		if !check.DryRun {
			next.ServeHTTP(w, r)
			return
		}
		failed := true
		defer func() {
			answer.TakeHits(r.Context(), l.checker.Check, check, &decision, l.options.count, failed)
		}()
		failed = httpsnoop.CaptureMetrics(next, w, r).Code >= http.StatusBadRequest
	})
}

// descriptorsOf returns nothing if the request is not limited.
func (l *Limiter) descriptorsOf(r *http.Request) []tollgate.Descriptor {
	view := viewOf(r)
	if l.rules.Skips(&view) || l.options.skip != nil && l.options.skip(r) {
		return nil
	}
	return l.rules.Descriptors(&view, l.descriptors)
}

func viewOf(r *http.Request) request.View {
	path := r.RequestURI
	if !strings.HasPrefix(path, "/") && path != "*" {
		path = r.URL.EscapedPath()
	}
	return request.View{
		Request: r,
		Method:  r.Method,
		Path:    path,
		Header: func(name string) []string {
			if strings.EqualFold(name, "host") && r.Host != "" {
				return []string{r.Host}
			}
			return r.Header.Values(name)
		},
		Peer: r.RemoteAddr,
	}
}

// WriteRefusal writes the answer to a request that a decision refuses, as a [Limiter] with these
// options does: status, Retry-After, rate limit headers and body. It is for handlers that call
// [tollgate.Client.Check] themselves. Of an allowed decision it writes nothing. It returns an error
// that is [tollgate.ErrInvalidArgument] if an option can never be right.
func WriteRefusal(w http.ResponseWriter, decision tollgate.Decision, opts ...Option) error {
	o := defaultOptions()
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.validate(); err != nil || decision.Allowed {
		return err
	}
	for _, field := range answer.Headers(&decision, o.headers) {
		w.Header()[field.Canonical] = []string{field.Value}
	}
	o.refuse(w, &decision)
	return nil
}

// refuse writes the answer to a refused request, but for the rate limit headers.
func (o *options) refuse(w http.ResponseWriter, decision *tollgate.Decision) {
	header := w.Header()
	if wait := answer.RetryAfter(decision); wait != "" {
		header.Set("Retry-After", wait)
	}
	status, body, contentType := o.status, o.body, o.contentType
	if answer.IsUnavailable(decision) {
		status, body, contentType = o.errorStatus, unavailableBody, plainText
	}
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// report calls the function of the option on decision. A panic of it does not fail the request.
func (l *Limiter) report(r *http.Request, decision tollgate.Decision) {
	if l.options.onDecision == nil {
		return
	}
	defer func() { _ = recover() }()
	l.options.onDecision(r, decision)
}
