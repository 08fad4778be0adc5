package io.github.tollgatelimits;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A check or a peek.
 *
 * @param domain domain of the rules; empty: that of the client
 * @param descriptors descriptors, in their order
 * @param hits hits of each descriptor that has none of its own; empty: 1
 * @param dryRun whether a check takes no hits, as a peek; it needs {@link Protocol#TOLLGATE}
 * @param leases whether a check leases hits if the client's option {@code leases} is not set, as
 *     those of the middleware do
 */
public record CheckRequest(
    Optional<String> domain,
    List<Descriptor> descriptors,
    OptionalLong hits,
    boolean dryRun,
    boolean leases) {
  /**
   * Copies the descriptors.
   *
   * @throws IllegalArgumentException if the domain is empty text, or the hits are negative or more
   *     than 9007199254740991
   */
  public CheckRequest {
    if (domain.isPresent() && domain.get().isEmpty()) {
      throw new IllegalArgumentException("domain must not be empty");
    }
    descriptors = List.copyOf(descriptors);
    hits.ifPresent(Hits::require);
  }

  /** Returns a check of one hit. */
  public static CheckRequest of(Descriptor... descriptors) {
    return new CheckRequest(
        Optional.empty(), List.of(descriptors), OptionalLong.empty(), false, false);
  }

  /** Returns a new builder. */
  public static Builder builder() {
    return new Builder();
  }

  /** Returns this check, as a dry run or not. */
  public CheckRequest withDryRun(boolean dryRun) {
    return new CheckRequest(domain, descriptors, hits, dryRun, leases);
  }

  Long hitsOrNull() {
    return hits.isPresent() ? hits.getAsLong() : null;
  }

  /** Builds a {@link CheckRequest}. */
  public static final class Builder {
    private Optional<String> domain = Optional.empty();
    private final List<Descriptor> descriptors = new ArrayList<>();
    private OptionalLong hits = OptionalLong.empty();
    private boolean dryRun;
    private boolean leases;

    private Builder() {}

    /** Sets the domain. Default: that of the client. */
    public Builder domain(String domain) {
      this.domain = Optional.of(domain);
      return this;
    }

    /** Adds a descriptor. */
    public Builder descriptor(Descriptor descriptor) {
      descriptors.add(descriptor);
      return this;
    }

    /** Adds descriptors. */
    public Builder descriptors(Collection<Descriptor> descriptors) {
      this.descriptors.addAll(descriptors);
      return this;
    }

    /** Sets the hits, 0 to 9007199254740991. Default: 1. */
    public Builder hits(long hits) {
      this.hits = OptionalLong.of(hits);
      return this;
    }

    /** Sets whether no hits are taken, as by a peek. Default: false. */
    public Builder dryRun(boolean dryRun) {
      this.dryRun = dryRun;
      return this;
    }

    /**
     * Sets whether hits are leased if the client's option {@code leases} is not set. The middleware
     * sets it. Default: false.
     */
    public Builder leases(boolean leases) {
      this.leases = leases;
      return this;
    }

    /**
     * Returns the request.
     *
     * @throws IllegalArgumentException if a value is out of its bounds
     */
    public CheckRequest build() {
      return new CheckRequest(domain, descriptors, hits, dryRun, leases);
    }
  }
}
