package io.github.tollgatelimits;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import java.util.List;
import java.util.Locale;
import java.util.function.Supplier;

/** Telemetry by OpenTelemetry. Loaded only if its API is on the class path. */
final class OpenTelemetryTelemetry implements Telemetry {
  private static final String SCOPE = "io.github.tollgatelimits";
  private static final double NANOS_PER_SECOND = 1e9;
  private static final AttributeKey<String> DOMAIN = AttributeKey.stringKey("tollgate.domain");
  private static final AttributeKey<String> SOURCE = AttributeKey.stringKey("tollgate.source");
  private static final AttributeKey<String> VERDICT = AttributeKey.stringKey("tollgate.verdict");

  private final Supplier<OpenTelemetry> provider;
  private volatile Instruments instruments;

  private record Instruments(Tracer tracer, LongCounter decisions, DoubleHistogram duration) {
    static Instruments of(OpenTelemetry openTelemetry) {
      Meter meter = openTelemetry.getMeter(SCOPE);
      return new Instruments(
          openTelemetry.getTracer(SCOPE),
          meter
              .counterBuilder("tollgate.client.decisions")
              .setDescription("Decisions of checks and reservations.")
              .setUnit("{decision}")
              .build(),
          meter
              .histogramBuilder("tollgate.client.duration")
              .setDescription("Duration of a check.")
              .setUnit("s")
              .setExplicitBucketBoundariesAdvice(
                  List.of(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0))
              .build());
    }
  }

  private OpenTelemetryTelemetry(Supplier<OpenTelemetry> provider) {
    this.provider = provider;
  }

  /** Uses the global OpenTelemetry as it is at the first call. */
  static Telemetry global() {
    return new OpenTelemetryTelemetry(GlobalOpenTelemetry::get);
  }

  static Telemetry of(OpenTelemetry openTelemetry) {
    return new OpenTelemetryTelemetry(() -> openTelemetry);
  }

  @Override
  public Operation begin(String name, String domain) {
    Instruments current = instruments();
    Span span =
        current
            .tracer
            .spanBuilder("tollgate." + name)
            .setSpanKind(SpanKind.CLIENT)
            .setAttribute(DOMAIN, domain)
            .startSpan();
    return new OpenOperation(current, span, name);
  }

  private Instruments instruments() {
    Instruments current = instruments;
    if (current == null) {
      synchronized (this) {
        current = instruments;
        if (current == null) {
          current = Instruments.of(provider.get());
          instruments = current;
        }
      }
    }
    return current;
  }

  private record OpenOperation(Instruments instruments, Span span, String name)
      implements Operation {
    @Override
    public void decided(Decision decision) {
      String source = decision.source().name().toLowerCase(Locale.ROOT);
      String verdict = decision.allowed() ? "ok" : "over_limit";
      span.setAttribute(SOURCE, source).setAttribute(VERDICT, verdict);
      decision.error().ifPresent(this::setError);
      span.end();
      if (!name.equals("peek")) {
        instruments.decisions.add(1, Attributes.of(SOURCE, source, VERDICT, verdict));
      }
      if (name.equals("check")) {
        instruments.duration.record(
            decision.elapsed().toNanos() / NANOS_PER_SECOND, Attributes.of(SOURCE, source));
      }
    }

    @Override
    public void settled() {
      span.end();
    }

    @Override
    public void failed(Throwable error) {
      setError(error);
      span.end();
    }

    private void setError(Throwable error) {
      span.setStatus(
          StatusCode.ERROR,
          error instanceof TollgateException failure
              ? failure.code().name()
              : error.getClass().getSimpleName());
    }
  }
}
