package io.github.tollgatelimits;

import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;

/**
 * Denial cache: refusals of the server that are repeated without a call.
 *
 * <p>An entry ends after a second at most, so that resets and refunds are seen.
 */
final class DenialCache {
  private static final long LIFETIME_MAX_NANOS = 1_000_000_000L;

  /** The bytes of keys and values that are remembered. */
  static final int DESCRIPTOR_BYTES_MAX = 1_024;

  private final int entriesMax;
  private final LongSupplier clock;

  /** By {@link DescriptorKey}, in the order in which they were written. */
  private final Map<String, Denial> denials = new LinkedHashMap<>();

  private record Denial(List<Long> hits, Decision decision, long written, long lifetime) {
    boolean covers(List<Long> requested) {
      for (int at = 0; at < hits.size(); at++) {
        if (requested.get(at) < hits.get(at)) {
          return false;
        }
      }
      return true;
    }
  }

  DenialCache(int entriesMax, LongSupplier clock) {
    this.entriesMax = entriesMax;
    this.clock = clock;
  }

  boolean isEnabled() {
    return entriesMax > 0;
  }

  /**
   * Returns the remembered refusal of a check with these hits.
   *
   * @param hits hits of each descriptor that has none of its own; null: 1
   */
  Optional<Decision> find(String key, List<Descriptor> descriptors, Long hits) {
    if (!isEnabled()) {
      return Optional.empty();
    }
    Denial denial;
    long age;
    synchronized (denials) {
      denial = denials.get(key);
      if (denial == null) {
        return Optional.empty();
      }
      age = clock.getAsLong() - denial.written;
      if (age >= denial.lifetime) {
        denials.remove(key);
        return Optional.empty();
      }
    }
    List<Long> each = Hits.ofEach(descriptors, hits);
    return !hitsAreZero(each) && denial.covers(each)
        ? Optional.of(denial.decision.repeatedAfter(Duration.ofNanos(Math.max(age, 0))))
        : Optional.empty();
  }

  /** Remembers a refusal of the server, if it may be repeated. */
  void remember(String key, List<Descriptor> descriptors, List<Long> hits, Decision decision) {
    long lifetime = lifetime(decision);
    if (lifetime <= 0
        || hitsAreZero(hits)
        || DescriptorKey.bytes(descriptors) > DESCRIPTOR_BYTES_MAX) {
      return;
    }
    synchronized (denials) {
      denials.remove(key);
      denials.put(key, new Denial(hits, decision, clock.getAsLong(), lifetime));
      if (denials.size() > entriesMax) {
        Iterator<Denial> oldest = denials.values().iterator();
        oldest.next();
        oldest.remove();
      }
    }
  }

  int size() {
    synchronized (denials) {
      return denials.size();
    }
  }

  /** Returns how long a refusal is repeated. */
  static long lifetime(Decision decision) {
    Duration longest = Duration.ofNanos(LIFETIME_MAX_NANOS);
    Duration retryAfter = decision.retryAfter().orElse(longest);
    return retryAfter.compareTo(longest) < 0 ? retryAfter.toNanos() : LIFETIME_MAX_NANOS;
  }

  private static boolean hitsAreZero(List<Long> hits) {
    for (long each : hits) {
      if (each != 0) {
        return false;
      }
    }
    return true;
  }
}
