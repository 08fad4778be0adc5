package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The client with a real tollgate. */
class ServiceTest {
  private static final Descriptor LARGE = Descriptor.of("large", "x");

  static TollgateClient.Builder client(String... addresses) {
    return TollgateClient.builder()
        .addresses(addresses)
        .domain("edge")
        .deadline(Duration.ofSeconds(5));
  }

  @ParameterizedTest
  @CsvSource({"TOLLGATE, false", "ENVOY, false", "TOLLGATE, true"})
  void ofConcurrentChecksTheLimitIsAllowed(Protocol protocol, boolean batching) throws Exception {
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client =
            client(tollgate.address()).protocol(protocol).batching(batching).build()) {
      List<CompletableFuture<Decision>> answers = new ArrayList<>();
      for (int call = 0; call < 400; call++) {
        answers.add(client.checkAsync(CheckRequest.of(Descriptor.of("hundred", "x"))));
      }
      int allowed = 0;
      for (CompletableFuture<Decision> answer : answers) {
        Decision decision = answer.get();
        assertTrue(decision.error().isEmpty(), () -> "error " + decision.error());
        allowed += decision.allowed() ? 1 : 0;
      }
      assertEquals(100, allowed);
    }
  }

  @Test
  void clientsWithLeasesShareALimit() throws Exception {
    // Leases outlive the test: hits of one that has ended would not come back.
    try (RealTollgate tollgate = RealTollgate.start("--lease-age-max-ms", "60000")) {
      AtomicInteger allowed = new AtomicInteger();
      AtomicInteger leased = new AtomicInteger();
      ExecutorService callers = Executors.newFixedThreadPool(4);
      try (TollgateClient first = client(tollgate.address()).leases(true).build();
          TollgateClient second = client(tollgate.address()).leases(true).build()) {
        List<Future<?>> ends = new ArrayList<>();
        for (TollgateClient client : List.of(first, second, first, second)) {
          ends.add(
              callers.submit(
                  () -> {
                    for (int call = 0; call < 40; call++) {
                      Decision decision = client.check(Descriptor.of("hundred", "leased"));
                      allowed.addAndGet(decision.allowed() ? 1 : 0);
                      leased.addAndGet(decision.source() == Source.LEASE ? 1 : 0);
                    }
                  }));
        }
        for (Future<?> end : ends) {
          end.get();
        }
      } finally {
        callers.shutdown();
      }
      assertTrue(leased.get() > 0, "no hit was leased");
      // Closed clients have given back what they did not use.
      try (TollgateClient client = client(tollgate.address()).build()) {
        while (client.check(Descriptor.of("hundred", "leased")).allowed()) {
          allowed.incrementAndGet();
        }
      }
      assertEquals(100, allowed.get());
    }
  }

  @Test
  void anUnknownDomainIsAnErrorIfSoConfigured() throws Exception {
    Descriptor user = Descriptor.of("user", "ann");
    CheckRequest elsewhere =
        CheckRequest.builder().domain("nowhere").descriptors(List.of(user)).build();
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client = client(tollgate.address()).build();
        TollgateClient strict =
            client(tollgate.address()).unknownDomain(UnknownDomain.ERROR).build()) {
      assertEquals(Optional.of(NoLimit.UNKNOWN_DOMAIN), client.check(elsewhere).noLimit());
      assertThrows(IllegalArgumentException.class, () -> strict.check(elsewhere));
      assertEquals(Optional.empty(), strict.check(user).noLimit());
    }
  }

  @Test
  void callsRotateOverTheAddresses() throws Exception {
    try (RealTollgate first = RealTollgate.start();
        RealTollgate second = RealTollgate.start();
        TollgateClient client =
            client(first.address(), second.address()).denialCacheEntries(0).build()) {
      Descriptor user = Descriptor.of("user", "ann");
      awaitBoth(client);
      int allowed = 0;
      for (int call = 0; call < 20; call++) {
        allowed += client.check(user).allowed() ? 1 : 0;
      }
      assertEquals(10, allowed, "each server allows five");

      first.kill();
      for (int call = 0; call < 50; call++) {
        client.peek(user);
      }
      assertEquals(Source.SERVER, client.check(LARGE).source());
    }
  }

  /** Waits until calls rotate: each server then gets one of two calls in a row. */
  private static void awaitBoth(TollgateClient client) {
    long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    Descriptor probe = Descriptor.of("budget", "probe");
    boolean both;
    do {
      assertTrue(System.nanoTime() < end, "calls do not rotate");
      // A server that got the hits has less left than the other one.
      client.check(CheckRequest.builder().descriptors(List.of(probe)).hits(1).build());
      long first = client.peek(probe).remaining().orElseThrow();
      long second = client.peek(probe).remaining().orElseThrow();
      both = first != second;
      pause(20);
    } while (!both);
  }

  @Test
  void reservationsAreSettled() throws Exception {
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client = client(tollgate.address()).build()) {
      Descriptor ann = Descriptor.of("budget", "ann");
      Descriptor bob = Descriptor.of("budget", "bob");
      try (Reservation reservation = client.reserve(800, ann)) {
        assertTrue(reservation.allowed());
        assertEquals(800, reservation.hits());
        assertEquals(9_200, reservation.decision().remaining().getAsLong());
        Settlement extended = reservation.extend(Duration.ofMinutes(5));
        assertEquals(Duration.ofMinutes(5), extended.expires().orElseThrow());
        assertEquals(120, reservation.commit(120).committed());
        assertTrue(reservation.commit(120).repeated());
      }
      assertEquals(9_880, client.peek(ann).remaining().getAsLong());

      try (Reservation reservation = client.reserve(500, ann)) {
        assertTrue(reservation.allowed());
      }
      assertEquals(9_880, client.peek(ann).remaining().getAsLong(), "the scope has released");

      try (Reservation reservation = client.reserve(100, ann, bob)) {
        assertTrue(reservation.allowed());
        reservation.commitEach(10, 20);
      }
      assertEquals(9_870, client.peek(ann).remaining().getAsLong());
      assertEquals(9_980, client.peek(bob).remaining().getAsLong());

      try (Reservation refused = client.reserve(1_000_000, ann)) {
        assertFalse(refused.allowed());
        assertEquals(0, refused.commit(5).committed());
      }
    }
  }

  @ParameterizedTest
  @CsvSource({
    "ALLOW, false",
    "DENY, false",
    "LOCAL, false",
    "ALLOW, true",
    "DENY, true",
    "LOCAL, true"
  })
  void aKilledServerIsFoundAgain(OnError onError, boolean batching) throws Exception {
    Duration deadline = Duration.ofMillis(200);
    ConcurrentLinkedQueue<Decision> decisions = new ConcurrentLinkedQueue<>();
    AtomicBoolean stop = new AtomicBoolean();
    AtomicInteger late = new AtomicInteger();
    RealTollgate tollgate = RealTollgate.start();
    ExecutorService callers = Executors.newFixedThreadPool(4);
    try (TollgateClient client =
        client(tollgate.address())
            .deadline(deadline)
            .onError(onError)
            .batching(batching)
            .local(1, 3)
            .breaker(5, Duration.ofMillis(200))
            .build()) {
      assertTrue(client.ready(Duration.ofSeconds(10)));
      for (int caller = 0; caller < 4; caller++) {
        callers.execute(
            () -> {
              while (!stop.get()) {
                long began = System.nanoTime();
                decisions.add(client.check(LARGE));
                if (System.nanoTime() - began > deadline.toNanos() + 1_000_000_000L) {
                  late.incrementAndGet();
                }
                pause(2);
              }
            });
      }
      Thread.sleep(500);
      int port = tollgate.port();
      tollgate.kill();
      Thread.sleep(200);
      decisions.clear();
      Thread.sleep(1_000);
      List<Decision> down = List.copyOf(decisions);
      assertFalse(down.isEmpty());
      for (Decision decision : down) {
        assertEquals(onError.name(), decision.source().name());
        assertTrue(decision.error().isPresent());
      }
      long allowed = down.stream().filter(Decision::allowed).count();
      switch (onError) {
        case ALLOW -> assertEquals(down.size(), allowed);
        case DENY -> assertEquals(0, allowed);
        case LOCAL -> assertTrue(allowed <= 6, "the bucket allowed " + allowed);
      }

      tollgate = RealTollgate.start(port);
      long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
      while (client.check(LARGE).source() != Source.SERVER) {
        assertTrue(System.nanoTime() < end, "the server was not found again");
        pause(20);
      }
      stop.set(true);
      callers.shutdown();
      assertTrue(callers.awaitTermination(10, TimeUnit.SECONDS), "a caller still waits");
      assertEquals(0, late.get(), "late calls");
    } finally {
      stop.set(true);
      callers.shutdown();
      tollgate.close();
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aCallOfAStoppedServerEndsAtItsDeadline(boolean batching) throws Exception {
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client =
            client(tollgate.address())
                .deadline(Duration.ofMillis(300))
                .batching(batching)
                .onError(OnError.DENY)
                .build()) {
      assertTrue(client.ready(Duration.ofSeconds(10)));
      client.check(LARGE);
      tollgate.pause();
      try {
        Decision decision = client.check(LARGE);
        assertEquals(Source.DENY, decision.source());
        assertEquals("DEADLINE_EXCEEDED", decision.error().orElseThrow().code().name());
        assertTrue(decision.elapsed().toMillis() >= 250, () -> "too soon " + decision.elapsed());
        assertTrue(decision.elapsed().toMillis() < 1_300, () -> "too late " + decision.elapsed());
      } finally {
        tollgate.resume();
      }
      long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
      while (client.check(LARGE).source() != Source.SERVER) {
        assertTrue(System.nanoTime() < end, "the server was not found again");
        pause(20);
      }
    }
  }

  private static void pause(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }
}
