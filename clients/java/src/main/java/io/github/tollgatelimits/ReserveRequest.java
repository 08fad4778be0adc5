package io.github.tollgatelimits;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A reservation to make.
 *
 * @param domain domain of the rules; empty: that of the client
 * @param descriptors descriptors, in their order
 * @param hits hits of each descriptor that has none of its own; empty: the amount of the rule
 * @param id ID, at most 256 bytes; empty: the server makes one
 * @param expires time until it ends by itself, 1 ms to 1 day; empty: that of the rule, else 60 s
 * @param onExpiry what happens to the hits when it expires; empty: as the rule says, else charge
 */
public record ReserveRequest(
    Optional<String> domain,
    List<Descriptor> descriptors,
    OptionalLong hits,
    Optional<String> id,
    Optional<Duration> expires,
    Optional<OnExpiry> onExpiry) {
  private static final int ID_BYTES_MAX = 256;
  private static final Duration EXPIRES_MAX = Duration.ofDays(1);

  /**
   * Copies the descriptors.
   *
   * @throws IllegalArgumentException if a value is out of its bounds
   */
  public ReserveRequest {
    if (domain.isPresent() && domain.get().isEmpty()) {
      throw new IllegalArgumentException("domain must not be empty");
    }
    descriptors = List.copyOf(descriptors);
    hits.ifPresent(Hits::require);
    if (id.isPresent() && id.get().getBytes(StandardCharsets.UTF_8).length > ID_BYTES_MAX) {
      throw new IllegalArgumentException("id must have at most " + ID_BYTES_MAX + " bytes");
    }
    expires.ifPresent(ReserveRequest::requireExpires);
  }

  static Duration requireExpires(Duration expires) {
    if (expires.isNegative() || expires.isZero() || expires.compareTo(EXPIRES_MAX) > 0) {
      throw new IllegalArgumentException("expires must be from 1 ms to 1 day: " + expires);
    }
    return expires;
  }

  /** Returns a reservation of {@code hits} with the defaults of the rules. */
  public static ReserveRequest of(long hits, Descriptor... descriptors) {
    return builder().hits(hits).descriptors(List.of(descriptors)).build();
  }

  /** Returns a new builder. */
  public static Builder builder() {
    return new Builder();
  }

  Long hitsOrNull() {
    return hits.isPresent() ? hits.getAsLong() : null;
  }

  /** Builds a {@link ReserveRequest}. */
  public static final class Builder {
    private Optional<String> domain = Optional.empty();
    private final List<Descriptor> descriptors = new ArrayList<>();
    private OptionalLong hits = OptionalLong.empty();
    private Optional<String> id = Optional.empty();
    private Optional<Duration> expires = Optional.empty();
    private Optional<OnExpiry> onExpiry = Optional.empty();

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

    /** Sets the hits, 0 to 9007199254740991. Default: the amount of the rule. */
    public Builder hits(long hits) {
      this.hits = OptionalLong.of(hits);
      return this;
    }

    /** Sets the ID, at most 256 bytes. Default: the server makes one. */
    public Builder id(String id) {
      this.id = Optional.of(id);
      return this;
    }

    /** Sets the time until it ends by itself, 1 ms to 1 day. Default: the rule's, else 60 s. */
    public Builder expires(Duration expires) {
      this.expires = Optional.of(expires);
      return this;
    }

    /** Sets what happens to the hits when it expires. Default: the rule's, else charge. */
    public Builder onExpiry(OnExpiry onExpiry) {
      this.onExpiry = Optional.of(onExpiry);
      return this;
    }

    /**
     * Returns the request.
     *
     * @throws IllegalArgumentException if a value is out of its bounds
     */
    public ReserveRequest build() {
      return new ReserveRequest(domain, descriptors, hits, id, expires, onExpiry);
    }
  }
}
