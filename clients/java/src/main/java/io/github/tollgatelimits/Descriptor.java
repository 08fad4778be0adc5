package io.github.tollgatelimits;

import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;

/**
 * A list of entries that the rules of a domain match, such as {@code user=ann}.
 *
 * @param entries the entries, in the order of the rules
 * @param hits hits of this descriptor, which replace those of the call; empty: those of the call
 */
public record Descriptor(List<Entry> entries, OptionalLong hits) {
  /**
   * One key and its value.
   *
   * @param key the key, as in the rules
   * @param value the value
   */
  public record Entry(String key, String value) {
    /** Checks that neither part is null. */
    public Entry {
      Objects.requireNonNull(key, "key");
      Objects.requireNonNull(value, "value");
    }
  }

  /**
   * Copies the entries.
   *
   * @throws IllegalArgumentException if the hits are negative or more than 9007199254740991
   */
  public Descriptor {
    entries = List.copyOf(entries);
    hits.ifPresent(Hits::require);
  }

  /** Returns a descriptor with one entry. */
  public static Descriptor of(String key, String value) {
    return of(new Entry(key, value));
  }

  /** Returns a descriptor with two entries. */
  public static Descriptor of(String key1, String value1, String key2, String value2) {
    return of(new Entry(key1, value1), new Entry(key2, value2));
  }

  /** Returns a descriptor with these entries. */
  public static Descriptor of(Entry... entries) {
    return new Descriptor(List.of(entries), OptionalLong.empty());
  }

  /**
   * Returns this descriptor with hits of its own.
   *
   * @throws IllegalArgumentException if {@code hits} is negative or more than 9007199254740991
   */
  public Descriptor withHits(long hits) {
    return new Descriptor(entries, OptionalLong.of(hits));
  }

  Descriptor withoutHits() {
    return hits.isEmpty() ? this : new Descriptor(entries, OptionalLong.empty());
  }
}
