package io.github.tollgatelimits.middleware;

import io.github.tollgatelimits.CheckRequest;
import io.github.tollgatelimits.Decision;
import io.github.tollgatelimits.Descriptor;
import io.github.tollgatelimits.Limit;
import io.github.tollgatelimits.Source;
import io.github.tollgatelimits.TollgateClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;

/**
 * Options of a middleware: the check of a request, and its answer.
 *
 * @param <R> type of the framework's requests
 */
public final class LimitOptions<R> {
  private static final System.Logger LOGGER = System.getLogger(LimitOptions.class.getName());
  private static final String PLAIN_TEXT = "text/plain; charset=utf-8";
  private static final Duration ERROR_RETRY = Duration.ofSeconds(1);

  private final List<List<RequestEntry<? super R>>> descriptors;
  private final Optional<ToLongFunction<? super R>> hits;
  private final TrustedProxies trustedProxies;
  private final List<PathTemplate> skipPaths;
  private final Predicate<? super R> skip;
  private final boolean shadow;
  private final Count count;
  private final Set<HeaderStyle> headers;
  private final int status;
  private final String body;
  private final String contentType;
  private final int errorStatus;
  private final BiConsumer<? super R, Decision> onDecision;

  private LimitOptions(Builder<R> options) {
    descriptors = List.copyOf(options.descriptors);
    hits = options.hits;
    trustedProxies = options.trustedProxies;
    skipPaths = List.copyOf(options.skipPaths);
    skip = options.skip;
    shadow = options.shadow;
    count = options.count;
    headers = options.headers.clone();
    status = options.status;
    body = options.body;
    contentType = options.contentType;
    errorStatus = options.errorStatus;
    onDecision = options.onDecision;
  }

  /** Returns a new builder. */
  public static <R> Builder<R> builder() {
    return new Builder<>();
  }

  /** Returns the check of a request; empty if it passes without one. */
  public Optional<CheckRequest> checkOf(RequestView view, R request) {
    if (skipsPath(view) || skip.test(request)) {
      return Optional.empty();
    }
    List<Descriptor> present = new ArrayList<>(descriptors.size());
    for (List<RequestEntry<? super R>> entries : descriptors) {
      Descriptor descriptor = descriptor(entries, view, request);
      if (descriptor != null) {
        present.add(descriptor);
      }
    }
    if (present.isEmpty()) {
      return Optional.empty();
    }
    OptionalLong taken =
        hits.isPresent() ? OptionalLong.of(hits.get().applyAsLong(request)) : OptionalLong.empty();
    // Dry runs see leased hits as taken, and lease none.
    boolean leases = count == Count.ALL;
    return Optional.of(new CheckRequest(Optional.empty(), present, taken, !leases, leases));
  }

  private boolean skipsPath(RequestView view) {
    if (skipPaths.isEmpty()) {
      return false;
    }
    String path = RequestEntry.withoutQuery(view.path());
    return skipPaths.stream().anyMatch(template -> template.matches(path));
  }

  /** Returns the descriptor of a request; null if an entry has no value. */
  private Descriptor descriptor(
      List<RequestEntry<? super R>> entries, RequestView view, R request) {
    List<Descriptor.Entry> values = new ArrayList<>(entries.size());
    for (RequestEntry<? super R> entry : entries) {
      Optional<String> value = entry.value(view, request, trustedProxies);
      if (value.isEmpty()) {
        return null;
      }
      values.add(new Descriptor.Entry(entry.key(), value.get()));
    }
    return new Descriptor(values, OptionalLong.empty());
  }

  /** Calls the function {@code onDecision}. If it fails, that is logged only. */
  public void notifyDecision(R request, Decision decision) {
    try {
      onDecision.accept(request, decision);
    } catch (RuntimeException error) {
      LOGGER.log(System.Logger.Level.WARNING, "onDecision failed", error);
    }
  }

  /**
   * Takes the hits of a request that passed and has ended, if its outcome counts. Does not wait for
   * the answer.
   *
   * @param check the check of the request, see {@link #checkOf}
   * @param failed whether the request failed
   */
  public void ended(TollgateClient client, CheckRequest check, Decision decision, boolean failed) {
    // Nothing is counted without the service.
    if (!check.dryRun() || decision.error().isPresent() || failed != (count == Count.FAILED)) {
      return;
    }
    try {
      client.checkAsync(check.withDryRun(false));
    } catch (IllegalStateException closed) {
      // The program ends.
    }
  }

  /** Returns the answer to a request. */
  public Answer answer(Decision decision) {
    if (shadow) {
      return Answer.pass(Map.of());
    }
    if (decision.allowed()) {
      return Answer.pass(limitHeaders(decision));
    }
    if (decision.source() == Source.DENY) {
      return new Answer(
          false,
          true,
          Map.of(),
          Optional.of(ERROR_RETRY),
          errorStatus,
          PLAIN_TEXT,
          "Service Unavailable");
    }
    return new Answer(
        false, false, limitHeaders(decision), decision.retryAfter(), status, contentType, body);
  }

  private Map<String, String> limitHeaders(Decision decision) {
    Map<String, String> fields = new LinkedHashMap<>();
    Optional<Limit> limit = decision.tightestLimit();
    if (limit.isPresent()) {
      for (HeaderStyle style : headers) {
        style.add(limit.get(), fields);
      }
    }
    return fields;
  }

  /**
   * Builds {@link LimitOptions}.
   *
   * @param <R> type of the framework's requests
   */
  public static final class Builder<R> {
    private final List<List<RequestEntry<? super R>>> descriptors = new ArrayList<>();
    private Optional<ToLongFunction<? super R>> hits = Optional.empty();
    private TrustedProxies trustedProxies = new TrustedProxies(List.of());
    private List<PathTemplate> skipPaths = List.of();
    private Predicate<? super R> skip = request -> false;
    private boolean shadow;
    private Count count = Count.ALL;
    private EnumSet<HeaderStyle> headers = EnumSet.of(HeaderStyle.RATELIMIT);
    private int status = 429;
    private String body = "Too Many Requests";
    private String contentType = PLAIN_TEXT;
    private int errorStatus = 503;
    private BiConsumer<? super R, Decision> onDecision = (request, decision) -> {};

    private Builder() {}

    /** Adds a descriptor with these entries. Without descriptors, requests are not checked. */
    @SafeVarargs
    public final Builder<R> descriptor(RequestEntry<? super R>... entries) {
      return descriptor(Arrays.asList(entries));
    }

    /** Adds a descriptor with these entries. Without descriptors, requests are not checked. */
    public Builder<R> descriptor(List<? extends RequestEntry<? super R>> entries) {
      if (entries.isEmpty()) {
        throw new IllegalArgumentException("a descriptor needs an entry");
      }
      descriptors.add(List.copyOf(entries));
      return this;
    }

    /** Sets the hits of each request, 0 to 9007199254740991. Default: 1. */
    public Builder<R> hits(long hits) {
      CheckRequest.builder().hits(hits).build();
      return hits(request -> hits);
    }

    /** Sets a function that returns the hits of a request, 0 to 9007199254740991. */
    public Builder<R> hits(ToLongFunction<? super R> hits) {
      this.hits = Optional.of(hits);
      return this;
    }

    /** Sets the trusted proxies: addresses and CIDR blocks. Default: none. */
    public Builder<R> trustedProxies(String... proxies) {
      return trustedProxies(List.of(proxies));
    }

    /** Sets the trusted proxies: addresses and CIDR blocks. Default: none. */
    public Builder<R> trustedProxies(Collection<String> proxies) {
      trustedProxies = new TrustedProxies(proxies);
      return this;
    }

    /** Sets templates of the paths that pass without a check. Default: none. */
    public Builder<R> skipPaths(String... templates) {
      return skipPaths(List.of(templates));
    }

    /** Sets templates of the paths that pass without a check. Default: none. */
    public Builder<R> skipPaths(Collection<String> templates) {
      skipPaths = templates.stream().map(PathTemplate::new).toList();
      return this;
    }

    /** Sets which requests pass without a check. Default: none. */
    public Builder<R> skip(Predicate<? super R> skip) {
      this.skip = Objects.requireNonNull(skip, "skip");
      return this;
    }

    /** Sets whether requests are checked, but always pass, without headers. Default: false. */
    public Builder<R> shadow(boolean shadow) {
      this.shadow = shadow;
      return this;
    }

    /**
     * Sets which requests take hits. With {@link Count#FAILED} and {@link Count#SUCCESSFUL} a
     * request is checked by a dry run, and takes hits once it has a status: it failed with 400 or
     * more, in gRPC with any status but OK, or without a response. Default: {@link Count#ALL}.
     */
    public Builder<R> count(Count count) {
      this.count = Objects.requireNonNull(count, "count");
      return this;
    }

    /** Sets the rate limit headers; none to add none. Default: {@link HeaderStyle#RATELIMIT}. */
    public Builder<R> headers(HeaderStyle... styles) {
      return headers(List.of(styles));
    }

    /** Sets the rate limit headers; none to add none. Default: {@link HeaderStyle#RATELIMIT}. */
    public Builder<R> headers(Collection<HeaderStyle> styles) {
      headers = EnumSet.noneOf(HeaderStyle.class);
      headers.addAll(styles);
      return this;
    }

    /** Sets the HTTP status of a refused request, 400 to 599. Default: 429. */
    public Builder<R> status(int status) {
      this.status = requireStatus(status);
      return this;
    }

    /** Sets the body of a refused request, and its content type. Default: a plain text. */
    public Builder<R> body(String body, String contentType) {
      this.body = Objects.requireNonNull(body, "body");
      this.contentType = Objects.requireNonNull(contentType, "contentType");
      return this;
    }

    /** Sets the HTTP status of a request that {@code OnError.DENY} refuses. Default: 503. */
    public Builder<R> errorStatus(int status) {
      this.errorStatus = requireStatus(status);
      return this;
    }

    /** Sets a function that is called after each check. If it fails, that is logged only. */
    public Builder<R> onDecision(BiConsumer<? super R, Decision> onDecision) {
      this.onDecision = Objects.requireNonNull(onDecision, "onDecision");
      return this;
    }

    /** Returns the options. */
    public LimitOptions<R> build() {
      return new LimitOptions<>(this);
    }

    private static int requireStatus(int status) {
      if (status < 400 || status > 599) {
        throw new IllegalArgumentException("status must be from 400 to 599: " + status);
      }
      return status;
    }
  }
}
