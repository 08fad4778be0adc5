package io.github.tollgatelimits;

import java.util.ArrayList;
import java.util.List;

/** Numbers of hits. */
final class Hits {
  /** The largest number of hits of a call. */
  static final long MAX = 9_007_199_254_740_991L;

  private Hits() {}

  static long require(long hits) {
    if (hits < 0 || hits > MAX) {
      throw new IllegalArgumentException("hits must be from 0 to " + MAX + ": " + hits);
    }
    return hits;
  }

  /** Returns the hits of each descriptor: its own, else those of the call, else 1. */
  static List<Long> ofEach(List<Descriptor> descriptors, Long callHits) {
    long common = callHits == null ? 1 : callHits;
    List<Long> each = new ArrayList<>(descriptors.size());
    for (Descriptor descriptor : descriptors) {
      each.add(descriptor.hits().orElse(common));
    }
    return each;
  }

  /** Returns the hits of the descriptor that has the most, or those of the call if it has none. */
  static long most(List<Descriptor> descriptors, Long callHits) {
    long most = descriptors.isEmpty() ? (callHits == null ? 1 : callHits) : 0;
    for (long hits : ofEach(descriptors, callHits)) {
      most = Math.max(most, hits);
    }
    return most;
  }
}
