package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.Verdict;
import io.grpc.Status;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Spans and metrics. */
class TelemetryTest {
  @Test
  void spansAndMetrics() throws Exception {
    InMemorySpanExporter spans = InMemorySpanExporter.create();
    InMemoryMetricReader metrics = InMemoryMetricReader.create();
    try (OpenTelemetrySdk sdk =
            OpenTelemetrySdk.builder()
                .setTracerProvider(
                    SdkTracerProvider.builder()
                        .addSpanProcessor(SimpleSpanProcessor.create(spans))
                        .build())
                .setMeterProvider(SdkMeterProvider.builder().registerMetricReader(metrics).build())
                .build();
        ScriptedServer server = new ScriptedServer();
        TollgateClient client =
            TollgateClient.builder()
                .addresses(server.address())
                .domain("edge")
                .deadline(Duration.ofSeconds(5))
                .openTelemetry(sdk)
                .build()) {
      Descriptor secret = Descriptor.of("user", "secret-value");
      server.answer(
          received -> CheckResponse.newBuilder().setVerdict(Verdict.VERDICT_OVER_LIMIT).build());
      client.check(secret);
      client.check(secret);
      server.answer(received -> Status.INTERNAL);
      client.check(Descriptor.of("user", "secret-other"));
      server.answer(received -> CheckResponse.newBuilder().setVerdict(Verdict.VERDICT_OK).build());
      client.peek(secret);

      List<SpanData> ended = spans.getFinishedSpanItems();
      assertEquals(
          List.of("tollgate.check", "tollgate.check", "tollgate.check", "tollgate.peek"),
          ended.stream().map(SpanData::getName).toList());
      assertEquals(SpanKind.CLIENT, ended.get(0).getKind());
      assertEquals("edge", attribute(ended.get(0), "tollgate.domain"));
      assertEquals("server", attribute(ended.get(0), "tollgate.source"));
      assertEquals("over_limit", attribute(ended.get(0), "tollgate.verdict"));
      assertEquals("cache", attribute(ended.get(1), "tollgate.source"));
      assertEquals("allow", attribute(ended.get(2), "tollgate.source"));
      assertEquals(StatusCode.UNSET, ended.get(1).getStatus().getStatusCode());
      assertEquals(StatusCode.ERROR, ended.get(2).getStatus().getStatusCode());
      assertFalse(ended.toString().contains("secret"));

      Map<String, MetricData> collected =
          metrics.collectAllMetrics().stream()
              .collect(Collectors.toMap(MetricData::getName, Function.identity()));
      assertEquals(
          3,
          collected.get("tollgate.client.decisions").getLongSumData().getPoints().stream()
              .mapToLong(point -> point.getValue())
              .sum());
      assertEquals(
          3,
          collected.get("tollgate.client.duration").getHistogramData().getPoints().stream()
              .mapToLong(point -> point.getCount())
              .sum());
      assertFalse(collected.toString().contains("secret"));
    }
  }

  private static String attribute(SpanData span, String name) {
    return span.getAttributes().get(AttributeKey.stringKey(name));
  }
}
