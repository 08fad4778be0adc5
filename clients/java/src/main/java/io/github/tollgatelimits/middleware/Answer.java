package io.github.tollgatelimits.middleware;

import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/**
 * What a request is answered.
 *
 * @param passes whether the request passes; without a status and a body if so
 * @param serviceFailed whether {@code OnError.DENY} refused it, because the server did not answer
 * @param limitHeaders rate limit headers of the response
 * @param retryAfter time of {@code Retry-After}; empty if there is none
 * @param status HTTP status
 * @param contentType content type of the body
 * @param body body
 */
public record Answer(
    boolean passes,
    boolean serviceFailed,
    Map<String, String> limitHeaders,
    Optional<Duration> retryAfter,
    int status,
    String contentType,
    String body) {
  /** Copies the headers. */
  public Answer {
    limitHeaders = Collections.unmodifiableMap(new LinkedHashMap<>(limitHeaders));
  }

  static Answer pass(Map<String, String> headers) {
    return new Answer(true, false, headers, Optional.empty(), 0, "", "");
  }

  /** Returns the headers of an HTTP response: those of the limits, and {@code Retry-After}. */
  public Map<String, String> httpHeaders() {
    if (retryAfter.isEmpty()) {
      return limitHeaders;
    }
    Map<String, String> headers = new LinkedHashMap<>(limitHeaders);
    headers.put("Retry-After", Long.toString(Math.max(secondsUp(retryAfter.get()), 1)));
    return headers;
  }

  /** Returns whole seconds, rounded up. */
  static long secondsUp(Duration time) {
    return time.getSeconds() + (time.getNano() > 0 ? 1 : 0);
  }
}
