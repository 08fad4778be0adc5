package io.github.tollgatelimits.grpc;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.rpc.RetryInfo;
import io.github.tollgatelimits.Decision;
import io.github.tollgatelimits.Limit;
import io.github.tollgatelimits.NoLimit;
import io.github.tollgatelimits.Source;
import io.github.tollgatelimits.Vectors;
import io.github.tollgatelimits.middleware.Answer;
import io.github.tollgatelimits.middleware.HeaderStyle;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.grpc.Metadata;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Runs {@code answers.json}, for HTTP and gRPC. */
class AnswerVectorsTest {
  @TestFactory
  Stream<DynamicTest> answers() {
    return Stream.concat(
        Vectors.tests("answers.json", AnswerVectorsTest::run),
        Vectors.tests("leases.json", "answers", "", vector -> true, AnswerVectorsTest::run));
  }

  private static void run(JsonNode vector) throws Exception {
    Answer answer = options(vector.path("config")).answer(decision(vector.path("decision")));
    JsonNode http = vector.path("expect").path("http");
    assertEquals(http.path("pass").asBoolean(), answer.passes(), "http.pass");
    assertEquals(texts(http.path("headers")), lowerCase(answer.httpHeaders()), "http.headers");
    if (!answer.passes()) {
      assertEquals(http.path("status").asInt(), answer.status(), "http.status");
      assertEquals(http.path("body").asText(), answer.body(), "http.body");
      assertEquals(http.path("content_type").asText(), answer.contentType(), "content_type");
    }

    JsonNode grpc = vector.path("expect").path("grpc");
    assertEquals(grpc.path("pass").asBoolean(), answer.passes(), "grpc.pass");
    Metadata metadata = TollgateInterceptor.metadata(answer.limitHeaders());
    Map<String, String> sent = new TreeMap<>();
    for (String name : metadata.keys()) {
      sent.put(name, metadata.get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER)));
    }
    assertEquals(texts(grpc.path("metadata")), sent, "grpc.metadata");
    if (!answer.passes()) {
      TollgateInterceptor.Refusal refusal = TollgateInterceptor.refusal(answer);
      assertEquals(grpc.path("code").asText(), refusal.status().getCode().name(), "grpc.code");
      assertEquals(
          grpc.path("message").asText(), refusal.status().getDescription(), "grpc.message");
      var details = StatusProto.fromStatusAndTrailers(refusal.status(), refusal.trailers());
      Long retryMillis = null;
      if (details.getDetailsCount() > 0) {
        var delay = details.getDetails(0).unpack(RetryInfo.class).getRetryDelay();
        retryMillis = delay.getSeconds() * 1_000 + delay.getNanos() / 1_000_000;
      }
      assertEquals(
          grpc.has("retry_ms") ? grpc.path("retry_ms").asLong() : null,
          retryMillis,
          "grpc.retry_ms");
    }
  }

  private static LimitOptions<Object> options(JsonNode config) {
    LimitOptions.Builder<Object> options = LimitOptions.builder();
    if (config.has("headers")) {
      List<HeaderStyle> styles = new ArrayList<>();
      config
          .path("headers")
          .forEach(
              style ->
                  styles.add(
                      HeaderStyle.valueOf(
                          style.asText().toUpperCase(Locale.ROOT).replace('-', '_'))));
      options.headers(styles);
    }
    if (config.has("status")) {
      options.status(config.path("status").asInt());
    }
    if (config.has("error_status")) {
      options.errorStatus(config.path("error_status").asInt());
    }
    if (config.has("body") || config.has("content_type")) {
      options.body(
          config.path("body").asText("Too Many Requests"),
          config.path("content_type").asText("text/plain; charset=utf-8"));
    }
    return options.shadow(config.path("shadow").asBoolean(false)).build();
  }

  private static Decision decision(JsonNode json) {
    List<Limit> limits = new ArrayList<>();
    for (JsonNode limit : json.path("limits")) {
      limits.add(
          new Limit(
              limit.path("descriptor").asInt(),
              limit.path("name").asText(),
              limit.path("rule").asText(),
              limit.path("requests_per_unit").asLong(),
              limit.path("window").asText(),
              limit.path("allowed").asBoolean(),
              limit.path("remaining").asLong(),
              millis(limit.path("reset_ms")),
              millis(limit.path("retry_after_ms"))));
    }
    JsonNode remaining = json.path("remaining");
    return new Decision(
        json.path("allowed").asBoolean(),
        Source.valueOf(json.path("source").asText().toUpperCase(Locale.ROOT)),
        remaining.isNumber() ? OptionalLong.of(remaining.asLong()) : OptionalLong.empty(),
        millis(json.path("reset_ms")),
        millis(json.path("retry_after_ms")),
        limits,
        Optional.ofNullable(json.path("no_limit").asText(null))
            .map(reason -> NoLimit.valueOf(reason.toUpperCase(Locale.ROOT))),
        Optional.empty(),
        Duration.ZERO);
  }

  private static Optional<Duration> millis(JsonNode json) {
    return json.isNumber() ? Optional.of(Duration.ofMillis(json.asLong())) : Optional.empty();
  }

  private static Map<String, String> texts(JsonNode object) {
    Map<String, String> texts = new TreeMap<>();
    object.fields().forEachRemaining(field -> texts.put(field.getKey(), field.getValue().asText()));
    return texts;
  }

  private static Map<String, String> lowerCase(Map<String, String> headers) {
    Map<String, String> copy = new TreeMap<>();
    headers.forEach((name, value) -> copy.put(name.toLowerCase(Locale.ROOT), value));
    return copy;
  }
}
