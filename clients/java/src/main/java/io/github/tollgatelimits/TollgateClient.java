package io.github.tollgatelimits;

import io.github.tollgatelimits.internal.v1.BatchRequest;
import io.github.tollgatelimits.internal.v1.BatchResponse;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.LeaseRequest;
import io.grpc.Deadline;
import io.grpc.Status;
import io.opentelemetry.api.OpenTelemetry;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.LongSupplier;

/**
 * Client of the tollgate rate limit service. It is safe for use by many threads.
 *
 * <p>The methods without {@code Async} wait for at most the deadline of a call. If the waiting
 * thread is interrupted, they cancel the call, set the thread's interrupt flag, and throw a {@link
 * CancellationException}. The futures of the other methods complete on the thread of the
 * connections: code that depends on them must not block. Cancelling such a future cancels its call.
 */
public final class TollgateClient implements AutoCloseable {
  private final String defaultDomain;
  private final long deadlineNanos;
  private final OnError onError;
  private final UnknownDomain unknownDomain;
  private final CheckProtocol protocol;
  private final Connections connections;

  /** The stream of checks; null without batching. */
  private final CheckStream stream;

  private final Breaker breaker;
  private final DenialCache denialCache;

  /** Leases; null where the client uses none. */
  private final Leases leases;

  private final boolean leasesEveryCheck;
  private final Thread atExit = new Thread(this::returnLeases, "tollgate-client-exit");
  private final LocalBuckets localBuckets;
  private final Telemetry telemetry;
  private final FailureLog failures;
  private final AtomicBoolean closed = new AtomicBoolean();

  private TollgateClient(Builder options) {
    defaultDomain = options.domain;
    deadlineNanos = options.deadline.toNanos();
    onError = options.onError;
    unknownDomain = options.unknownDomain;
    protocol = options.protocol == Protocol.ENVOY ? new EnvoyProtocol() : new TollgateProtocol();
    breaker = new Breaker(options.breakerFailures, options.breakerOpen.toNanos(), options.clock);
    denialCache = new DenialCache(options.denialCacheEntries, options.clock);
    localBuckets = new LocalBuckets(options.localPerSecond, options.localBurst, options.clock);
    failures = new FailureLog(options.addresses, options.onError, options.clock);
    telemetry = options.telemetry == null ? Telemetry.detect() : options.telemetry;
    connections =
        new Connections(
            options.addresses,
            options.tls,
            options.keepaliveTime,
            options.keepaliveTimeout,
            options.httpProxy);
    stream = options.batching ? new CheckStream(connections, deadlineNanos) : null;
    leasesEveryCheck = Boolean.TRUE.equals(options.leases);
    if (protocol instanceof TollgateProtocol own && !Boolean.FALSE.equals(options.leases)) {
      leases = new Leases(options.clock, new LeaseCalls(own, options.leaseRounds));
      Runtime.getRuntime().addShutdownHook(atExit);
    } else {
      leases = null;
    }
  }

  /** Returns a new builder. Only the domain has no default. */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * Takes one hit from the limits of these descriptors.
   *
   * @throws IllegalStateException if the client is closed
   */
  public Decision check(Descriptor... descriptors) {
    return check(CheckRequest.of(descriptors));
  }

  /**
   * Takes hits. Without an answer of the server, {@link OnError} decides.
   *
   * @throws IllegalStateException if the client is closed
   */
  public Decision check(CheckRequest request) {
    return await(checkAsync(request));
  }

  /** As {@link #check(CheckRequest)}. The future does not fail because of the service. */
  public CompletableFuture<Decision> checkAsync(CheckRequest request) {
    requireOpen();
    if (request.dryRun() && protocol instanceof EnvoyProtocol) {
      throw new IllegalArgumentException("protocol ENVOY has no dry run; use TOLLGATE");
    }
    String domain = request.domain().orElse(defaultDomain);
    Timer timer = new Timer();
    Telemetry.Operation operation = telemetry.begin("check", domain);
    boolean leased =
        leases != null && (leasesEveryCheck || request.leases()) && Leases.canLease(request);
    String key =
        leased || denialCache.isEnabled() ? DescriptorKey.of(domain, request.descriptors()) : null;
    Leases.Step step = Leases.Step.SEND;
    Optional<Decision> found =
        key == null
            ? Optional.empty()
            : denialCache.find(key, request.descriptors(), request.hitsOrNull());
    if (leased && found.isPresent()) {
      leases.refuse(key, request.hits().orElse(1));
    } else if (leased) {
      step = leases.decide(key, domain, request.descriptors(), request.hits().orElse(1));
      found = Optional.ofNullable(step.decision());
    }
    if (found.isPresent()) {
      Decision decision = timer.stop(found.get());
      operation.decided(decision);
      return CompletableFuture.completedFuture(decision);
    }
    CompletableFuture<Decision> answer =
        step.later() != null
            ? afterLease(step.later(), domain, request)
            : guarded(
                wait ->
                    request.dryRun()
                        ? send(protocol.peek(domain, request), true, wait)
                        : sendCheck(domain, request, wait));
    return follow(
        answer,
        operation,
        decision -> {
          validateDomain(domain, decision);
          if (key != null && !decision.allowed()) {
            denialCache.remember(
                key,
                request.descriptors(),
                Hits.ofEach(request.descriptors(), request.hitsOrNull()),
                decision);
          }
          return timer.stop(decision);
        },
        error ->
            timer.stop(withoutAnswer(domain, request.descriptors(), request.hitsOrNull(), error)),
        operation::decided);
  }

  /** Waits for a lease. Without a hit in it, sends a check within the same deadline. */
  private CompletableFuture<Decision> afterLease(
      CompletableFuture<Decision> lease, String domain, CheckRequest request) {
    Deadline deadline = newDeadline();
    CompletableFuture<Decision> result = new CompletableFuture<>();
    cancelWith(result, lease);
    lease
        .thenCompose(
            decision -> {
              if (decision != null) {
                return CompletableFuture.completedFuture(decision);
              }
              CompletableFuture<Decision> check =
                  guarded(wait -> send(protocol.check(domain, request), false, wait, deadline));
              cancelWith(result, check);
              return check;
            })
        .whenComplete((decision, error) -> complete(result, decision, error));
    return result;
  }

  /**
   * Says what a check of one hit would answer, and takes nothing.
   *
   * @throws TollgateException if there is no answer
   * @throws IllegalStateException if the client is closed
   */
  public Decision peek(Descriptor... descriptors) {
    return peek(CheckRequest.of(descriptors));
  }

  /**
   * Says what a check would answer, and takes nothing. With {@link Protocol#ENVOY}, it says what a
   * check of 0 hits would answer.
   *
   * @throws TollgateException if there is no answer
   * @throws IllegalStateException if the client is closed
   */
  public Decision peek(CheckRequest request) {
    return await(peekAsync(request));
  }

  /** As {@link #peek(CheckRequest)}. The future fails with a {@link TollgateException}. */
  public CompletableFuture<Decision> peekAsync(CheckRequest request) {
    requireOpen();
    String domain = request.domain().orElse(defaultDomain);
    Timer timer = new Timer();
    Telemetry.Operation operation = telemetry.begin("peek", domain);
    return follow(
        guarded(wait -> send(protocol.peek(domain, request), true, wait)),
        operation,
        decision -> timer.stop(validateDomain(domain, decision)),
        TollgateClient::rethrow,
        operation::decided);
  }

  /**
   * Reserves hits, from all limits or from none. Without an answer of the server, {@link OnError}
   * decides, and nothing is reserved.
   *
   * @throws IllegalArgumentException if the protocol is {@link Protocol#ENVOY}
   * @throws IllegalStateException if the client is closed
   */
  public Reservation reserve(ReserveRequest request) {
    return await(reserveAsync(request));
  }

  /**
   * Reserves {@code hits} with the defaults of the rules, as {@link #reserve(ReserveRequest)}.
   *
   * @throws IllegalArgumentException if {@code hits} is negative or more than 9007199254740991
   */
  public Reservation reserve(long hits, Descriptor... descriptors) {
    return reserve(ReserveRequest.of(hits, descriptors));
  }

  /** As {@link #reserve(ReserveRequest)}. The future does not fail because of the service. */
  public CompletableFuture<Reservation> reserveAsync(ReserveRequest request) {
    requireOpen();
    TollgateProtocol own = ownProtocol();
    String domain = request.domain().orElse(defaultDomain);
    Timer timer = new Timer();
    Telemetry.Operation operation = telemetry.begin("reserve", domain);
    return follow(
        guarded(wait -> send(own.reserve(domain, request), false, wait)),
        operation,
        reserved ->
            new Reservation(
                this,
                domain,
                request.descriptors(),
                new TollgateProtocol.Reserved(
                    timer.stop(validateDomain(domain, reserved.decision())),
                    reserved.id(),
                    reserved.hits(),
                    reserved.expires())),
        error ->
            new Reservation(
                this,
                domain,
                request.descriptors(),
                new TollgateProtocol.Reserved(
                    timer.stop(
                        withoutAnswer(domain, request.descriptors(), request.hitsOrNull(), error)),
                    Optional.empty(),
                    0,
                    Optional.empty())),
        reservation -> operation.decided(reservation.decision()));
  }

  /** Commits, releases or extends. The breaker has no part in it. */
  CompletableFuture<Settlement> settle(
      String name, String domain, Function<TollgateProtocol, Rpc<?, ?, Settlement>> rpc) {
    requireOpen();
    Telemetry.Operation operation = telemetry.begin(name, domain);
    return follow(
        send(rpc.apply(ownProtocol()), true, false),
        operation,
        Function.identity(),
        TollgateClient::rethrow,
        settlement -> operation.settled());
  }

  /**
   * Waits until an address is connected. A program that calls it at its start spares its first
   * check the time of the connection.
   *
   * @return false if none is connected after {@code timeout}
   * @throws InterruptedException if the thread is interrupted
   * @throws IllegalStateException if the client is closed
   */
  public boolean ready(Duration timeout) throws InterruptedException {
    requireOpen();
    return connections.ready(timeout);
  }

  /**
   * Gives back the hits of leases, closes the connections and ends the client's threads. Calls in
   * flight end as calls without an answer. Later calls throw an {@link IllegalStateException}.
   * Closing twice is fine.
   */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      if (leases != null) {
        returnLeases();
        ignoreExit();
      }
      if (stream != null) {
        stream.close();
      }
      connections.close();
    }
  }

  /** Ends the leases. Waits for the answer to their return, unless that needs this thread. */
  private void returnLeases() {
    CompletableFuture<?> returned = leases.close();
    if (connections.isOnThread()) {
      return;
    }
    try {
      returned.get(deadlineNanos, TimeUnit.NANOSECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException | TimeoutException lost) {
      // The hits stay taken until the lease ends.
    }
  }

  private void ignoreExit() {
    try {
      Runtime.getRuntime().removeShutdownHook(atExit);
    } catch (IllegalStateException exiting) {
      // The hook runs or has run.
    }
  }

  /** Makes a round of leases. For tests, which turn the timer off. */
  void runLeaseRound() {
    if (leases != null) {
      await(leases.round());
    }
  }

  /** Waits for the calls for leases in the background. For tests. */
  void awaitLeases() {
    if (leases != null) {
      await(leases.inFlight());
    }
  }

  /** The calls of leases. */
  private final class LeaseCalls implements Leases.Calls {
    /** The least time of a batch. No check waits for it. */
    private static final long BATCH_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final TollgateProtocol own;
    private final boolean timer;

    LeaseCalls(TollgateProtocol own, boolean timer) {
      this.own = own;
      this.timer = timer;
    }

    @Override
    public CompletableFuture<Leases.Granted> lease(LeaseRequest request) {
      return guarded(wait -> send(own.lease(request), false, wait));
    }

    @Override
    public CompletableFuture<BatchResponse> batch(BatchRequest request, boolean hasLeases) {
      Deadline deadline =
          Deadline.after(Math.max(deadlineNanos, BATCH_NANOS), TimeUnit.NANOSECONDS);
      // As other calls that settle, returns do not ask the breaker.
      return hasLeases
          ? guarded(wait -> send(own.batch(request), false, wait, deadline))
          : send(own.batch(request), false, false, deadline);
    }

    @Override
    public boolean mayRenew() {
      return breaker.isClosed();
    }

    @Override
    public void scheduleRound() {
      if (timer) {
        connections.schedule(leases::runRound, Leases.ROUND_NANOS);
      }
    }
  }

  boolean isClosed() {
    return closed.get();
  }

  private void requireOpen() {
    if (closed.get()) {
      throw new IllegalStateException("the tollgate client is closed");
    }
  }

  /** Throws if no rules have the domain, and that is an error. */
  private Decision validateDomain(String domain, Decision decision) {
    if (unknownDomain == UnknownDomain.ERROR
        && decision.noLimit().equals(Optional.of(NoLimit.UNKNOWN_DOMAIN))) {
      throw new IllegalArgumentException(
          "no rules have the domain \"" + domain + "\"; add rules for it, or correct the domain");
    }
    return decision;
  }

  private TollgateProtocol ownProtocol() {
    if (protocol instanceof TollgateProtocol own) {
      return own;
    }
    throw new IllegalArgumentException("protocol ENVOY has no reservations; use TOLLGATE");
  }

  /** A call that is not made yet. */
  @FunctionalInterface
  private interface GuardedCall<R> {
    /**
     * Sends the call.
     *
     * @param wait whether to wait for a connection if none can be made now
     */
    CompletableFuture<R> send(boolean wait);
  }

  /** Sends a call if the breaker permits it, and reports its outcome to the breaker. */
  private <R> CompletableFuture<R> guarded(GuardedCall<R> call) {
    Optional<Breaker.Permit> acquired = breaker.acquire();
    if (acquired.isEmpty()) {
      return CompletableFuture.failedFuture(TollgateException.breakerIsOpen());
    }
    Breaker.Permit permit = acquired.get();
    CompletableFuture<R> answer;
    try {
      answer = call.send(permit.isProbe());
    } catch (RuntimeException error) {
      permit.cancelled();
      throw error;
    }
    CompletableFuture<R> result = new CompletableFuture<>();
    cancelWith(result, answer);
    answer.whenComplete(
        (value, error) -> {
          // Before the caller goes on: its next call sees the new state of the breaker.
          report(permit, error);
          complete(result, value, error);
        });
    return result;
  }

  private static <R> void complete(CompletableFuture<R> result, R value, Throwable error) {
    if (error == null) {
      result.complete(value);
    } else {
      result.completeExceptionally(error);
    }
  }

  private static void report(Breaker.Permit permit, Throwable error) {
    if (error == null) {
      permit.answered();
    } else if (!(cause(error) instanceof TollgateException failure) || failure.isQueueFull()) {
      permit.cancelled();
    } else if (failure.isServiceFailure()) {
      permit.failed(failure);
    } else {
      permit.answered();
    }
  }

  /** Sends a check, over the stream if there is one. */
  private CompletableFuture<Decision> sendCheck(String domain, CheckRequest request, boolean wait) {
    if (stream == null) {
      return send(protocol.check(domain, request), false, wait);
    }
    var rpc = ownProtocol().check(domain, request);
    CompletableFuture<Decision> result = new CompletableFuture<>();
    CompletableFuture<CheckResponse> call = stream.check(rpc.request(), wait);
    cancelWith(result, call);
    call.whenComplete(
        (answer, error) -> {
          if (error == null) {
            completeDecoded(result, rpc, answer);
          } else {
            result.completeExceptionally(error);
          }
        });
    return result;
  }

  /**
   * Sends a call, and once more after {@code UNAVAILABLE} if it is repeatable.
   *
   * @param wait whether to wait for a connection if none can be made now
   */
  private <Q, A, R> CompletableFuture<R> send(Rpc<Q, A, R> rpc, boolean repeatable, boolean wait) {
    return send(rpc, repeatable, wait, newDeadline());
  }

  private Deadline newDeadline() {
    return Deadline.after(deadlineNanos, TimeUnit.NANOSECONDS);
  }

  private <Q, A, R> CompletableFuture<R> send(
      Rpc<Q, A, R> rpc, boolean repeatable, boolean wait, Deadline deadline) {
    CompletableFuture<R> result = new CompletableFuture<>();
    attempt(rpc, repeatable, wait, deadline, result);
    return result;
  }

  private <Q, A, R> void attempt(
      Rpc<Q, A, R> rpc,
      boolean repeatable,
      boolean wait,
      Deadline deadline,
      CompletableFuture<R> result) {
    UnaryCall<A> call = connections.call(rpc.method(), rpc.request(), deadline, wait);
    cancelWith(result, call);
    call.whenComplete(
        (answer, error) -> {
          if (error == null) {
            completeDecoded(result, rpc, answer);
          } else if (repeatable && isUnavailable(error) && !result.isDone() && !closed.get()) {
            attempt(rpc, false, true, deadline, result);
          } else {
            result.completeExceptionally(error);
          }
        });
  }

  private static boolean isUnavailable(Throwable error) {
    return error instanceof TollgateException failure && failure.code() == Status.Code.UNAVAILABLE;
  }

  private static <A, R> void completeDecoded(
      CompletableFuture<R> result, Rpc<?, A, R> rpc, A answer) {
    try {
      result.complete(rpc.decode().apply(answer));
    } catch (RuntimeException error) {
      result.completeExceptionally(error);
    }
  }

  /** Turns the outcome of a call into the result of the caller, and ends its telemetry. */
  private static <A, R> CompletableFuture<R> follow(
      CompletableFuture<A> answer,
      Telemetry.Operation operation,
      Function<A, R> onAnswer,
      Function<TollgateException, R> onFailure,
      Consumer<R> onResult) {
    CompletableFuture<R> result = new CompletableFuture<>();
    cancelWith(result, answer);
    answer.whenComplete(
        (value, error) -> {
          try {
            R outcome;
            if (error == null) {
              outcome = onAnswer.apply(value);
            } else if (cause(error) instanceof TollgateException failure) {
              outcome = onFailure.apply(failure);
            } else {
              operation.failed(cause(error));
              result.completeExceptionally(cause(error));
              return;
            }
            onResult.accept(outcome);
            result.complete(outcome);
          } catch (RuntimeException failure) {
            operation.failed(failure);
            result.completeExceptionally(failure);
          }
        });
    return result;
  }

  /** Cancels {@code inner} when {@code outer} is cancelled. */
  private static void cancelWith(CompletableFuture<?> outer, CompletableFuture<?> inner) {
    outer.whenComplete(
        (ignored, error) -> {
          if (outer.isCancelled()) {
            inner.cancel(true);
          }
        });
  }

  private static <R> R rethrow(TollgateException error) {
    throw error;
  }

  /** Returns an error without what futures put around it. */
  static Throwable cause(Throwable error) {
    return error instanceof CompletionException && error.getCause() != null
        ? error.getCause()
        : error;
  }

  private Decision withoutAnswer(
      String domain, List<Descriptor> descriptors, Long hits, TollgateException error) {
    if (!closed.get()) {
      TollgateException opened = error.breakerOpen() ? breaker.cause() : null;
      failures.decided(opened == null ? error : opened);
    }
    return switch (onError) {
      case ALLOW -> Decision.withoutAnswer(true, Source.ALLOW, Optional.empty(), error);
      case DENY -> Decision.withoutAnswer(false, Source.DENY, Optional.empty(), error);
      case LOCAL ->
          localBuckets.decide(
              DescriptorKey.of(domain, descriptors), Hits.most(descriptors, hits), error);
    };
  }

  int denialCacheSize() {
    return denialCache.size();
  }

  static <R> R await(CompletableFuture<R> future) {
    try {
      return future.get();
    } catch (InterruptedException interrupted) {
      future.cancel(true);
      Thread.currentThread().interrupt();
      throw new CancellationException("interrupted while waiting for tollgate");
    } catch (ExecutionException error) {
      if (error.getCause() instanceof RuntimeException unchecked) {
        throw unchecked;
      }
      throw new IllegalStateException("tollgate call failed", error.getCause());
    }
  }

  private static final class Timer {
    private final long started = System.nanoTime();

    Decision stop(Decision decision) {
      return decision.withElapsed(Duration.ofNanos(System.nanoTime() - started));
    }
  }

  /** Builds a {@link TollgateClient}. */
  public static final class Builder {
    private static final Duration DURATION_MAX = Duration.ofDays(365);

    private List<String> addresses = List.of("localhost:8081");
    private String domain;
    private Protocol protocol = Protocol.TOLLGATE;
    private Duration deadline = Duration.ofMillis(100);
    private TlsOptions tls;
    private Duration keepaliveTime = Duration.ofSeconds(30);
    private Duration keepaliveTimeout = Duration.ofSeconds(10);
    private OnError onError = OnError.ALLOW;
    private UnknownDomain unknownDomain = UnknownDomain.ALLOW;
    private long localPerSecond = 10;
    private long localBurst = 10;
    private int breakerFailures = 5;
    private Duration breakerOpen = Duration.ofSeconds(1);
    private int denialCacheEntries = 10_000;
    private Boolean leases;
    private boolean leaseRounds = true;
    private boolean batching;
    private boolean httpProxy;
    private LongSupplier clock = System::nanoTime;
    private Telemetry telemetry;

    private Builder() {}

    /** Sets one or several {@code host:port}. Default: {@code localhost:8081}. */
    public Builder addresses(String... addresses) {
      return addresses(List.of(addresses));
    }

    /** Sets one or several {@code host:port}. Default: {@code localhost:8081}. */
    public Builder addresses(List<String> addresses) {
      if (addresses.isEmpty()) {
        throw new IllegalArgumentException("addresses must not be empty");
      }
      addresses.forEach(Connections::parse);
      this.addresses = List.copyOf(addresses);
      return this;
    }

    /** Sets the domain of calls that name none. Required. */
    public Builder domain(String domain) {
      this.domain = Objects.requireNonNull(domain, "domain");
      return this;
    }

    /** Sets the gRPC service to call. Default: {@link Protocol#TOLLGATE}. */
    public Builder protocol(Protocol protocol) {
      this.protocol = Objects.requireNonNull(protocol, "protocol");
      return this;
    }

    /** Sets the longest wait of a call, connecting included. Default: 100 ms. */
    public Builder deadline(Duration deadline) {
      this.deadline = requirePositive("deadline", deadline);
      return this;
    }

    /** Sets TLS. Default: off. */
    public Builder tls(TlsOptions tls) {
      this.tls = Objects.requireNonNull(tls, "tls");
      return this;
    }

    /**
     * Sets the interval of pings on a connection with calls in flight, and the wait for the answer.
     * gRPC raises an interval below 10 s to 10 s. Default: 30 s, 10 s.
     */
    public Builder keepalive(Duration interval, Duration timeout) {
      this.keepaliveTime = requirePositive("keepalive interval", interval);
      this.keepaliveTimeout = requirePositive("keepalive timeout", timeout);
      return this;
    }

    /** Sets what decides without an answer. Default: {@link OnError#ALLOW}. */
    public Builder onError(OnError onError) {
      this.onError = Objects.requireNonNull(onError, "onError");
      return this;
    }

    /**
     * Sets what becomes of a check, a peek or a reservation whose domain no rules have. With {@link
     * UnknownDomain#ERROR} it fails with an {@link IllegalArgumentException}; the breaker and
     * {@link OnError} have no part in that. It needs {@link Protocol#TOLLGATE}. Default: {@link
     * UnknownDomain#ALLOW}.
     */
    public Builder unknownDomain(UnknownDomain unknownDomain) {
      this.unknownDomain = Objects.requireNonNull(unknownDomain, "unknownDomain");
      return this;
    }

    /**
     * Sets the token bucket of {@link OnError#LOCAL}, for each list of descriptors. Both are from 1
     * to 1,000,000,000. Default: 10 a second, burst 10.
     */
    public Builder local(long perSecond, long burst) {
      requireRange("local rate", perSecond, 1, LocalBuckets.RATE_MAX);
      requireRange("local burst", burst, 1, LocalBuckets.RATE_MAX);
      this.localPerSecond = perSecond;
      this.localBurst = burst;
      return this;
    }

    /**
     * Sets the failures in a row that open the circuit breaker, at least 1, and the time until it
     * lets one call through. Default: 5, 1 s.
     */
    public Builder breaker(int failures, Duration open) {
      requireRange("breaker failures", failures, 1, Integer.MAX_VALUE);
      this.breakerFailures = failures;
      this.breakerOpen = requirePositive("breaker time", open);
      return this;
    }

    /** Sets the bound of the denial cache. 0 turns it off. Default: 10,000. */
    public Builder denialCacheEntries(int entries) {
      requireRange("denial cache entries", entries, 0, Integer.MAX_VALUE);
      this.denialCacheEntries = entries;
      return this;
    }

    /**
     * Sets whether checks take hits from leases, without a call: for all checks, or for none.
     * {@link Protocol#ENVOY} has no leases. Default: for those of the middleware, and those that
     * say so by {@link CheckRequest.Builder#leases}.
     */
    public Builder leases(boolean leases) {
      this.leases = leases;
      return this;
    }

    /** Turns the timer of returns off. */
    Builder withoutLeaseRounds() {
      this.leaseRounds = false;
      return this;
    }

    /**
     * Sends concurrent checks over one stream: at most 64 in progress, and at most 1,024 that wait
     * for a place within their deadline. A check beyond that has no answer. The stream uses one
     * address at a time. It needs {@link Protocol#TOLLGATE}. Default: off.
     */
    public Builder batching(boolean batching) {
      this.batching = batching;
      return this;
    }

    /**
     * Connects by the HTTP proxy that the runtime names, such as {@code https.proxyHost}. Default:
     * off.
     */
    public Builder httpProxy(boolean httpProxy) {
      this.httpProxy = httpProxy;
      return this;
    }

    /**
     * Sets the clock of the breaker, the denial cache, leases, the local bucket and the log, in
     * nanoseconds from any start. It must not run backwards. Default: {@link System#nanoTime}.
     */
    public Builder clock(LongSupplier clock) {
      this.clock = Objects.requireNonNull(clock, "clock");
      return this;
    }

    /**
     * Sets OpenTelemetry. Default: the global one, as it is at the first call, if the program has
     * OpenTelemetry's API.
     */
    public Builder openTelemetry(OpenTelemetry openTelemetry) {
      this.telemetry = OpenTelemetryTelemetry.of(openTelemetry);
      return this;
    }

    /** Turns spans and metrics off. */
    public Builder withoutTelemetry() {
      this.telemetry = Telemetry.NONE;
      return this;
    }

    /**
     * Returns the client, which begins to connect.
     *
     * @throws IllegalArgumentException if there is no domain, a TLS file cannot be read, or
     *     batching or {@link UnknownDomain#ERROR} is on with {@link Protocol#ENVOY}
     */
    public TollgateClient build() {
      if (domain == null || domain.isEmpty()) {
        throw new IllegalArgumentException("domain is required");
      }
      if (batching && protocol != Protocol.TOLLGATE) {
        throw new IllegalArgumentException("batching needs protocol TOLLGATE");
      }
      if (unknownDomain == UnknownDomain.ERROR && protocol != Protocol.TOLLGATE) {
        throw new IllegalArgumentException("unknownDomain ERROR needs protocol TOLLGATE");
      }
      return new TollgateClient(this);
    }

    private static Duration requirePositive(String name, Duration duration) {
      if (duration.isNegative() || duration.isZero() || duration.compareTo(DURATION_MAX) > 0) {
        throw new IllegalArgumentException(name + " must be from 1 ns to 365 days: " + duration);
      }
      return duration;
    }

    private static void requireRange(String name, long value, long least, long most) {
      if (value < least || value > most) {
        throw new IllegalArgumentException(
            name + " must be from " + least + " to " + most + ": " + value);
      }
    }
  }
}
