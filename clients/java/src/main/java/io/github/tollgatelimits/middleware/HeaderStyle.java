package io.github.tollgatelimits.middleware;

import io.github.tollgatelimits.Limit;
import java.util.Map;

/** The rate limit headers of a response. */
public enum HeaderStyle {
  /** {@code RateLimit-Limit}, {@code RateLimit-Remaining} and {@code RateLimit-Reset}. */
  RATELIMIT("RateLimit-"),
  /** {@code X-RateLimit-Limit}, {@code X-RateLimit-Remaining} and {@code X-RateLimit-Reset}. */
  X_RATELIMIT("X-RateLimit-"),
  /** {@code RateLimit-Policy} and {@code RateLimit} of draft-ietf-httpapi-ratelimit-headers-10. */
  RATELIMIT_POLICY("");

  /** Seconds of the units of a window whose length is fixed. */
  private static final Map<String, Long> UNITS =
      Map.of("second", 1L, "minute", 60L, "hour", 3_600L, "day", 86_400L, "week", 604_800L);

  private final String limitName;
  private final String remainingName;
  private final String resetName;

  HeaderStyle(String prefix) {
    limitName = prefix + "Limit";
    remainingName = prefix + "Remaining";
    resetName = prefix + "Reset";
  }

  /** Adds the headers of a limit. */
  void add(Limit limit, Map<String, String> headers) {
    if (this == RATELIMIT_POLICY) {
      addPolicy(limit, headers);
      return;
    }
    headers.put(limitName, Long.toString(limit.requestsPerUnit()));
    headers.put(remainingName, Long.toString(limit.remaining()));
    if (limit.reset().isPresent()) {
      headers.put(resetName, Long.toString(Answer.secondsUp(limit.reset().get())));
    }
  }

  private static void addPolicy(Limit limit, Map<String, String> headers) {
    String name = quoted(limit.name());
    String reset = limit.reset().map(time -> ";t=" + Answer.secondsUp(time)).orElse("");
    headers.put(
        "RateLimit-Policy", name + ";q=" + limit.requestsPerUnit() + window(limit.window()));
    headers.put("RateLimit", name + ";r=" + limit.remaining() + reset);
  }

  /** Returns the name as a string of structured fields, which is printable ASCII. */
  private static String quoted(String name) {
    String known = name.matches("[ -~]+") ? name : "default";
    return '"' + known.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }

  /** Returns the length of a window such as {@code 15 minutes}; nothing of months and years. */
  private static String window(String window) {
    String[] parts = window.split(" ", 2);
    Long seconds = parts.length < 2 ? null : UNITS.get(parts[1].replaceFirst("s$", ""));
    return seconds == null || !parts[0].matches("\\d{1,9}")
        ? ""
        : ";w=" + Long.parseLong(parts[0]) * seconds;
  }
}
