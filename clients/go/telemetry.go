package tollgate

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const (
	telemetryName = "github.com/tollgate-limits/tollgate-go"

	attributeDomain  = attribute.Key("tollgate.domain")
	attributeSource  = attribute.Key("tollgate.source")
	attributeVerdict = attribute.Key("tollgate.verdict")
)

// durationBounds are the bounds of the histogram, in seconds.
var durationBounds = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
}

// telemetry has the tracer and the instruments of a client. It never has values of descriptors.
type telemetry struct {
	tracer    trace.Tracer
	decisions metric.Int64Counter
	duration  metric.Float64Histogram
	// domain is the client's, and its options those of spans of it. They spare allocations.
	domain        string
	domainOptions []trace.SpanStartOption
}

func newTelemetry(domain string, o *options) (*telemetry, error) {
	tracers, meters := o.tracerProvider, o.meterProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	meter := meters.Meter(telemetryName, metric.WithInstrumentationVersion(Version))
	decisions, err := meter.Int64Counter("tollgate.client.decisions",
		metric.WithDescription("Decisions of checks and reservations."),
		metric.WithUnit("{decision}"))
	if err != nil {
		return nil, fmt.Errorf("tollgate: counter of decisions: %w", err)
	}
	duration, err := meter.Float64Histogram("tollgate.client.duration",
		metric.WithDescription("Duration of checks."),
		metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(durationBounds...))
	if err != nil {
		return nil, fmt.Errorf("tollgate: histogram of durations: %w", err)
	}
	return &telemetry{
		tracer:    tracers.Tracer(telemetryName, trace.WithInstrumentationVersion(Version)),
		decisions: decisions,
		duration:  duration,

		domain:        domain,
		domainOptions: spanOptions(domain),
	}, nil
}

// callSpan is the span of one call. Exactly one of its methods ends it.
type callSpan struct{ span trace.Span }

func spanOptions(domain string) []trace.SpanStartOption {
	return []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attributeDomain.String(domain)),
	}
}

// start starts the span of a call, by the name of the span.
func (t *telemetry) start(ctx context.Context, name, domain string) (context.Context, callSpan) {
	options := t.domainOptions
	if domain != t.domain {
		options = spanOptions(domain)
	}
	ctx, span := t.tracer.Start(ctx, name, options...)
	return ctx, callSpan{span}
}

func (s callSpan) answer() { s.span.End() }

func (s callSpan) fail(err error) {
	s.span.SetStatus(codes.Error, errorClass(err))
	s.span.End()
}

func (s callSpan) decide(decision *Decision) {
	if s.span.IsRecording() {
		s.span.SetAttributes(attributeSource.String(string(decision.Source)), verdictOf(decision))
		if decision.Err != nil {
			s.span.SetStatus(codes.Error, errorClass(decision.Err))
		}
	}
	s.span.End()
}

// errorClass returns the gRPC status name, or the message of an error of this package. The message
// of a server is not part of it, since it can have values of descriptors.
func errorClass(err error) string {
	var failed *CallError
	if errors.As(err, &failed) {
		return failed.Code.String()
	}
	return err.Error()
}

func verdictOf(decision *Decision) attribute.KeyValue {
	if decision.Allowed {
		return attributeVerdict.String("ok")
	}
	return attributeVerdict.String("over_limit")
}

func (t *telemetry) recordDecision(ctx context.Context, decision *Decision) {
	if t.decisions.Enabled(ctx) {
		t.decisions.Add(ctx, 1, metric.WithAttributes(
			attributeSource.String(string(decision.Source)), verdictOf(decision)))
	}
}

func (t *telemetry) recordCheck(ctx context.Context, decision *Decision) {
	t.recordDecision(ctx, decision)
	if t.duration.Enabled(ctx) {
		t.duration.Record(ctx, decision.Elapsed.Seconds(), metric.WithAttributes(
			attributeSource.String(string(decision.Source))))
	}
}
