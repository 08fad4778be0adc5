package io.github.tollgatelimits.middleware;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import io.github.tollgatelimits.CheckRequest;
import io.github.tollgatelimits.Descriptor;
import io.github.tollgatelimits.Vectors;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Runs {@code descriptors.json}. */
class DescriptorVectorsTest {
  private record JsonRequest(JsonNode json) implements RequestView {
    @Override
    public String method() {
      return json.path("method").asText();
    }

    @Override
    public String path() {
      return json.path("path").asText();
    }

    @Override
    public List<String> headers(String name) {
      List<String> values = new ArrayList<>();
      for (JsonNode header : json.path("headers")) {
        if (header.get(0).asText().equalsIgnoreCase(name)) {
          values.add(header.get(1).asText());
        }
      }
      return values;
    }

    @Override
    public String peerAddress() {
      String peer = json.path("peer").asText();
      return peer.isEmpty()
          ? ""
          : peer.substring(0, peer.lastIndexOf(':')).replace("[", "").replace("]", "");
    }
  }

  @TestFactory
  Stream<DynamicTest> descriptors() {
    return Vectors.tests("descriptors.json", DescriptorVectorsTest::run);
  }

  private static void run(JsonNode vector) {
    LimitOptions<JsonRequest> options = options(vector.path("config"));
    JsonRequest request = new JsonRequest(vector.path("request"));
    Optional<CheckRequest> check = options.checkOf(request, request);
    JsonNode expect = vector.path("expect");
    assertEquals(expect.path("skip").asBoolean(false), check.isEmpty(), "skip");
    if (expect.has("descriptors")) {
      List<List<List<String>>> expected = new ArrayList<>();
      for (JsonNode descriptor : expect.path("descriptors")) {
        expected.add(
            StreamSupport.stream(descriptor.spliterator(), false)
                .map(entry -> List.of(entry.get(0).asText(), entry.get(1).asText()))
                .toList());
      }
      List<List<List<String>>> actual =
          check.orElseThrow().descriptors().stream()
              .map(Descriptor::entries)
              .map(
                  entries ->
                      entries.stream().map(entry -> List.of(entry.key(), entry.value())).toList())
              .toList();
      assertEquals(expected, actual, "descriptors");
    }
    if (expect.has("hits")) {
      assertEquals(expect.path("hits").asLong(), check.orElseThrow().hits().orElse(1), "hits");
    }
  }

  private static LimitOptions<JsonRequest> options(JsonNode config) {
    LimitOptions.Builder<JsonRequest> options = LimitOptions.builder();
    for (JsonNode descriptor : config.path("descriptors")) {
      options.descriptor(
          StreamSupport.stream(descriptor.spliterator(), false)
              .map(DescriptorVectorsTest::entry)
              .toList());
    }
    if (config.has("hits")) {
      options.hits(config.path("hits").asLong());
    }
    return options
        .trustedProxies(texts(config.path("trusted_proxies")))
        .skipPaths(texts(config.path("skip_paths")))
        .build();
  }

  private static RequestEntry<Object> entry(JsonNode entry) {
    String key = entry.path("key").asText();
    RequestEntry<Object> source;
    if (entry.has("value")) {
      source = RequestEntry.value(key, entry.path("value").asText());
    } else if (entry.has("header")) {
      source = RequestEntry.header(key, entry.path("header").asText());
    } else if (entry.has("method")) {
      source = RequestEntry.method(key);
    } else if (entry.has("path")) {
      source = RequestEntry.path(key);
    } else if (entry.has("path_templates")) {
      source =
          RequestEntry.pathTemplate(
              key, texts(entry.path("path_templates")).toArray(String[]::new));
    } else if (entry.has("remote_address")) {
      source = RequestEntry.remoteAddress(key);
    } else {
      throw new IllegalArgumentException("entry " + entry);
    }
    return entry.has("default") ? source.withDefault(entry.path("default").asText()) : source;
  }

  private static List<String> texts(JsonNode array) {
    return StreamSupport.stream(array.spliterator(), false).map(JsonNode::asText).toList();
  }
}
