package io.github.tollgatelimits.middleware;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;

/**
 * An entry of a descriptor: its key, and where its value comes from.
 *
 * <p>If a request has no such value, the default is used. Without a default, the descriptor of the
 * entry is left out.
 *
 * @param <R> type of the framework's requests
 */
public final class RequestEntry<R> {
  private final String key;
  private final ValueSource<R> source;
  private final Optional<String> fallback;

  @FunctionalInterface
  private interface ValueSource<R> {
    Optional<String> value(RequestView view, R request, TrustedProxies proxies);
  }

  private RequestEntry(String key, ValueSource<R> source, Optional<String> fallback) {
    this.key = Objects.requireNonNull(key, "key");
    this.source = source;
    this.fallback = fallback;
  }

  private static <R> RequestEntry<R> of(String key, ValueSource<R> source) {
    return new RequestEntry<>(key, source, Optional.empty());
  }

  /** Returns an entry with a fixed value. */
  public static RequestEntry<Object> value(String key, String value) {
    Optional<String> fixed = Optional.of(value);
    return of(key, (view, request, proxies) -> fixed);
  }

  /** Returns an entry with the values of a header, joined by commas. An empty one is missing. */
  public static RequestEntry<Object> header(String key, String header) {
    Objects.requireNonNull(header, "header");
    return of(
        key,
        (view, request, proxies) ->
            Optional.of(String.join(",", view.headers(header))).filter(text -> !text.isEmpty()));
  }

  /** Returns an entry with the HTTP method, {@code POST} in gRPC. */
  public static RequestEntry<Object> method(String key) {
    return of(key, (view, request, proxies) -> Optional.of(view.method()));
  }

  /** Returns an entry with the path as it was sent, without the query. */
  public static RequestEntry<Object> path(String key) {
    return of(key, (view, request, proxies) -> Optional.of(withoutQuery(view.path())));
  }

  /**
   * Returns an entry with the first template that matches the path.
   *
   * @param templates such as {@code /users/{id}} or {@code /static/{rest...}}
   */
  public static RequestEntry<Object> pathTemplate(String key, String... templates) {
    List<PathTemplate> parsed = Arrays.stream(templates).map(PathTemplate::new).toList();
    return of(
        key,
        (view, request, proxies) -> {
          String path = withoutQuery(view.path());
          return parsed.stream()
              .filter(template -> template.matches(path))
              .findFirst()
              .map(PathTemplate::toString);
        });
  }

  /** Returns an entry with the address of the client, behind the trusted proxies. */
  public static RequestEntry<Object> remoteAddress(String key) {
    return of(key, (view, request, proxies) -> proxies.clientAddress(view));
  }

  /** Returns an entry with the result of a function; null: the value is missing. */
  public static <R> RequestEntry<R> function(String key, Function<? super R, String> function) {
    Objects.requireNonNull(function, "function");
    return of(key, (view, request, proxies) -> Optional.ofNullable(function.apply(request)));
  }

  /** Returns this entry with a default for requests that have no value. */
  public RequestEntry<R> withDefault(String value) {
    return new RequestEntry<>(key, source, Optional.of(value));
  }

  String key() {
    return key;
  }

  Optional<String> value(RequestView view, R request, TrustedProxies proxies) {
    Optional<String> value = source.value(view, request, proxies);
    return value.isPresent() ? value : fallback;
  }

  static String withoutQuery(String path) {
    int query = path.indexOf('?');
    return query < 0 ? path : path.substring(0, query);
  }
}
