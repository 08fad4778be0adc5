package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Duration;
import com.google.protobuf.Message;
import io.github.tollgatelimits.internal.v1.BatchRequest;
import io.github.tollgatelimits.internal.v1.BatchResponse;
import io.github.tollgatelimits.internal.v1.Call;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.LeaseRequest;
import io.github.tollgatelimits.internal.v1.LeaseResponse;
import io.github.tollgatelimits.internal.v1.Verdict;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Leases with a scripted server: what the vectors do not have. */
class LeasesTest {
  private static final Descriptor USER = Descriptor.of("user", "ann");
  private final AtomicLong clock = new AtomicLong();

  /** Hits of the limit that are left. */
  private final AtomicLong left = new AtomicLong(Long.MAX_VALUE);

  /** What each batch of returns gave back. */
  private final CompletableFuture<Long> returned = new CompletableFuture<>();

  private ScriptedServer server;

  @BeforeEach
  void start() throws Exception {
    server = new ScriptedServer();
    server.answer(this::answer);
  }

  @AfterEach
  void stop() {
    server.close();
  }

  private TollgateClient.Builder client() {
    return TollgateClient.builder()
        .addresses(server.address())
        .domain("edge")
        .deadline(java.time.Duration.ofSeconds(30))
        .leases(true);
  }

  /** Answers as a server with one limit does. */
  private Message answer(ScriptedServer.Received received) {
    if (received.request() instanceof BatchRequest batch) {
      long unused = 0;
      for (Call call : batch.getCallsList()) {
        unused += call.getGiveBack().getUnused();
      }
      left.addAndGet(unused);
      returned.complete(unused);
      return BatchResponse.getDefaultInstance();
    }
    if (received.request() instanceof LeaseRequest lease) {
      long hits = take(lease.getHits());
      return LeaseResponse.newBuilder()
          .setVerdict(verdict(hits))
          .setLease("lease")
          .setGranted(hits)
          .setExpires(Duration.newBuilder().setSeconds(2))
          .build();
    }
    return CheckResponse.newBuilder().setVerdict(verdict(take(1))).build();
  }

  private long take(long wanted) {
    return Math.min(wanted, left.getAndUpdate(hits -> hits - Math.min(hits, wanted)));
  }

  private static Verdict verdict(long hits) {
    return hits > 0 ? Verdict.VERDICT_OK : Verdict.VERDICT_OVER_LIMIT;
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void ofManyThreadsTheLimitIsAdmitted(boolean batching) throws Exception {
    left.set(1_000);
    ExecutorService callers = Executors.newFixedThreadPool(8);
    try (TollgateClient client = client().clock(clock::get).batching(batching).build()) {
      List<Future<Long>> counts = new ArrayList<>();
      for (int caller = 0; caller < 8; caller++) {
        counts.add(
            callers.submit(
                () -> {
                  long allowed = 0;
                  for (int check = 0; check < 500; check++) {
                    allowed += client.check(USER).allowed() ? 1 : 0;
                  }
                  return allowed;
                }));
      }
      long allowed = 0;
      for (Future<Long> count : counts) {
        allowed += count.get();
      }
      // The last lease may have come too late for a check.
      client.close();
      assertEquals(1_000, allowed + left.get());
      assertTrue(server.calls().size() < 1_000, "calls " + server.calls().size());
    } finally {
      callers.shutdown();
    }
  }

  @Test
  void checksOfAKeyWaitForOneCall() throws Exception {
    CompletableFuture<Object> lease = new CompletableFuture<>();
    server.answer(
        received -> received.request() instanceof LeaseRequest ? lease : answer(received));
    try (TollgateClient client = client().clock(clock::get).build()) {
      assertEquals(Source.SERVER, client.check(USER).source());
      List<CompletableFuture<Decision>> waiting = new ArrayList<>();
      for (int check = 0; check < 20; check++) {
        waiting.add(client.checkAsync(CheckRequest.of(USER)));
      }
      waiting.get(0).cancel(true);
      left.set(16);
      lease.complete(answer(new ScriptedServer.Received("Lease", leaseOf(16), false)));
      List<Source> sources = new ArrayList<>();
      for (CompletableFuture<Decision> each : waiting.subList(1, 20)) {
        Decision decision = each.get(30, TimeUnit.SECONDS);
        assertEquals(decision.source() == Source.LEASE, decision.allowed());
        sources.add(decision.source());
      }
      assertEquals(16, sources.stream().filter(Source.LEASE::equals).count(), sources.toString());
      assertEquals(
          1, server.calls().stream().filter(call -> call.method().equals("Lease")).count());
    }
  }

  private static LeaseRequest leaseOf(long hits) {
    return LeaseRequest.newBuilder().setHits(hits).build();
  }

  @Test
  void theTimerGivesBackTheHitsOfAnIdleKey() throws Exception {
    try (TollgateClient client = client().clock(clock::get).build()) {
      assertEquals(Source.SERVER, client.check(USER).source());
      assertEquals(Source.LEASE, client.check(USER).source());
      clock.addAndGet(1_000_000_000L);
      assertEquals(31, returned.get(30, TimeUnit.SECONDS));
    }
  }

  @Test
  void theEndOfTheProcessGivesBackAllHits() throws Exception {
    Process program =
        new ProcessBuilder(
                System.getProperty("java.home") + "/bin/java",
                "-cp",
                System.getProperty("java.class.path"),
                Program.class.getName(),
                server.address())
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.INHERIT)
            .start();
    assertEquals(0, program.waitFor());
    assertTrue(returned.isDone(), "nothing was returned");
    assertEquals(31, returned.get());
  }

  /** A program that does not close its client. */
  static final class Program {
    public static void main(String[] args) {
      TollgateClient client =
          TollgateClient.builder()
              .addresses(args[0])
              .domain("edge")
              .deadline(java.time.Duration.ofSeconds(30))
              .clock(() -> 0)
              .leases(true)
              .build();
      assertEquals(Source.SERVER, client.check(USER).source());
      client.check(USER);
    }
  }

  @Test
  void aCheckDoesNotWaitForARound() {
    try (TollgateClient client = client().clock(clock::get).withoutLeaseRounds().build()) {
      assertEquals(Source.SERVER, client.check(USER).source());
      assertEquals(Source.LEASE, client.check(USER).source());
      for (int check = 0; check < 2; check++) {
        clock.addAndGet(750_000_000L);
        assertEquals(Source.LEASE, client.check(USER).source());
      }
      CompletableFuture<Object> batch = new CompletableFuture<>();
      CompletableFuture<Void> arrived = new CompletableFuture<>();
      server.answer(
          received -> {
            if (received.request() instanceof BatchRequest) {
              arrived.complete(null);
              return batch;
            }
            return answer(received);
          });
      CompletableFuture<Void> round = CompletableFuture.runAsync(client::runLeaseRound);
      arrived.join();
      for (int hit = 3; hit < 32; hit++) {
        assertEquals(Source.LEASE, client.check(USER).source());
      }
      assertEquals(Source.SERVER, client.check(USER).source());
      batch.complete(BatchResponse.getDefaultInstance());
      round.join();
    }
  }

  @Test
  void theTableIsBounded() {
    Leases leases =
        new Leases(
            clock::get,
            new Leases.Calls() {
              @Override
              public CompletableFuture<Leases.Granted> lease(LeaseRequest request) {
                throw new IllegalStateException("no call is expected");
              }

              @Override
              public CompletableFuture<BatchResponse> batch(
                  BatchRequest request, boolean hasLeases) {
                throw new IllegalStateException("no call is expected");
              }

              @Override
              public boolean mayRenew() {
                return true;
              }

              @Override
              public void scheduleRound() {}
            });
    for (int user = 0; user < 30_000; user++) {
      leases.decide("user " + user, "edge", List.of(USER), 1);
    }
    leases.decide("large", "edge", List.of(Descriptor.of("user", "x".repeat(1_024))), 1);
    assertEquals(10_000, leases.size());
    clock.addAndGet(1_000_000_000L);
    leases.round();
    assertEquals(0, leases.size());
    leases.decide("large", "edge", List.of(Descriptor.of("user", "x".repeat(1_024))), 1);
    assertEquals(0, leases.size());
  }

  @Test
  void closeWaitsForALeaseInFlight() throws Exception {
    CompletableFuture<Object> lease = new CompletableFuture<>();
    server.answer(
        received -> received.request() instanceof LeaseRequest ? lease : answer(received));
    TollgateClient client = client().clock(clock::get).build();
    assertEquals(Source.SERVER, client.check(USER).source());
    CompletableFuture<Decision> waiting = client.checkAsync(CheckRequest.of(USER));
    Future<?> closing = CompletableFuture.runAsync(client::close);
    assertFalse(closing.isDone());
    lease.complete(answer(new ScriptedServer.Received("Lease", leaseOf(16), false)));
    closing.get(30, TimeUnit.SECONDS);
    assertEquals(Source.LEASE, waiting.get().source());
    assertEquals(15, returned.get(30, TimeUnit.SECONDS));
  }
}
