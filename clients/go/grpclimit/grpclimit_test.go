package grpclimit_test

import (
	"context"
	"net"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/grpclimit"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const rules = `domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: method
    rate_limit: {unit: day, requests_per_unit: 5}
`

// start starts a gRPC health server that is limited, and returns a client of it.
func start(
	t *testing.T, descriptor grpclimit.Descriptor, options ...grpclimit.Option,
) grpc_health_v1.HealthClient {
	t.Helper()
	client, _ := startCounted(t, descriptor, options...)
	return client
}

// hitsTaken checks by a client, and reports each check that takes hits.
type hitsTaken struct {
	*tollgate.Client
	done chan tollgate.Decision
}

func (h hitsTaken) Check(ctx context.Context, request tollgate.CheckRequest) (tollgate.Decision, error) {
	decision, err := h.Client.Check(ctx, request)
	if !request.DryRun {
		h.done <- decision
	}
	return decision, err
}

// startCounted is start, with a channel of the decisions that took hits.
func startCounted(
	t *testing.T, descriptor grpclimit.Descriptor, options ...grpclimit.Option,
) (grpc_health_v1.HealthClient, <-chan tollgate.Decision) {
	t.Helper()
	server := testkit.StartTollgate(t, rules)
	client, err := tollgate.New("edge", tollgate.WithAddresses(server.GRPC),
		tollgate.WithDeadline(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	checker := hitsTaken{client, make(chan tollgate.Decision, 100)}
	limiter, err := grpclimit.New(checker, []grpclimit.Descriptor{descriptor}, options...)
	if err != nil {
		t.Fatal(err)
	}
	limited := grpc.NewServer(grpc.UnaryInterceptor(limiter.Unary()), grpc.StreamInterceptor(limiter.Stream()))
	grpc_health_v1.RegisterHealthServer(limited, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = limited.Serve(listener) }()
	t.Cleanup(limited.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), checker.done
}

func TestOnlyFailedOrSuccessfulCallsAreCounted(t *testing.T) {
	good, bad := &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthCheckRequest{Service: "unknown"}
	for _, c := range []struct {
		count         grpclimit.Count
		counted, free *grpc_health_v1.HealthCheckRequest
	}{
		{grpclimit.CountFailed, bad, good},
		{grpclimit.CountSuccessful, good, bad},
	} {
		descriptor := grpclimit.Descriptor{grpclimit.RemoteAddress("remote_address")}
		client, taken := startCounted(t, descriptor, grpclimit.WithCount(c.count))
		verdict := func(request *grpc_health_v1.HealthCheckRequest) codes.Code {
			_, err := client.Check(context.Background(), request)
			return status.Code(err)
		}
		want := map[*grpc_health_v1.HealthCheckRequest]codes.Code{good: codes.OK, bad: codes.NotFound}
		for i := range 5 {
			for _, request := range []*grpc_health_v1.HealthCheckRequest{c.free, c.counted} {
				if got := verdict(request); got != want[request] {
					t.Errorf("%s: %s, want %s", c.count, got, want[request])
				}
			}
			if decision := <-taken; *decision.Remaining != uint64(4-i) {
				t.Errorf("%s: hit %d: %d remain", c.count, i, *decision.Remaining)
			}
		}
		if got := verdict(c.free); got != codes.ResourceExhausted {
			t.Errorf("%s: %s, want ResourceExhausted", c.count, got)
		}
	}
}

func verify(t *testing.T, i int, header, trailer metadata.MD, err error) {
	t.Helper()
	if i < 5 {
		if err != nil || first(header, "ratelimit-limit") != "5" ||
			first(header, "ratelimit-remaining") != string(rune('4'-i)) {
			t.Errorf("call %d: %v, %v", i, err, header)
		}
		return
	}
	refused := status.Convert(err)
	if refused.Code() != codes.ResourceExhausted || refused.Message() != "rate limited" ||
		first(trailer, "ratelimit-remaining") != "0" {
		t.Errorf("call %d: %v, %v", i, err, trailer)
	}
	if len(refused.Details()) != 1 {
		t.Fatalf("details %v, want RetryInfo", refused.Details())
	}
	info, ok := refused.Details()[0].(*errdetails.RetryInfo)
	if !ok || info.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("details %v, want RetryInfo", refused.Details())
	}
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func TestSixthUnaryCallIsRefused(t *testing.T) {
	client := start(t, grpclimit.Descriptor{grpclimit.RemoteAddress("remote_address")},
		grpclimit.WithSkip(func(call grpclimit.Call) bool {
			return len(metadata.ValueFromIncomingContext(call.Context, "x-skip")) > 0
		}))
	for i := range 6 {
		var header, trailer metadata.MD
		_, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{},
			grpc.Header(&header), grpc.Trailer(&trailer))
		verify(t, i, header, trailer, err)
	}
	skipped := metadata.AppendToOutgoingContext(context.Background(), "x-skip", "1")
	if _, err := client.Check(skipped, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("a skipped call: %v", err)
	}
}

func TestSixthStreamingCallIsRefused(t *testing.T) {
	client := start(t, grpclimit.Descriptor{grpclimit.Path("method")})
	for i := range 6 {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		header, _ := stream.Header()
		verify(t, i, header, stream.Trailer(), err)
		cancel()
	}
}
