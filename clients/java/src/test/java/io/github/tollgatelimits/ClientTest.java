package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Duration;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.Verdict;
import io.grpc.Status;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The client with a scripted server. */
class ClientTest {
  private static final Descriptor USER = Descriptor.of("user", "ann");
  private static final CheckResponse OK =
      CheckResponse.newBuilder().setVerdict(Verdict.VERDICT_OK).build();
  private static final CheckResponse REFUSED =
      CheckResponse.newBuilder()
          .setVerdict(Verdict.VERDICT_OVER_LIMIT)
          .setRetryAfter(Duration.newBuilder().setSeconds(60))
          .build();

  private final AtomicLong clock = new AtomicLong();
  private ScriptedServer server;

  @BeforeEach
  void start() throws Exception {
    server = new ScriptedServer();
  }

  @AfterEach
  void stop() {
    server.close();
  }

  private TollgateClient.Builder client() {
    return TollgateClient.builder()
        .addresses(server.address())
        .domain("edge")
        .deadline(java.time.Duration.ofSeconds(5))
        .clock(clock::get);
  }

  @Test
  void aThousandRememberedRefusalsMakeOneCall() {
    server.answer(received -> REFUSED);
    try (TollgateClient client = client().build()) {
      for (int call = 0; call < 1_000; call++) {
        assertFalse(client.check(USER).allowed());
      }
      assertEquals(1, server.calls().size());
    }
  }

  @Test
  void aNameThatIsNoHostOfAUriIsResolved() {
    // Resolves to 127.0.0.1. The URI class has no host for it, as for a name with an underscore.
    String address = server.address().replaceFirst("^[^:]*", "127.1");
    server.answer(received -> OK);
    try (TollgateClient client = client().addresses(address).build()) {
      assertEquals(Source.SERVER, client.check(USER).source());
    }
    try (TollgateClient client = client().addresses("no_such_host.invalid:8081").build()) {
      TollgateException error = client.check(USER).error().orElseThrow();
      assertEquals(Status.Code.UNAVAILABLE, error.code());
    }
  }

  @Test
  void readyConnectsAgainWithoutTheBackoff() throws Exception {
    try (ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        TollgateClient client =
            client().addresses("127.0.0.1:" + listener.getLocalPort()).build()) {
      // With gRPC's backoff, ten attempts take more than a minute.
      CompletableFuture<Boolean> ready =
          CompletableFuture.supplyAsync(
              () -> {
                try {
                  return client.ready(java.time.Duration.ofSeconds(30));
                } catch (InterruptedException interrupted) {
                  throw new IllegalStateException(interrupted);
                }
              });
      for (int attempt = 0; attempt < 10; attempt++) {
        listener.accept().close();
        assertFalse(ready.isDone(), "attempt " + attempt);
      }
      client.close();
      assertFalse(ready.get());
    }
  }

  @Test
  void theDenialCacheIsBounded() {
    DenialCache cache = new DenialCache(1_000, clock::get);
    Decision refused = TollgateProtocol.decision(REFUSED);
    for (int user = 0; user < 100_000; user++) {
      List<Descriptor> descriptors = List.of(Descriptor.of("user", Integer.toString(user)));
      cache.remember(DescriptorKey.of("edge", descriptors), descriptors, List.of(1L), refused);
      assertTrue(cache.size() <= 1_000);
    }
    assertEquals(1_000, cache.size());
  }

  @Test
  void theCacheOfAClientKeepsItsBound() {
    server.answer(received -> REFUSED);
    try (TollgateClient client = client().denialCacheEntries(100).build()) {
      for (int user = 0; user < 1_000; user++) {
        client.check(Descriptor.of("user", Integer.toString(user)));
      }
      assertEquals(100, client.denialCacheSize());
    }
  }

  @Test
  void localBucketsAreBounded() {
    LocalBuckets buckets = new LocalBuckets(1, 1, clock::get);
    for (int user = 0; user < 30_000; user++) {
      buckets.decide("user " + user, 1, TollgateException.breakerIsOpen());
    }
    assertEquals(10_000, buckets.size());
  }

  private void openBreaker(TollgateClient client) {
    server.answer(received -> Status.INTERNAL);
    for (int call = 0; call < 5; call++) {
      client.check(USER);
    }
    assertTrue(client.check(USER).error().orElseThrow().breakerOpen());
    clock.addAndGet(1_000_000_000L);
  }

  @Test
  void ofFiftyCallersOneProbesAHalfOpenBreaker() throws Exception {
    try (TollgateClient client = client().build()) {
      openBreaker(client);
      server.answer(received -> null);
      List<CompletableFuture<Decision>> answers = new ArrayList<>();
      List<Thread> callers = new ArrayList<>();
      for (int caller = 0; caller < 50; caller++) {
        Thread thread =
            new Thread(
                () -> {
                  CompletableFuture<Decision> answer = client.checkAsync(CheckRequest.of(USER));
                  synchronized (answers) {
                    answers.add(answer);
                  }
                });
        callers.add(thread);
        thread.start();
      }
      for (Thread caller : callers) {
        caller.join();
      }
      long waiting = answers.stream().filter(answer -> !answer.isDone()).count();
      assertEquals(1, waiting, "calls that wait for the server");
      awaitCalls(1);
      Thread.sleep(100);
      assertEquals(1, server.calls().size());
    }
  }

  @Test
  void aCancelledProbeLetsTheNextCallThrough() throws Exception {
    try (TollgateClient client = client().build()) {
      openBreaker(client);
      server.answer(received -> null);
      CompletableFuture<Decision> probe = client.checkAsync(CheckRequest.of(USER));
      awaitCalls(1);
      assertTrue(client.check(USER).error().orElseThrow().breakerOpen());
      probe.cancel(true);
      assertThrows(CancellationException.class, probe::join);

      server.answer(received -> OK);
      assertEquals(Source.SERVER, client.check(USER).source());
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void anInterruptIsACancellation(boolean batching) throws Exception {
    server.answer(received -> null);
    try (TollgateClient client = client().batching(batching).build()) {
      AtomicReference<Object> outcome = new AtomicReference<>();
      Thread caller =
          new Thread(
              () -> {
                try {
                  outcome.set(client.check(USER));
                } catch (CancellationException error) {
                  outcome.set(Thread.currentThread().isInterrupted() ? "flag kept" : "flag lost");
                }
              });
      caller.start();
      awaitCalls(1);
      caller.interrupt();
      caller.join(5_000);
      assertEquals("flag kept", outcome.get());
    }
  }

  private void awaitCalls(int calls) throws InterruptedException {
    for (int round = 0; round < 500 && server.calls().size() < calls; round++) {
      Thread.sleep(10);
    }
    assertEquals(calls, server.calls().size());
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void closeEndsTheThreads(boolean batching) throws Exception {
    server.answer(received -> OK);
    List<Thread> before = threads();
    TollgateClient client =
        client().addresses(server.address(), "localhost:1").batching(batching).build();
    client.check(USER);
    assertTrue(
        threads().stream().anyMatch(thread -> thread.getName().startsWith("tollgate-client")));
    client.close();
    client.close();
    List<Thread> left = List.of();
    for (int round = 0; round < 100; round++) {
      left =
          threads().stream()
              .filter(thread -> !before.contains(thread))
              // Threads of the scripted server begin with its first call.
              .filter(thread -> !thread.getName().startsWith("grpc-default"))
              .filter(thread -> !thread.getName().startsWith("grpc-nio-worker"))
              .toList();
      if (left.isEmpty()) {
        break;
      }
      Thread.sleep(50);
    }
    assertEquals(
        List.of(), left.stream().map(Thread::getName).collect(Collectors.toList()), "threads");
    assertThrows(IllegalStateException.class, () -> client.check(USER));
    assertThrows(IllegalStateException.class, () -> client.peek(USER));
    assertThrows(IllegalStateException.class, () -> client.reserve(1, USER));
  }

  @Test
  void batchingChecksItsProtocol() {
    assertThrows(
        IllegalArgumentException.class,
        () -> client().batching(true).protocol(Protocol.ENVOY).build());
  }

  private static List<Thread> threads() {
    return List.copyOf(Thread.getAllStackTraces().keySet());
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void closeEndsACallInFlight(boolean batching) throws Exception {
    server.answer(received -> null);
    TollgateClient client = client().onError(OnError.DENY).batching(batching).build();
    CompletableFuture<Decision> waiting = client.checkAsync(CheckRequest.of(USER));
    awaitCalls(1);
    List<String> warnings = new CopyOnWriteArrayList<>();
    try (AutoCloseable logging = logging(record -> warnings.add(record.getMessage()))) {
      client.close();
      assertEquals(Source.DENY, waiting.get().source());
    }
    assertEquals(List.of(), warnings);
  }

  @Test
  void aLoggerThatFailsDoesNotFailACheck() throws Exception {
    server.answer(received -> Status.INTERNAL);
    AtomicLong logged = new AtomicLong();
    Consumer<LogRecord> failing =
        record -> {
          logged.incrementAndGet();
          throw new IllegalStateException("the disk is full");
        };
    try (TollgateClient client = client().build();
        AutoCloseable logging = logging(failing)) {
      assertEquals(Source.ALLOW, client.check(USER).source());
      assertTrue(ForkJoinPool.commonPool().awaitQuiescence(10, TimeUnit.SECONDS));
    }
    assertEquals(1, logged.get());
  }

  /** Calls a function with what the client logs. */
  private static AutoCloseable logging(Consumer<LogRecord> use) {
    Logger logger = Logger.getLogger("io.github.tollgatelimits");
    Handler handler =
        new Handler() {
          @Override
          public void publish(LogRecord record) {
            use.accept(record);
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        };
    logger.addHandler(handler);
    return () -> logger.removeHandler(handler);
  }

  @Test
  void optionsAreChecked() {
    assertThrows(IllegalArgumentException.class, () -> TollgateClient.builder().build());
    assertThrows(IllegalArgumentException.class, () -> client().addresses("localhost"));
    assertThrows(IllegalArgumentException.class, () -> client().addresses(List.of()));
    assertThrows(IllegalArgumentException.class, () -> client().addresses("http://a:1"));
    assertThrows(IllegalArgumentException.class, () -> client().deadline(java.time.Duration.ZERO));
    assertThrows(IllegalArgumentException.class, () -> client().local(0, 1));
    assertThrows(IllegalArgumentException.class, () -> client().denialCacheEntries(-1));
    assertThrows(IllegalArgumentException.class, () -> USER.withHits(-1));
    assertThrows(IllegalArgumentException.class, () -> CheckRequest.builder().domain("").build());
    assertThrows(
        IllegalArgumentException.class,
        () -> ReserveRequest.builder().expires(java.time.Duration.ofDays(2)).build());
  }
}
