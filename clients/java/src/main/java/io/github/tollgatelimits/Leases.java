package io.github.tollgatelimits;

import io.github.tollgatelimits.internal.v1.Answer;
import io.github.tollgatelimits.internal.v1.BatchRequest;
import io.github.tollgatelimits.internal.v1.BatchResponse;
import io.github.tollgatelimits.internal.v1.Call;
import io.github.tollgatelimits.internal.v1.LeaseRequest;
import io.github.tollgatelimits.internal.v1.ReturnRequest;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongSupplier;

/**
 * Leases: hits that the server debited in advance, and that checks take without a call.
 *
 * <p>A key is a domain with its descriptors. It is leased from its second check within a second on,
 * so that a key that is checked seldom costs one call a check. The next lease is asked for in the
 * background before the last is used up. A round gives back the hits of idle keys, and renews
 * leases by their age.
 */
final class Leases {
  /** The keys of the table. Others are checked. */
  static final int KEYS_MAX = 10_000;

  /** The hits that are wanted at most, and those of a check that takes leased hits. */
  static final long HITS_MAX = 1_000;

  /** The time between two rounds. */
  static final long ROUND_NANOS = 250_000_000L;

  private static final long SECOND = 1_000_000_000L;

  /** The hits that are wanted where nothing was admitted lately. */
  private static final long FIRST_HITS = 32;

  /** How many times the hits that were admitted lately are wanted. */
  private static final long GROWTH = 4;

  /** The same of a round, which renews before the hits are used up. */
  private static final long ROUND_GROWTH = 2;

  /** The part of a lease that is left when the next one is asked for: one in so many. */
  private static final long LOW_SHARE = 4;

  /**
   * How long a key is unused before its hits go back. Two checks within it make a key one that is
   * leased: a lease at the first one would cost keys that are seen once two calls each.
   */
  private static final long IDLE_AFTER = SECOND;

  /** The validity of leases that are renewed by age: a round comes in their last quarter. */
  private static final long RENEWED_VALIDITY_MIN = SECOND;

  /**
   * The part of its time in which a lease is renewed by a round, and goes back once the next one is
   * there: one in so many. What comes back after the end is lost.
   */
  private static final long LAST_PART = 4;

  private static final Duration NOT_LEASED_MAX = Duration.ofMinutes(1);
  private static final long UNIMPLEMENTED_FOR = 60 * SECOND;

  /** The calls of a batch, so that it ends within the deadline of a call. */
  private static final int BATCH_MAX = 100;

  /** Makes the calls of leases. */
  interface Calls {
    /** Asks for a lease, if the breaker permits it. */
    CompletableFuture<Granted> lease(LeaseRequest request);

    /** Sends leases and returns. With leases, the breaker must permit it. */
    CompletableFuture<BatchResponse> batch(BatchRequest request, boolean hasLeases);

    /** Returns whether leases are renewed, as the breaker is closed. */
    boolean mayRenew();

    /** Calls {@link #runRound} after {@link #ROUND_NANOS}. */
    void scheduleRound();
  }

  /**
   * The answer to a call for a lease.
   *
   * @param decision verdict and limits
   * @param leasable whether the limits can be leased
   * @param id id of the lease
   * @param hits hits of the lease
   * @param expires how long the lease is valid, or the limits cannot be leased
   */
  record Granted(Decision decision, boolean leasable, String id, long hits, Duration expires) {}

  /**
   * How a check is decided. With neither part, it is sent.
   *
   * @param decision the decision, or null
   * @param later the decision after a call for a lease, or null; its value is null if the check is
   *     sent then
   */
  record Step(Decision decision, CompletableFuture<Decision> later) {
    static final Step SEND = new Step(null, null);
  }

  private final LongSupplier clock;
  private final Calls calls;

  // The lock of the entries guards them and all fields below. It is not held across a call.
  private final Map<String, Entry> entries = new HashMap<>();

  /** Returns that the next round sends. */
  private List<Call> returns = new ArrayList<>();

  private boolean roundIsScheduled;
  private boolean closed;

  /** When a server that has no leases is asked again. */
  private long unimplementedUntil;

  Leases(LongSupplier clock, Calls calls) {
    this.clock = clock;
    this.calls = calls;
    unimplementedUntil = clock.getAsLong();
  }

  /** Returns whether a check may take leased hits. */
  static boolean canLease(CheckRequest request) {
    long hits = request.hits().orElse(1);
    if (request.dryRun() || hits < 1 || hits > HITS_MAX || request.descriptors().isEmpty()) {
      return false;
    }
    for (Descriptor descriptor : request.descriptors()) {
      if (descriptor.hits().isPresent()) {
        return false;
      }
    }
    return true;
  }

  /** A lease, and the hits of it that are left. */
  private static final class Lease {
    final String id;
    final long validity;
    final long end;
    long left;

    Lease(Granted granted, long since) {
      id = granted.id();
      validity = nanos(granted.expires(), Duration.ofDays(1));
      end = since + validity;
      left = granted.hits();
    }

    static boolean has(Lease lease, long now, long hits) {
      return lease != null && lease.left >= hits && lease.end - now > 0;
    }
  }

  private static long nanos(Duration time, Duration most) {
    return (time.compareTo(most) < 0 ? time : most).toNanos();
  }

  /**
   * A call for a lease.
   *
   * @param since the time before it was sent
   * @param end completes for checks that wait; its value is a refusal, or null
   * @param settled completes once these checks are decided
   * @param batched whether a round makes the call, which may take longer than a check
   */
  private record Flight(
      LeaseRequest request,
      long since,
      CompletableFuture<Decision> end,
      CompletableFuture<Void> settled,
      boolean batched) {}

  /** A key, and its leases. */
  private final class Entry {
    final String domain;
    final List<Descriptor> descriptors;

    /** The lease that checks take from, and the one that follows it. Either may be null. */
    Lease current;

    Lease next;

    /** The id of the newest lease, or null, its hits, and what its answer said at which time. */
    String newest;

    long granted;
    Decision answer;
    long answeredAt;

    long used;

    /** Hits that the server was not told yet. */
    long admitted;

    long refused;

    /** When a lease may be asked for again, and when counts are said without one. */
    long noLeaseUntil;

    long tellAt;

    /** The call for a lease, or null. */
    Flight flight;

    Entry(String domain, List<Descriptor> descriptors, long now) {
      this.domain = domain;
      this.descriptors = descriptors;
      used = now;
      noLeaseUntil = now;
      tellAt = now;
    }

    long left(long now) {
      return (Lease.has(current, now, 1) ? current.left : 0)
          + (Lease.has(next, now, 1) ? next.left : 0);
    }

    /** Takes hits of a lease that has all of them. Returns null if none has. */
    Decision take(long hits, long now) {
      if (!Lease.has(current, now, hits)) {
        if (!Lease.has(next, now, hits)) {
          return null;
        }
        advance(now);
      }
      current.left -= hits;
      admitted += hits;
      return answer.byLease(Duration.ofNanos(now - answeredAt), left(now));
    }

    /** Makes the next lease the current one. What was left of that goes back. */
    void advance(long now) {
      if (Lease.has(current, now, 1)) {
        giveBack(current.id, current.left, false);
      }
      current = next;
      next = null;
    }

    private void giveBack(String id, long unused, boolean tell) {
      ReturnRequest.Builder request =
          ReturnRequest.newBuilder()
              .setDomain(domain)
              .addAllDescriptors(TollgateProtocol.messages(descriptors))
              .setLease(id)
              .setUnused(unused);
      if (tell && admitted > 0) {
        request.setAdmitted(admitted);
      }
      if (tell && refused > 0) {
        request.setRefused(refused);
      }
      returns.add(Call.newBuilder().setGiveBack(request).build());
    }

    /** Gives back all hits, and says the counts. */
    void empty(long now) {
      if (Lease.has(next, now, 1)) {
        advance(now);
      }
      long unused = 0;
      if (Lease.has(current, now, 1)) {
        if (current.id.equals(newest)) {
          unused = current.left;
        } else {
          giveBack(current.id, current.left, false);
        }
      }
      if (newest != null && unused + admitted + refused > 0) {
        giveBack(newest, unused, true);
        admitted = 0;
        refused = 0;
      }
      current = null;
    }

    boolean mayLease(long now) {
      return !closed
          && flight == null
          && noLeaseUntil - now <= 0
          && unimplementedUntil - now <= 0
          && !Lease.has(next, now, 1);
    }

    /** Makes the call for a lease, for a check of so many hits. */
    void prepare(long hits, long now, boolean batched) {
      long growth = batched ? ROUND_GROWTH : GROWTH;
      long wanted = admitted > 0 ? growth * Math.min(admitted, HITS_MAX) : FIRST_HITS;
      LeaseRequest.Builder request =
          LeaseRequest.newBuilder()
              .setDomain(domain)
              .addAllDescriptors(TollgateProtocol.messages(descriptors))
              .setHits(Math.min(Math.max(wanted, GROWTH * hits), HITS_MAX));
      if (newest != null) {
        request.setLease(newest);
      }
      if (admitted > 0) {
        request.setAdmitted(admitted);
      }
      if (refused > 0) {
        request.setRefused(refused);
      }
      flight =
          new Flight(
              request.build(), now, new CompletableFuture<>(), new CompletableFuture<>(), batched);
    }

    /** Records an answer. */
    void answered(Granted given, long now) {
      admitted -= flight.request.getAdmitted();
      refused -= flight.request.getRefused();
      if (!given.leasable()) {
        noLeaseUntil = now + Math.max(nanos(given.expires(), NOT_LEASED_MAX), SECOND);
        return;
      }
      if (!given.decision().allowed()) {
        noLeaseUntil = now + DenialCache.lifetime(given.decision());
        return;
      }
      if (!Lease.has(current, now, 1)) {
        advance(now);
      }
      Lease lease = new Lease(given, flight.since);
      if (Lease.has(current, now, 1)) {
        next = lease;
      } else {
        current = lease;
      }
      newest = lease.id;
      granted = lease.left;
      answer = given.decision();
      answeredAt = flight.since;
      tellAt = lease.end + ROUND_NANOS;
      if (lease.left <= 1) {
        // Near the end plain checks are fair, and cost no more.
        noLeaseUntil = lease.end;
      }
    }
  }

  /**
   * Decides a check by the leases of its key. Starts a call for a lease, if one is due.
   *
   * @param descriptors descriptors without hits of their own
   */
  Step decide(String key, String domain, List<Descriptor> descriptors, long hits) {
    Entry entry;
    Decision decision;
    Flight started = null;
    Flight awaited;
    synchronized (entries) {
      long now = clock.getAsLong();
      entry = entries.get(key);
      if (entry == null) {
        add(key, domain, descriptors, now);
        return Step.SEND;
      }
      boolean repeated = now - entry.used < IDLE_AFTER;
      entry.used = now;
      decision = entry.take(hits, now);
      boolean due =
          decision == null
              ? repeated
              : entry.left(now) * LOW_SHARE <= entry.granted && calls.mayRenew();
      if (due && entry.mayLease(now)) {
        entry.prepare(decision == null ? hits : 1, now, false);
        started = entry.flight;
      }
      awaited = entry.flight == null || entry.flight.batched() ? null : entry.flight;
    }
    if (started != null) {
      CompletableFuture.completedFuture(started.request)
          .thenCompose(calls::lease)
          .whenComplete((granted, error) -> finish(entry, granted, TollgateClient.cause(error)));
    }
    if (decision != null) {
      return new Step(decision, null);
    }
    return awaited == null
        ? Step.SEND
        : new Step(null, awaited.end.thenApply(refusal -> decideAfter(entry, hits, refusal)));
  }

  /** Adds a key whose first check is sent. A full table keeps its keys. */
  private void add(String key, String domain, List<Descriptor> descriptors, long now) {
    if (!closed
        && entries.size() < KEYS_MAX
        && DescriptorKey.bytes(descriptors) <= DenialCache.DESCRIPTOR_BYTES_MAX) {
      entries.put(key, new Entry(domain, descriptors, now));
      scheduleRound();
    }
  }

  /** Decides a check that has waited for a lease. Returns null if it is sent. */
  private Decision decideAfter(Entry entry, long hits, Decision refusal) {
    synchronized (entries) {
      Decision decision = entry.take(hits, clock.getAsLong());
      if (decision == null && refusal != null && hits == 1) {
        entry.refused++;
        return refusal;
      }
      return decision;
    }
  }

  /** Records the answer to the call for a lease, or its failure. */
  private void finish(Entry entry, Granted granted, Throwable error) {
    Flight flight;
    boolean unimplemented =
        error instanceof TollgateException failure && failure.code() == Status.Code.UNIMPLEMENTED;
    synchronized (entries) {
      long now = clock.getAsLong();
      flight = entry.flight;
      if (error == null) {
        entry.answered(granted, now);
      } else if (unimplemented) {
        unimplementedUntil = now + UNIMPLEMENTED_FOR;
      } else {
        entry.noLeaseUntil = now + ROUND_NANOS;
      }
      entry.flight = null;
    }
    if (error != null && !unimplemented) {
      flight.end.completeExceptionally(error);
    } else {
      boolean refused = error == null && granted.leasable() && !granted.decision().allowed();
      flight.end.complete(refused ? granted.decision() : null);
    }
    flight.settled.complete(null);
  }

  /** Counts hits that the denial cache refused, if the key is in the table. */
  void refuse(String key, long hits) {
    synchronized (entries) {
      Entry entry = entries.get(key);
      if (entry != null) {
        entry.refused += hits;
        entry.used = clock.getAsLong();
      }
    }
  }

  /** Schedules the next round while there are keys. The caller holds the lock. */
  private void scheduleRound() {
    if (!roundIsScheduled && !closed && !entries.isEmpty()) {
      roundIsScheduled = true;
      calls.scheduleRound();
    }
  }

  /** Makes the round that was scheduled. */
  void runRound() {
    round();
    synchronized (entries) {
      roundIsScheduled = false;
      scheduleRound();
    }
  }

  /**
   * Gives back the hits of idle keys, says counts, and renews leases by their age.
   *
   * @return the end of its calls
   */
  CompletableFuture<?> round() {
    boolean mayRenew = calls.mayRenew();
    List<Entry> renewed = new ArrayList<>();
    List<Call> sent;
    synchronized (entries) {
      long now = clock.getAsLong();
      for (Iterator<Entry> all = entries.values().iterator(); all.hasNext(); ) {
        Entry entry = all.next();
        if (entry.flight != null) {
          continue;
        }
        Lease current = entry.current;
        if (now - entry.used >= IDLE_AFTER) {
          entry.empty(now);
          if (entry.noLeaseUntil - now <= 0) {
            all.remove();
          }
        } else if (Lease.has(entry.next, now, 1)
            && (current == null || current.end - now <= current.validity / LAST_PART)) {
          entry.advance(now);
        } else if (!Lease.has(current, now, 1)) {
          if (entry.tellAt - now <= 0 && !Lease.has(entry.next, now, 1)) {
            entry.tellAt = now + SECOND;
            entry.empty(now);
          }
        } else if (current.validity >= RENEWED_VALIDITY_MIN
            && current.end - now <= current.validity / LAST_PART
            && mayRenew
            && entry.mayLease(now)) {
          entry.prepare(1, now, true);
          renewed.add(entry);
        }
      }
      sent = returns;
      returns = new ArrayList<>();
    }
    return send(renewed, sent);
  }

  /** Sends renewals and returns in batches. Returns their end. */
  private CompletableFuture<?> send(List<Entry> renewed, List<Call> sent) {
    List<Call> all = new ArrayList<>(renewed.size() + sent.size());
    renewed.forEach(entry -> all.add(Call.newBuilder().setLease(entry.flight.request).build()));
    all.addAll(sent);
    List<CompletableFuture<?>> ends = new ArrayList<>();
    for (int start = 0; start < all.size(); start += BATCH_MAX) {
      int end = Math.min(start + BATCH_MAX, all.size());
      List<Entry> leases =
          renewed.subList(Math.min(start, renewed.size()), Math.min(end, renewed.size()));
      BatchRequest request = BatchRequest.newBuilder().addAllCalls(all.subList(start, end)).build();
      ends.add(
          CompletableFuture.completedFuture(request)
              .thenCompose(batch -> calls.batch(batch, !leases.isEmpty()))
              .handle(
                  (response, error) -> {
                    for (int at = 0; at < leases.size(); at++) {
                      finishOne(leases.get(at), response, at, TollgateClient.cause(error));
                    }
                    return null;
                  }));
    }
    return CompletableFuture.allOf(ends.toArray(CompletableFuture[]::new));
  }

  /** Records the answer to one lease of a batch. */
  private void finishOne(Entry entry, BatchResponse response, int at, Throwable error) {
    Granted granted = null;
    Throwable failure = error;
    if (failure == null) {
      try {
        granted = granted(response, at);
      } catch (TollgateException failed) {
        failure = failed;
      }
    }
    finish(entry, granted, failure);
  }

  private static Granted granted(BatchResponse response, int at) {
    Answer answer =
        at < response.getAnswersCount() ? response.getAnswers(at) : Answer.getDefaultInstance();
    if (answer.hasLease()) {
      return TollgateProtocol.granted(answer.getLease());
    }
    throw TollgateException.of(
        answer.hasFailure()
            ? Status.fromCodeValue(answer.getFailure().getCode())
                .withDescription(answer.getFailure().getMessage())
            : Status.INTERNAL.withDescription("the answer is not one of a lease"));
  }

  int size() {
    synchronized (entries) {
      return entries.size();
    }
  }

  /** Returns the end of the calls for leases that are in flight. */
  CompletableFuture<?> inFlight() {
    synchronized (entries) {
      return CompletableFuture.allOf(
          entries.values().stream()
              .filter(entry -> entry.flight != null)
              .map(entry -> entry.flight.settled)
              .toArray(CompletableFuture[]::new));
    }
  }

  /** Leases nothing more, and gives back all hits. Returns the end of the calls. */
  CompletableFuture<?> close() {
    synchronized (entries) {
      closed = true;
    }
    return inFlight()
        .thenCompose(
            ended -> {
              List<Call> sent;
              synchronized (entries) {
                long now = clock.getAsLong();
                entries.values().forEach(entry -> entry.empty(now));
                entries.clear();
                sent = returns;
                returns = new ArrayList<>();
              }
              return send(List.of(), sent);
            });
  }
}
