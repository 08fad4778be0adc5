package io.github.tollgatelimits;

import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.LongSupplier;

/** Token buckets of {@link OnError#LOCAL}, one for each list of descriptors. */
final class LocalBuckets {
  /** The largest rate and the largest burst: with it, no product below overflows. */
  static final long RATE_MAX = 1_000_000_000L;

  private static final int BUCKETS_MAX = 10_000;

  /** Parts of a token. A rate of one token a second is one part a nanosecond. */
  private static final long PARTS = 1_000_000_000L;

  private static final long NANOS_PER_MICRO = 1_000L;

  private final long perSecond;
  private final long burst;
  private final LongSupplier clock;

  /** By {@link DescriptorKey}, in the order in which they were made. */
  private final Map<String, Bucket> buckets = new LinkedHashMap<>();

  private static final class Bucket {
    long parts;
    long updated;
  }

  LocalBuckets(long perSecond, long burst, LongSupplier clock) {
    this.perSecond = perSecond;
    this.burst = burst;
    this.clock = clock;
  }

  /** Takes {@code hits} tokens or none, and returns the decision. */
  Decision decide(String key, long hits, TollgateException error) {
    synchronized (buckets) {
      Bucket bucket = bucket(key);
      if (hits > burst) {
        return Decision.withoutAnswer(false, Source.LOCAL, Optional.empty(), error);
      }
      long missing = hits * PARTS - bucket.parts;
      if (missing > 0) {
        long micros = ceilDivide(missing, perSecond * NANOS_PER_MICRO);
        Duration retryAfter = Duration.ofNanos(micros * NANOS_PER_MICRO);
        return Decision.withoutAnswer(false, Source.LOCAL, Optional.of(retryAfter), error);
      }
      bucket.parts -= hits * PARTS;
      return Decision.withoutAnswer(true, Source.LOCAL, Optional.empty(), error);
    }
  }

  private Bucket bucket(String key) {
    long now = clock.getAsLong();
    Bucket bucket = buckets.get(key);
    if (bucket == null) {
      bucket = new Bucket();
      bucket.parts = burst * PARTS;
      bucket.updated = now;
      buckets.put(key, bucket);
      if (buckets.size() > BUCKETS_MAX) {
        Iterator<Bucket> oldest = buckets.values().iterator();
        oldest.next();
        oldest.remove();
      }
      return bucket;
    }
    long elapsed = Math.max(now - bucket.updated, 0);
    long missing = burst * PARTS - bucket.parts;
    bucket.parts =
        elapsed >= ceilDivide(missing, perSecond)
            ? burst * PARTS
            : bucket.parts + elapsed * perSecond;
    bucket.updated = now;
    return bucket;
  }

  int size() {
    synchronized (buckets) {
      return buckets.size();
    }
  }

  private static long ceilDivide(long dividend, long divisor) {
    return dividend / divisor + (dividend % divisor == 0 ? 0 : 1);
  }
}
