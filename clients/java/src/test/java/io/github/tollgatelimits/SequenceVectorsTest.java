package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.github.tollgatelimits.internal.rls.RateLimitRequest;
import io.github.tollgatelimits.internal.rls.RateLimitResponse;
import io.github.tollgatelimits.internal.v1.Answer;
import io.github.tollgatelimits.internal.v1.BatchRequest;
import io.github.tollgatelimits.internal.v1.BatchResponse;
import io.github.tollgatelimits.internal.v1.Call;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.LeaseResponse;
import io.github.tollgatelimits.internal.v1.ReserveResponse;
import io.github.tollgatelimits.internal.v1.ReturnRequest;
import io.github.tollgatelimits.internal.v1.SettleResponse;
import io.grpc.Status;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** Runs {@code sequences.json} on a scripted server. */
class SequenceVectorsTest {
  private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
  private static ScriptedServer server;

  @BeforeAll
  static void start() throws IOException {
    server = new ScriptedServer();
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  @TestFactory
  Stream<DynamicTest> sequences() {
    return Vectors.tests("sequences.json", vector -> run(vector, false));
  }

  @TestFactory
  Stream<DynamicTest> batchedSequences() {
    return Vectors.tests(
        "sequences.json",
        " (batching)",
        vector -> !vector.path("options").path("protocol").asText().equals("envoy"),
        vector -> run(vector, true));
  }

  @TestFactory
  Stream<DynamicTest> leases() {
    return Vectors.tests("leases.json", vector -> run(vector, false));
  }

  @TestFactory
  Stream<DynamicTest> batchedLeases() {
    return Vectors.tests(
        "leases.json",
        " (batching)",
        vector -> !vector.path("options").path("protocol").asText().equals("envoy"),
        vector -> run(vector, true));
  }

  private static void run(JsonNode vector, boolean batching) throws Exception {
    Properties before = (Properties) System.getProperties().clone();
    if (vector.path("proxy").asBoolean()) {
      nameProxy();
    }
    try {
      runSteps(vector, batching);
    } finally {
      for (JsonNode step : vector.path("steps")) {
        if (step.path("do").asText().equals("stop")) {
          server.close();
          server = new ScriptedServer();
        }
      }
      System.setProperties(before);
    }
  }

  @Test
  void aProxyOfTheEnvironmentIsAnOption() {
    Properties before = (Properties) System.getProperties().clone();
    nameProxy();
    try (TollgateClient client =
        TollgateClient.builder()
            .addresses(server.address())
            .domain("vectors")
            .deadline(Duration.ofSeconds(2))
            .httpProxy(true)
            .build()) {
      Decision decision = client.check(Descriptor.of("user", "ann"));
      assertEquals(Status.Code.UNAVAILABLE, decision.error().orElseThrow().code());
    } finally {
      System.setProperties(before);
    }
  }

  /** Names a proxy that takes no connection in the system properties. */
  private static void nameProxy() {
    for (String scheme : List.of("http", "https")) {
      System.setProperty(scheme + ".proxyHost", "127.0.0.1");
      System.setProperty(scheme + ".proxyPort", "1");
    }
    System.setProperty("http.nonProxyHosts", "");
  }

  private static void runSteps(JsonNode vector, boolean batching) throws Exception {
    AtomicLong clock = new AtomicLong(1_000_000_000_000L);
    if (vector.path("invalid").asBoolean()) {
      assertThrows(
          IllegalArgumentException.class,
          () -> client(vector.path("options"), server.address(), clock, batching));
      return;
    }
    boolean http1 = vector.path("listener").asText().equals("http1");
    boolean reachable = !http1 && !vector.has("address");
    try (ServerSocket listener = http1 ? startHttp1() : null;
        Warnings warnings = new Warnings();
        TollgateClient client =
            client(
                vector.path("options"),
                http1
                    ? "127.0.0.1:" + listener.getLocalPort()
                    : vector.path("address").asText(server.address()),
                clock,
                batching)) {
      if (reachable) {
        assertTrue(client.ready(Duration.ofSeconds(10)));
      }
      Runner runner =
          new Runner(client, clock, warnings, vector.path("name").asText().startsWith("leases:"));
      for (JsonNode step : vector.path("steps")) {
        int repeat = step.path("repeat").asInt(1);
        for (int round = 0; round < repeat; round++) {
          runner.step(step);
          List<ScriptedServer.Received> calls = server.calls();
          // A check that has waited for a lease has less time than the checks of the stream.
          boolean waited = calls.stream().anyMatch(call -> call.method().equals("Lease"));
          for (ScriptedServer.Received received : calls) {
            assertEquals(
                batching && !waited && received.method().equals("Check"),
                received.streamed(),
                "streamed");
          }
        }
      }
    }
  }

  /** Starts a listener that answers as a server of HTTP/1 answers HTTP/2. */
  private static ServerSocket startHttp1() throws IOException {
    ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    Thread answering =
        new Thread(
            () -> {
              while (true) {
                try (Socket connection = listener.accept()) {
                  connection
                      .getOutputStream()
                      .write(
                          "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
                              .getBytes(StandardCharsets.US_ASCII));
                } catch (IOException ended) {
                  if (listener.isClosed()) {
                    return;
                  }
                }
              }
            });
    answering.setDaemon(true);
    answering.start();
    return listener;
  }

  /** Keeps what the clients log. */
  private static final class Warnings extends Handler implements AutoCloseable {
    private static final Pattern FORM =
        Pattern.compile(
            "no answer from tollgate: addresses=(\\S+) on_error=(\\S+) decisions=(\\d+) "
                + "error=((\\w+).*)");
    private final Logger logger = Logger.getLogger("io.github.tollgatelimits");
    private final List<LogRecord> records = new CopyOnWriteArrayList<>();

    Warnings() {
      logger.setLevel(Level.ALL);
      logger.addHandler(this);
    }

    /** Returns the fields of the one warning since the last call, or null. */
    JsonNode take() {
      assertTrue(ForkJoinPool.commonPool().awaitQuiescence(10, TimeUnit.SECONDS));
      List<LogRecord> taken = List.copyOf(records);
      records.clear();
      if (taken.isEmpty()) {
        return JSON.nullNode();
      }
      assertEquals(1, taken.size(), "warnings");
      assertEquals(Level.WARNING, taken.get(0).getLevel());
      Matcher found = FORM.matcher(taken.get(0).getMessage());
      assertTrue(found.matches(), taken.get(0).getMessage());
      return JSON.objectNode()
          .put("addresses", found.group(1))
          .put("on_error", found.group(2))
          .put("decisions", Long.parseLong(found.group(3)))
          .put("text", found.group(4))
          .put("error", found.group(5));
    }

    @Override
    public void publish(LogRecord entry) {
      records.add(entry);
    }

    @Override
    public void flush() {}

    @Override
    public void close() {
      logger.removeHandler(this);
    }
  }

  private static TollgateClient client(
      JsonNode options, String address, AtomicLong clock, boolean batching) {
    TollgateClient.Builder builder =
        TollgateClient.builder()
            .addresses(address)
            .domain("vectors")
            .batching(batching)
            .withoutLeaseRounds()
            .deadline(Duration.ofMillis(options.path("deadline_ms").asLong(2_000)))
            .clock(clock::get);
    options
        .fields()
        .forEachRemaining(
            option -> {
              JsonNode value = option.getValue();
              switch (option.getKey()) {
                case "deadline_ms" -> {}
                case "unknown_domain" -> builder.unknownDomain(named(UnknownDomain.class, value));
                case "on_error" -> builder.onError(named(OnError.class, value));
                case "protocol" -> builder.protocol(named(Protocol.class, value));
                case "leases" -> builder.leases(value.asText().equals("on"));
                case "denial_cache_entries" -> builder.denialCacheEntries(value.asInt());
                case "local" ->
                    builder.local(value.path("per_second").asLong(), value.path("burst").asLong());
                case "breaker" ->
                    builder.breaker(
                        value.path("failures").asInt(),
                        Duration.ofMillis(value.path("open_ms").asLong()));
                default -> throw new IllegalArgumentException("option " + option.getKey());
              }
            });
    return builder.build();
  }

  private static <E extends Enum<E>> E named(Class<E> type, JsonNode value) {
    return Enum.valueOf(type, value.asText().toUpperCase(Locale.ROOT));
  }

  private static final class Runner {
    private final TollgateClient client;
    private final AtomicLong clock;
    private final Warnings warnings;
    private final boolean comparesPartsOfLimits;
    private Reservation reservation;

    Runner(
        TollgateClient client, AtomicLong clock, Warnings warnings, boolean comparesPartsOfLimits) {
      this.comparesPartsOfLimits = comparesPartsOfLimits;
      this.client = client;
      this.clock = clock;
      this.warnings = warnings;
    }

    void step(JsonNode step) throws Exception {
      if (step.path("do").asText().equals("advance")) {
        clock.addAndGet(step.path("ms").asLong() * 1_000_000L);
        return;
      }
      if (step.path("do").asText().equals("stop")) {
        server.close();
        return;
      }
      script(step.path("server"), clock);
      JsonNode expect = step.path("expect");
      ObjectNode actual = JSON.objectNode();
      try {
        call(step, actual);
      } catch (TollgateException error) {
        actual.put("fails", error.breakerOpen() ? "breaker" : error.code().name());
      } catch (IllegalArgumentException error) {
        actual.put("fails", "argument");
        actual.put("message", error.getMessage());
      }
      client.awaitLeases();
      JsonNode warning = warnings.take();
      if (!expect.has("fails")) {
        assertNull(actual.get("fails"), () -> "fails with " + actual.get("fails"));
      }
      expect
          .fields()
          .forEachRemaining(
              field -> {
                String name = field.getKey();
                if (name.equals("calls")) {
                  assertEquals(field.getValue().asInt(), server.calls().size(), "calls");
                } else if (name.equals("request")) {
                  compareRequest(field.getValue());
                } else if (name.equals("warning")) {
                  compareWarning(field.getValue(), warning);
                } else {
                  JsonNode value = actual.has(name) ? actual.get(name) : JSON.nullNode();
                  if (comparesPartsOfLimits
                      && name.equals("limits")
                      && value.size() == field.getValue().size()) {
                    value = onlyExpected(field.getValue(), value);
                  }
                  assertEquals(normal(field.getValue()), normal(value), name);
                }
              });
    }

    /** Returns the limits without fields that are not compared. */
    private static JsonNode onlyExpected(JsonNode expect, JsonNode actual) {
      ArrayNode limits = JSON.arrayNode();
      for (int at = 0; at < actual.size(); at++) {
        List<String> names = new ArrayList<>();
        expect.get(at).fieldNames().forEachRemaining(names::add);
        limits.add(((ObjectNode) actual.get(at)).deepCopy().retain(names));
      }
      return limits;
    }

    private void compareWarning(JsonNode expect, JsonNode actual) {
      assertEquals(expect.isNull(), actual.isNull(), () -> "warning " + actual);
      expect
          .fields()
          .forEachRemaining(
              field ->
                  assertEquals(
                      field.getValue().asText(),
                      actual.path(field.getKey()).asText(),
                      "warning." + field.getKey()));
    }

    private void call(JsonNode step, ObjectNode actual) throws InterruptedException {
      switch (step.path("do").asText()) {
        case "ready" ->
            actual.put("ready", client.ready(Duration.ofMillis(step.path("ms").asLong())));
        case "check" -> describe(client.check(checkRequest(step)), actual);
        case "peek" -> describe(client.peek(checkRequest(step)), actual);
        case "reserve" -> {
          reservation = client.reserve(reserveRequest(step));
          describe(reservation.decision(), actual);
          actual.put("reservation", reservation.id().orElse(null));
          actual.put("hits", reservation.hits());
        }
        case "commit" -> {
          JsonNode hits = step.path("hits");
          if (hits.isArray()) {
            long[] each =
                StreamSupport.stream(hits.spliterator(), false)
                    .mapToLong(JsonNode::asLong)
                    .toArray();
            describe(reservation.commitEach(each), actual);
          } else {
            describe(reservation.commit(hits.asLong()), actual);
          }
        }
        case "release" -> describe(reservation.release(), actual);
        case "extend" ->
            describe(
                reservation.extend(Duration.ofMillis(step.path("expires_ms").asLong())), actual);
        case "end_scope" -> reservation.close();
        case "tick" -> client.runLeaseRound();
        case "close" -> client.close();
        default -> throw new IllegalStateException("step " + step.path("do"));
      }
    }
  }

  private static CheckRequest checkRequest(JsonNode step) {
    CheckRequest.Builder request = CheckRequest.builder().descriptors(descriptors(step));
    if (step.has("hits")) {
      request.hits(step.path("hits").asLong());
    }
    return request
        .dryRun(step.path("dry_run").asBoolean())
        .leases(step.path("middleware").asBoolean())
        .build();
  }

  private static ReserveRequest reserveRequest(JsonNode step) {
    ReserveRequest.Builder request = ReserveRequest.builder().descriptors(descriptors(step));
    if (step.has("hits")) {
      request.hits(step.path("hits").asLong());
    }
    if (step.has("reservation")) {
      request.id(step.path("reservation").asText());
    }
    if (step.has("expires_ms")) {
      request.expires(Duration.ofMillis(step.path("expires_ms").asLong()));
    }
    if (step.has("on_expiry")) {
      request.onExpiry(named(OnExpiry.class, step.path("on_expiry")));
    }
    return request.build();
  }

  private static List<Descriptor> descriptors(JsonNode step) {
    List<Descriptor> descriptors = new ArrayList<>();
    for (JsonNode node : step.path("descriptors")) {
      List<Descriptor.Entry> entries = new ArrayList<>();
      for (JsonNode entry : node.path("entries")) {
        entries.add(new Descriptor.Entry(entry.get(0).asText(), entry.get(1).asText()));
      }
      Descriptor descriptor = Descriptor.of(entries.toArray(Descriptor.Entry[]::new));
      descriptors.add(
          node.has("hits") ? descriptor.withHits(node.path("hits").asLong()) : descriptor);
    }
    return descriptors;
  }

  private static void describe(Decision decision, ObjectNode actual) {
    actual.put("allowed", decision.allowed());
    actual.put("source", decision.source().name().toLowerCase(Locale.ROOT));
    decision.remaining().ifPresent(remaining -> actual.put("remaining", remaining));
    putMillis(actual, "reset_ms", decision.reset());
    putMillis(actual, "retry_after_ms", decision.retryAfter());
    decision
        .noLimit()
        .ifPresent(reason -> actual.put("no_limit", reason.name().toLowerCase(Locale.ROOT)));
    ArrayNode limits = actual.putArray("limits");
    for (Limit limit : decision.limits()) {
      ObjectNode node = limits.addObject();
      node.put("descriptor", limit.descriptor());
      node.put("name", limit.name());
      node.put("rule", limit.rule());
      node.put("requests_per_unit", limit.requestsPerUnit());
      node.put("window", limit.window());
      node.put("allowed", limit.allowed());
      node.put("remaining", limit.remaining());
      putMillis(node, "reset_ms", limit.reset());
      putMillis(node, "retry_after_ms", limit.retryAfter());
    }
    decision
        .error()
        .ifPresent(
            error -> actual.put("error", error.breakerOpen() ? "breaker" : error.code().name()));
    assertTrue(!decision.elapsed().isNegative(), "elapsed");
  }

  private static void describe(Settlement settlement, ObjectNode actual) {
    actual.put("reserved", settlement.reserved());
    actual.put("committed", settlement.committed());
    actual.put("repeated", settlement.repeated());
  }

  private static void putMillis(ObjectNode node, String name, Optional<Duration> time) {
    if (time.isEmpty()) {
      node.putNull(name);
    } else {
      assertEquals(0, time.get().toNanos() % 1_000_000, name + " has parts of a millisecond");
      node.put(name, time.get().toMillis());
    }
  }

  /** Numbers of different widths are unequal nodes. Fields that are null are absent. */
  private static Object normal(JsonNode node) {
    if (node.isNumber()) {
      return node.asLong();
    } else if (node.isArray()) {
      return StreamSupport.stream(node.spliterator(), false)
          .map(SequenceVectorsTest::normal)
          .toList();
    } else if (node.isObject()) {
      var fields = new java.util.TreeMap<String, Object>();
      node.fields()
          .forEachRemaining(
              field -> {
                if (!field.getValue().isNull()) {
                  fields.put(field.getKey(), normal(field.getValue()));
                }
              });
      return fields;
    }
    return node.isNull() ? "null" : node.asText();
  }

  private static void script(JsonNode answers, AtomicLong clock) {
    Deque<JsonNode> left = new ArrayDeque<>();
    if (answers.isArray()) {
      answers.forEach(left::add);
    } else if (!answers.isMissingNode()) {
      left.add(answers);
    }
    boolean one = !answers.isArray();
    server.answer(
        received -> {
          synchronized (left) {
            JsonNode next = one ? left.peek() : left.poll();
            if (next == null) {
              return Status.INTERNAL.withDescription("the step has no answer for this call");
            }
            clock.addAndGet(next.path("advance_ms").asLong() * 1_000_000L);
            return next.has("batch")
                ? batch((BatchRequest) received.request(), next.path("batch"))
                : answer(next);
          }
        });
  }

  /** Answers each lease of a batch alike, and each return by all of its hits. */
  private static BatchResponse batch(BatchRequest request, JsonNode leases) {
    BatchResponse.Builder batch = BatchResponse.newBuilder();
    for (Call call : request.getCallsList()) {
      Answer.Builder answer = batch.addAnswersBuilder();
      if (call.hasGiveBack()) {
        answer.getGiveBackBuilder().setReturned(call.getGiveBack().getUnused());
      } else if (answer(leases) instanceof Status status) {
        answer
            .getFailureBuilder()
            .setCode(status.getCode().value())
            .setMessage(status.getDescription());
      } else {
        answer.setLease((LeaseResponse) answer(leases));
      }
    }
    return batch.build();
  }

  private static Object answer(JsonNode answer) {
    if (answer.has("error")) {
      return Status.Code.valueOf(answer.path("error").asText())
          .toStatus()
          .withDescription(answer.path("message").asText("vector"));
    } else if (answer.has("hang")) {
      return null;
    } else if (answer.has("check")) {
      return parse(answer.path("check"), CheckResponse.newBuilder());
    } else if (answer.has("reserve")) {
      return parse(answer.path("reserve"), ReserveResponse.newBuilder());
    } else if (answer.has("settle")) {
      return parse(answer.path("settle"), SettleResponse.newBuilder());
    } else if (answer.has("lease")) {
      return parse(answer.path("lease"), LeaseResponse.newBuilder());
    } else if (answer.has("envoy")) {
      return parse(answer.path("envoy"), RateLimitResponse.newBuilder());
    }
    throw new IllegalArgumentException("answer " + answer);
  }

  private static Message parse(JsonNode json, Message.Builder message) {
    try {
      JsonFormat.parser().merge(protoJson(json).toString(), message);
      return message.build();
    } catch (IOException error) {
      throw new IllegalArgumentException(json.toString(), error);
    }
  }

  /** Writes times as protobuf's JSON does, and the field that the build renames. */
  private static JsonNode protoJson(JsonNode json) {
    if (json.isArray()) {
      ArrayNode copy = JSON.arrayNode();
      json.forEach(element -> copy.add(protoJson(element)));
      return copy;
    } else if (!json.isObject()) {
      return json;
    }
    ObjectNode copy = JSON.objectNode();
    json.fields()
        .forEachRemaining(
            field -> {
              String name = field.getKey();
              JsonNode value = field.getValue();
              if (name.endsWith("_ms")) {
                long millis = value.asLong();
                copy.put(
                    name.substring(0, name.length() - 3),
                    String.format(Locale.ROOT, "%d.%03ds", millis / 1_000, millis % 1_000));
              } else {
                copy.set(name.equals("descriptor") ? "descriptor_index" : name, protoJson(value));
              }
            });
    return copy;
  }

  private static void compareRequest(JsonNode expect) {
    List<ScriptedServer.Received> calls = server.calls();
    assertTrue(!calls.isEmpty(), "no call has arrived");
    ScriptedServer.Received received = calls.get(calls.size() - 1);
    ObjectNode actual = describe(received.method(), received.request());
    expect
        .fields()
        .forEachRemaining(
            field -> {
              JsonNode value =
                  actual.has(field.getKey()) ? actual.get(field.getKey()) : JSON.nullNode();
              if (field.getKey().equals("calls")) {
                assertEquals(unordered(field.getValue()), unordered(value), "request.calls");
              } else {
                assertEquals(normal(field.getValue()), normal(value), "request." + field.getKey());
              }
            });
  }

  private static List<String> unordered(JsonNode calls) {
    return StreamSupport.stream(calls.spliterator(), false)
        .map(call -> normal(call).toString())
        .sorted()
        .toList();
  }

  /** Returns a request in the fields of the vectors. */
  private static ObjectNode describe(String method, Message request) {
    ObjectNode actual = JSON.objectNode();
    actual.put("method", method);
    if (request instanceof BatchRequest batch) {
      ArrayNode calls = actual.putArray("calls");
      for (Call call : batch.getCallsList()) {
        ReturnRequest back = call.getGiveBack();
        calls.add(
            call.hasLease()
                ? describe("Lease", call.getLease())
                : describe("Return", back).put("unused", back.getUnused()));
      }
      return actual;
    }
    boolean envoy = request instanceof RateLimitRequest;
    ObjectNode sent;
    try {
      sent =
          (ObjectNode)
              new com.fasterxml.jackson.databind.ObjectMapper()
                  .readTree(JsonFormat.printer().preservingProtoFieldNames().print(request));
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
    actual.set("domain", sent.path("domain"));
    ArrayNode descriptors = actual.putArray("descriptors");
    for (JsonNode descriptor : sent.path("descriptors")) {
      ObjectNode copy = descriptors.addObject();
      ArrayNode entries = copy.putArray("entries");
      for (JsonNode entry : descriptor.path("entries")) {
        entries.addArray().add(entry.path("key").asText()).add(entry.path("value").asText());
      }
      String hits = envoy ? "hits_addend" : "hits";
      if (descriptor.has(hits)) {
        copy.put("hits", descriptor.path(hits).asLong());
      }
    }
    String hits = envoy ? "hits_addend" : "hits";
    if (sent.has(hits)) {
      actual.put("hits", sent.path(hits).asLong());
    }
    for (String field : List.of("reservation", "on_expiry", "lease")) {
      if (sent.has(field)) {
        actual.set(field, sent.path(field));
      }
    }
    for (String field : List.of("admitted", "refused")) {
      if (sent.has(field)) {
        actual.put(field, sent.path(field).asLong());
      }
    }
    if (sent.has("expires")) {
      String expires = sent.path("expires").asText();
      double seconds = Double.parseDouble(expires.substring(0, expires.length() - 1));
      actual.put("expires_ms", Math.round(seconds * 1_000));
    }
    return actual;
  }
}
