package io.github.tollgatelimits;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * Hits that are reserved until they are settled or expire.
 *
 * <p>A {@code try} statement with resources settles it: without a commit before, {@link #close}
 * gives all hits back. A reservation that was refused, or that {@link OnError} decided, has no ID
 * and nothing to settle: commit, release and extend then make no call, and succeed.
 */
public final class Reservation implements AutoCloseable {
  private final TollgateClient client;
  private final String domain;
  private final List<Descriptor> descriptors;
  private final Decision decision;
  private final Optional<String> id;
  private final long hits;
  private final Optional<Duration> expires;

  /** Whether a commit or a release was sent. Its outcome may be unknown. */
  private volatile boolean settled;

  Reservation(
      TollgateClient client,
      String domain,
      List<Descriptor> descriptors,
      TollgateProtocol.Reserved reserved) {
    this.client = client;
    this.domain = domain;
    this.descriptors = descriptors.stream().map(Descriptor::withoutHits).toList();
    this.decision = reserved.decision();
    this.id = reserved.id();
    this.hits = reserved.hits();
    this.expires = reserved.expires();
  }

  /** Returns the decision. If it is not allowed, nothing is reserved. */
  public Decision decision() {
    return decision;
  }

  /** Returns whether the work may begin. */
  public boolean allowed() {
    return decision.allowed();
  }

  /** Returns the ID; empty if nothing is reserved. */
  public Optional<String> id() {
    return id;
  }

  /** Returns the hits that are reserved. */
  public long hits() {
    return hits;
  }

  /**
   * Returns the time from the reservation until it ends by itself; empty if nothing is reserved.
   */
  public Optional<Duration> expires() {
    return expires;
  }

  /**
   * Settles by the true amount, for all descriptors.
   *
   * @param hits 0 to 9007199254740991, also more than reserved
   * @throws IllegalArgumentException if {@code hits} is out of its bounds
   * @throws TollgateException if there is no answer; the commit may be sent again
   */
  public Settlement commit(long hits) {
    return TollgateClient.await(commitAsync(hits));
  }

  /** As {@link #commit(long)}. The future fails with a {@link TollgateException}. */
  public CompletableFuture<Settlement> commitAsync(long hits) {
    Hits.require(hits);
    return commitAsync(descriptors, hits);
  }

  /**
   * Settles by one true amount for each descriptor, in their order.
   *
   * @param hits 0 to 9007199254740991 each
   * @throws IllegalArgumentException if an amount is out of its bounds, or their number is not that
   *     of the descriptors
   * @throws TollgateException if there is no answer; the commit may be sent again
   */
  public Settlement commitEach(long... hits) {
    return TollgateClient.await(commitEachAsync(hits));
  }

  /** As {@link #commitEach(long...)}. The future fails with a {@link TollgateException}. */
  public CompletableFuture<Settlement> commitEachAsync(long... hits) {
    if (hits.length != descriptors.size()) {
      throw new IllegalArgumentException(
          "commit has " + hits.length + " amounts for " + descriptors.size() + " descriptors");
    }
    List<Descriptor> amounts = new ArrayList<>(hits.length);
    for (int at = 0; at < hits.length; at++) {
      amounts.add(descriptors.get(at).withHits(hits[at]));
    }
    return commitAsync(amounts, null);
  }

  private CompletableFuture<Settlement> commitAsync(List<Descriptor> amounts, Long hits) {
    if (id.isEmpty()) {
      return CompletableFuture.completedFuture(Settlement.NOTHING);
    }
    settled = true;
    return client.settle("commit", domain, p -> p.commit(domain, amounts, id.get(), hits));
  }

  /**
   * Gives all hits back.
   *
   * @throws TollgateException if there is no answer; the release may be sent again
   */
  public Settlement release() {
    return TollgateClient.await(releaseAsync());
  }

  /** As {@link #release}. The future fails with a {@link TollgateException}. */
  public CompletableFuture<Settlement> releaseAsync() {
    if (id.isEmpty()) {
      return CompletableFuture.completedFuture(Settlement.NOTHING);
    }
    settled = true;
    return client.settle("release", domain, p -> p.release(domain, descriptors, id.get()));
  }

  /**
   * Moves the expiry.
   *
   * @param expires time from now, 1 ms to 1 day
   * @throws IllegalArgumentException if {@code expires} is out of its bounds
   * @throws TollgateException if there is no answer; the extension may be sent again
   */
  public Settlement extend(Duration expires) {
    return TollgateClient.await(extendAsync(expires));
  }

  /** As {@link #extend}. The future fails with a {@link TollgateException}. */
  public CompletableFuture<Settlement> extendAsync(Duration expires) {
    ReserveRequest.requireExpires(expires);
    if (id.isEmpty()) {
      return CompletableFuture.completedFuture(Settlement.NOTHING);
    }
    return client.settle("extend", domain, p -> p.extend(domain, descriptors, id.get(), expires));
  }

  /**
   * Releases, unless a commit or a release was sent before. An error is dropped: the reservation
   * then ends by its expiry.
   */
  @Override
  public void close() {
    if (settled || id.isEmpty() || client.isClosed()) {
      return;
    }
    try {
      release();
    } catch (TollgateException dropped) {
      // The reservation ends by its expiry.
    }
  }
}
