package tollgate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tollgate "github.com/tollgate-limits/tollgate-go"
	"github.com/tollgate-limits/tollgate-go/internal/pb/tollgatev1"
	"github.com/tollgate-limits/tollgate-go/internal/testkit"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

var (
	allowedReply = testkit.Reply{Message: &tollgatev1.CheckResponse{
		Verdict: tollgatev1.Verdict_VERDICT_OK}}
	refusedReply = testkit.Reply{Message: &tollgatev1.CheckResponse{
		Verdict:    tollgatev1.Verdict_VERDICT_OVER_LIMIT,
		RetryAfter: durationpb.New(time.Hour)}}
	unavailableReply = testkit.Reply{Code: grpccodes.Unavailable}
)

func always(reply testkit.Reply) func(testkit.Received) testkit.Reply {
	return func(testkit.Received) testkit.Reply { return reply }
}

func TestHalfOpenBreakerLetsOneOf50CallersThrough(t *testing.T) {
	server, clock := testkit.StartServer(t), &testkit.Clock{}
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address), tollgate.WithClock(clock.Now),
		tollgate.WithDeadline(10*time.Second), tollgate.WithBreaker(1, time.Second))
	server.Script(always(unavailableReply))
	check(t, client, "a", "b")
	clock.Advance(time.Second)

	answer := make(chan struct{})
	server.Script(func(testkit.Received) testkit.Reply {
		<-answer
		return allowedReply
	})
	var callers sync.WaitGroup
	var stopped, answered atomic.Int64
	for range 50 {
		callers.Go(func() {
			decision := check(t, client, "a", "b")
			switch {
			case errors.Is(decision.Err, tollgate.ErrBreakerOpen):
				if stopped.Add(1) == 49 {
					close(answer)
				}
			case decision.Source == tollgate.SourceServer:
				answered.Add(1)
			}
		})
	}
	callers.Wait()
	if calls := len(server.Calls()); calls != 1 || answered.Load() != 1 || stopped.Load() != 49 {
		t.Errorf("%d calls, %d answered, %d stopped; want 1, 1, 49", calls, answered.Load(), stopped.Load())
	}
}

func TestCancellationIsTheCallersAndGivesTheProbeBack(t *testing.T) {
	server, clock := testkit.StartServer(t), &testkit.Clock{}
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address), tollgate.WithClock(clock.Now),
		tollgate.WithDeadline(10*time.Second), tollgate.WithBreaker(1, time.Second))
	server.Script(always(unavailableReply))
	check(t, client, "a", "b")
	clock.Advance(time.Second)

	ctx, cancel := context.WithCancel(context.Background())
	server.Script(func(testkit.Received) testkit.Reply {
		cancel()
		return testkit.Reply{Hang: true}
	})
	_, err := client.Check(ctx, tollgate.CheckRequest{Descriptors: descriptors("a", "b")})
	if !errors.Is(err, context.Canceled) || len(server.Calls()) != 1 {
		t.Fatalf("error %v, %d calls; want context.Canceled, 1", err, len(server.Calls()))
	}
	server.Script(always(allowedReply))
	if decision := check(t, client, "a", "b"); decision.Source != tollgate.SourceServer {
		t.Errorf("after a cancelled probe: %+v, want an answer of the server", decision)
	}

	ended, cancelEnded := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancelEnded()
	server.Script(always(testkit.Reply{Hang: true}))
	_, err = client.Peek(ended, tollgate.CheckRequest{Descriptors: descriptors("a", "b")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want context.DeadlineExceeded", err)
	}
}

func TestDenialCacheMakesNoCall(t *testing.T) {
	server := testkit.StartServer(t)
	// The clock stands still, so that the entry does not end.
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address),
		tollgate.WithClock((&testkit.Clock{}).Now), tollgate.WithDeadline(10*time.Second))
	server.Script(always(refusedReply))
	for i := range 1000 {
		decision := check(t, client, "a", "b")
		if decision.Allowed || i > 0 && decision.Source != tollgate.SourceCache {
			t.Fatalf("check %d: %+v", i, decision)
		}
	}
	if calls := len(server.Calls()); calls != 1 {
		t.Errorf("%d calls, want 1", calls)
	}
}

func TestArgumentsThatCanNeverBeRight(t *testing.T) {
	for name, options := range map[string][]tollgate.Option{
		"no address":      {tollgate.WithAddresses()},
		"no port":         {tollgate.WithAddresses("localhost")},
		"deadline":        {tollgate.WithDeadline(0)},
		"keepalive":       {tollgate.WithKeepalive(0, time.Second)},
		"local":           {tollgate.WithLocalBucket(0, 1)},
		"burst":           {tollgate.WithLocalBucket(1, 0)},
		"breaker":         {tollgate.WithBreaker(0, time.Second)},
		"breaker time":    {tollgate.WithBreaker(1, 0)},
		"denial cache":    {tollgate.WithDenialCache(-1)},
		"clock":           {tollgate.WithClock(nil)},
		"on error":        {tollgate.WithOnError(7)},
		"protocol":        {tollgate.WithProtocol(7)},
		"a second option": {tollgate.WithDeadline(time.Second), tollgate.WithDeadline(-1)},
	} {
		if _, err := tollgate.New("unit", options...); !errors.Is(err, tollgate.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
	if _, err := tollgate.New(""); !errors.Is(err, tollgate.ErrInvalidArgument) {
		t.Errorf("no domain: %v, want ErrInvalidArgument", err)
	}
	client := newClient(t, "unit")
	for name, request := range map[string]tollgate.ReserveRequest{
		"expires":   {Expires: time.Microsecond},
		"a day":     {Expires: 24*time.Hour + 1},
		"id":        {ID: strings.Repeat("x", 257)},
		"on expiry": {OnExpiry: 9},
		"hits":      {Hits: new(int64(tollgate.MaxHits + 1))},
	} {
		if _, err := client.Reserve(context.Background(), request); !errors.Is(err, tollgate.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
}

func TestTelemetry(t *testing.T) {
	server := testkit.StartServer(t)
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	client := newClient(t, "unit", tollgate.WithAddresses(server.Address),
		tollgate.WithDeadline(10*time.Second), tollgate.WithOnError(tollgate.OnErrorDeny),
		tollgate.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
		tollgate.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	ctx := context.Background()
	for _, reply := range []testkit.Reply{allowedReply, refusedReply, unavailableReply} {
		server.Script(always(reply))
		check(t, client, "secret-key", fmt.Sprintf("secret-%p", reply.Message))
	}
	server.Script(always(unavailableReply))
	_, _ = client.Peek(ctx, tollgate.CheckRequest{Descriptors: descriptors("secret-key", "secret")})
	server.Script(func(call testkit.Received) testkit.Reply {
		if call.Method == "Reserve" {
			return testkit.Reply{Message: &tollgatev1.ReserveResponse{
				Verdict: tollgatev1.Verdict_VERDICT_OK, Reservation: "r"}}
		}
		return testkit.Reply{Message: &tollgatev1.SettleResponse{Reservation: "r"}}
	})
	reservation, err := client.Reserve(ctx, tollgate.ReserveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []func() (tollgate.Settlement, error){
		func() (tollgate.Settlement, error) { return reservation.Extend(ctx, time.Minute) },
		func() (tollgate.Settlement, error) { return reservation.Commit(ctx, 1) },
		func() (tollgate.Settlement, error) { return reservation.Release(ctx) },
	} {
		if _, err := call(); err != nil {
			t.Fatal(err)
		}
	}

	var got []string
	for _, span := range spans.GetSpans() {
		text := span.Name + " " + span.SpanKind.String()
		for _, attribute := range span.Attributes {
			text += fmt.Sprintf(" %s=%s", attribute.Key, attribute.Value.String())
		}
		if span.Status.Code == codes.Error {
			text += " error"
		}
		if strings.Contains(fmt.Sprintf("%+v", span), "secret") {
			t.Errorf("a span has values of descriptors: %+v", span)
		}
		got = append(got, text)
	}
	const domain = " client tollgate.domain=unit"
	want := []string{
		"tollgate.check" + domain + " tollgate.source=server tollgate.verdict=ok",
		"tollgate.check" + domain + " tollgate.source=server tollgate.verdict=over_limit",
		"tollgate.check" + domain + " tollgate.source=deny tollgate.verdict=over_limit error",
		"tollgate.peek" + domain + " error",
		"tollgate.reserve" + domain + " tollgate.source=server tollgate.verdict=ok",
		"tollgate.extend" + domain,
		"tollgate.commit" + domain,
		"tollgate.release" + domain,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &metrics); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, metric := range metrics.ScopeMetrics[0].Metrics {
		switch data := metric.Data.(type) {
		case metricdata.Sum[int64]:
			for _, point := range data.DataPoints {
				source, _ := point.Attributes.Value("tollgate.source")
				verdict, _ := point.Attributes.Value("tollgate.verdict")
				counts[metric.Name+" "+source.AsString()+" "+verdict.AsString()] = point.Value
			}
		case metricdata.Histogram[float64]:
			for _, point := range data.DataPoints {
				source, _ := point.Attributes.Value("tollgate.source")
				counts[metric.Name+" "+source.AsString()] = int64(point.Count)
				if point.Sum <= 0 || point.Sum > 30 {
					t.Errorf("%v seconds of checks", point.Sum)
				}
			}
		}
	}
	wantCounts := map[string]int64{
		"tollgate.client.decisions server ok":         2,
		"tollgate.client.decisions server over_limit": 1,
		"tollgate.client.decisions deny over_limit":   1,
		"tollgate.client.duration server":             2,
		"tollgate.client.duration deny":               1,
	}
	if fmt.Sprint(counts) != fmt.Sprint(wantCounts) {
		t.Errorf("metrics %v, want %v", counts, wantCounts)
	}
}

func TestGeneratedCodeIsCurrent(t *testing.T) {
	folder := t.TempDir()
	command := exec.Command("./generate.sh", folder)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("generate.sh: %v; set PYTHON to a python3 with grpcio-tools\n%s", err, out)
	}
	for _, file := range []string{"tollgatev1/rate_limits.pb.go", "rlsv3/rls.pb.go"} {
		want, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("internal/pb", file))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("internal/pb/%s is not current; run generate.sh", file)
		}
	}
}

func TestTheDefaultLoggerGetsTheWarning(t *testing.T) {
	server := testkit.StartServer(t)
	server.Script(always(unavailableReply))
	client, err := tollgate.New("test", tollgate.WithAddresses(server.Address), tollgate.WithDeadline(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	var logged bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	if _, err := client.Check(t.Context(), tollgate.CheckRequest{}); err != nil {
		t.Fatal(err)
	}
	want := `level=WARN msg="no answer from tollgate" addresses=` + server.Address +
		` on_error=allow decisions=1 error="UNAVAILABLE: scripted"`
	if !strings.Contains(logged.String(), want) {
		t.Errorf("%s, want %s", logged.String(), want)
	}
}
