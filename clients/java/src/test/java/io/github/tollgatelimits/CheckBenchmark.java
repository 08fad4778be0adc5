package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/**
 * Measures unary and batched checks of a real tollgate, in turns. {@code mvn test} does not run it.
 */
class CheckBenchmark {
  private static final int ROUNDS = Integer.getInteger("rounds", 7);
  private static final Duration TIME = Duration.ofMillis(Integer.getInteger("millis", 2_000));
  private static final Descriptor LARGE = Descriptor.of("large", "x");

  private record Figures(double perSecond, double cpuMicros) {}

  @Test
  void checks() throws Exception {
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient unary = ServiceTest.client(tollgate.address()).build();
        TollgateClient batching = ServiceTest.client(tollgate.address()).batching(true).build()) {
      for (int callers : new int[] {1, 64}) {
        for (int warmup = 0; warmup < 2; warmup++) {
          measure(unary, callers);
          measure(batching, callers);
        }
        List<Figures> ofUnary = new ArrayList<>();
        List<Figures> ofBatching = new ArrayList<>();
        for (int round = 0; round < ROUNDS; round++) {
          ofUnary.add(measure(unary, callers));
          ofBatching.add(measure(batching, callers));
        }
        print("unary", callers, ofUnary);
        print("batching", callers, ofBatching);
      }
    }
  }

  private static Figures measure(TollgateClient client, int callers) throws Exception {
    AtomicLong checks = new AtomicLong();
    AtomicLong failed = new AtomicLong();
    long cpu = cpuNanos();
    long began = System.nanoTime();
    List<Thread> threads = new ArrayList<>();
    for (int caller = 0; caller < callers; caller++) {
      Thread thread =
          new Thread(
              () -> {
                while (System.nanoTime() - began < TIME.toNanos()) {
                  if (client.check(LARGE).source() != Source.SERVER) {
                    failed.incrementAndGet();
                  }
                  checks.incrementAndGet();
                }
              });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    double seconds = (System.nanoTime() - began) / 1e9;
    assertTrue(failed.get() == 0, failed + " checks failed");
    return new Figures(checks.get() / seconds, (cpuNanos() - cpu) / 1e3 / checks.get());
  }

  private static long cpuNanos() {
    var system =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    return system.getProcessCpuTime();
  }

  private static void print(String mode, int callers, List<Figures> rounds) {
    double[] perSecond = rounds.stream().mapToDouble(Figures::perSecond).sorted().toArray();
    double[] cpu = rounds.stream().mapToDouble(Figures::cpuMicros).sorted().toArray();
    System.out.printf(
        "%s, %d callers: median %.0f checks/s, %.0f us of CPU a check; %s%n",
        mode,
        callers,
        perSecond[ROUNDS / 2],
        cpu[ROUNDS / 2],
        Arrays.toString(Arrays.stream(perSecond).mapToLong(Math::round).toArray()));
  }
}
