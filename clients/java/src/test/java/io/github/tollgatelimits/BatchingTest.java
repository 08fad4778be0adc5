package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.SettleResponse;
import io.github.tollgatelimits.internal.v1.Verdict;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Checks over a stream of a scripted server. */
class BatchingTest {
  private static final CheckRequest USER = CheckRequest.of(Descriptor.of("user", "ann"));

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
        .deadline(Duration.ofSeconds(20))
        .batching(true);
  }

  private static CheckResponse remaining(long remaining) {
    return CheckResponse.newBuilder()
        .setVerdict(Verdict.VERDICT_OK)
        .setRemaining(remaining)
        .build();
  }

  private static void await(String what, BooleanSupplier condition) throws InterruptedException {
    for (int round = 0; round < 1_000 && !condition.getAsBoolean(); round++) {
      Thread.sleep(10);
    }
    assertTrue(condition.getAsBoolean(), what);
  }

  private static List<CompletableFuture<Decision>> checks(TollgateClient client, int count) {
    List<CompletableFuture<Decision>> checks = new ArrayList<>();
    for (int check = 0; check < count; check++) {
      checks.add(client.checkAsync(USER));
    }
    return checks;
  }

  private static String error(CompletableFuture<Decision> check) {
    return check.join().error().orElseThrow().getMessage();
  }

  @Test
  void theCallsAndTheQueueAreBounded() throws Exception {
    server.answer(received -> null);
    try (TollgateClient client = client().onError(OnError.DENY).build()) {
      List<CompletableFuture<Decision>> checks = checks(client, 64 + 1_024);
      await("64 calls", () -> server.calls().size() == 64);
      // A call gets its place before the one in front of it is sent. A 65th would have left one in
      // the queue.
      for (int check = 0; check < 20; check++) {
        Decision decision = client.check(USER);
        assertEquals(Source.DENY, decision.source());
        TollgateException error = decision.error().orElseThrow();
        assertEquals(Status.Code.UNAVAILABLE, error.code());
        assertTrue(error.getMessage().endsWith("queue full"), error.getMessage());
        assertFalse(error.breakerOpen(), "the breaker counted a full queue");
      }
      assertEquals(64, server.calls().size());

      checks.get(0).cancel(true);
      assertThrows(CancellationException.class, () -> checks.get(0).join());
      await("a call in the freed place", () -> server.calls().size() == 65);
      checks.get(500).cancel(true);
      List<CompletableFuture<Decision>> freed = checks(client, 3);
      assertEquals(2, freed.stream().filter(check -> !check.isDone()).count(), "freed places");
      assertEquals(1, server.streamsOpened());
    }
  }

  @Test
  void waitingChecksFollow() throws Exception {
    server.answer(received -> remaining(7));
    try (TollgateClient client = client().build()) {
      for (CompletableFuture<Decision> check : checks(client, 1_000)) {
        assertEquals(7, check.join().remaining().orElseThrow());
      }
      assertEquals(1_000, server.calls().size());
      assertEquals(1, server.streamsOpened());
    }
  }

  @Test
  void answersAreMatchedByTag() throws Exception {
    List<CompletableFuture<Object>> answers = new ArrayList<>();
    server.answer(
        received -> {
          CompletableFuture<Object> answer = new CompletableFuture<>();
          synchronized (answers) {
            answers.add(answer);
          }
          return answer;
        });
    try (TollgateClient client = client().build()) {
      List<CompletableFuture<Decision>> checks = checks(client, 10);
      await("all calls", () -> server.calls().size() == 10);
      for (int at = 9; at >= 0; at--) {
        answers.get(at).complete(remaining(at));
      }
      for (int at = 0; at < 10; at++) {
        assertEquals(at, checks.get(at).join().remaining().orElseThrow());
      }
    }
  }

  @Test
  void aFailedStreamFailsItsCallsOnce() throws Exception {
    server.answer(received -> null);
    try (TollgateClient client = client().breaker(1_000, Duration.ofSeconds(1)).build()) {
      List<CompletableFuture<Decision>> checks = checks(client, 70);
      await("64 calls", () -> server.calls().size() == 64);
      server.answer(received -> remaining(1));
      server.endStreams(Status.UNAVAILABLE.withDescription("scripted"));
      for (CompletableFuture<Decision> check : checks.subList(0, 64)) {
        assertTrue(error(check).endsWith("scripted"), error(check));
      }
      for (CompletableFuture<Decision> check : checks.subList(64, 70)) {
        assertEquals(Source.SERVER, check.join().source(), "a check that waited");
      }
      assertEquals(6, server.calls().size(), "calls of the second stream");
      assertEquals(2, server.streamsOpened());

      server.endStreams(Status.OK);
      // A check fails that the client sends before it knows the end of its stream.
      await("an answer", () -> client.check(USER).source() == Source.SERVER);
      assertEquals(3, server.streamsOpened());
    }
  }

  @Test
  void aStreamThatEndsWithoutAnErrorFailsItsCalls() throws Exception {
    server.answer(received -> null);
    try (TollgateClient client = client().build()) {
      CompletableFuture<Decision> check = client.checkAsync(USER);
      await("the call", () -> server.calls().size() == 1);
      server.endStreams(Status.OK);
      assertEquals(Status.Code.UNAVAILABLE, check.join().error().orElseThrow().code());
    }
  }

  @Test
  void anAnswerOfAnotherKindIsInternal() {
    server.answer(received -> SettleResponse.getDefaultInstance());
    try (TollgateClient client = client().build()) {
      assertEquals(Status.Code.INTERNAL, client.check(USER).error().orElseThrow().code());
    }
  }

  @Test
  void aDeadlineEndsWaitingChecksAndFreesTheirPlaces() throws Exception {
    server.answer(received -> null);
    try (TollgateClient client =
        client().deadline(Duration.ofMillis(500)).breaker(2_000, Duration.ofSeconds(1)).build()) {
      for (CompletableFuture<Decision> check : checks(client, 200)) {
        Decision decision = check.join();
        assertEquals(
            Status.Code.DEADLINE_EXCEEDED, decision.error().orElseThrow().code(), "waiting check");
        assertTrue(decision.elapsed().toMillis() >= 490, () -> "too soon " + decision.elapsed());
      }
      server.answer(received -> remaining(1));
      assertEquals(Source.SERVER, client.check(USER).source());
      assertEquals(1, server.streamsOpened());
    }
  }

  @Test
  void anAddressThatDoesNotAnswerIsLeft() throws Exception {
    server.answer(received -> remaining(1));
    try (java.net.ServerSocket silent = new java.net.ServerSocket(0);
        TollgateClient client =
            client()
                .addresses("127.0.0.1:" + silent.getLocalPort(), server.address())
                .deadline(Duration.ofMillis(500))
                .build()) {
      await("an answer", () -> client.check(USER).source() == Source.SERVER);
    }
  }

  @Test
  void closeEndsTheStream() throws Exception {
    server.answer(received -> remaining(1));
    try (TollgateClient client = client().build()) {
      client.check(USER);
      assertEquals(1, server.openStreams());
    }
    await("the end of the stream", () -> server.openStreams() == 0);
  }
}
