package io.github.tollgatelimits.middleware;

import java.util.List;

/**
 * A template of paths, such as {@code /users/{id}} or {@code /static/{rest...}}.
 *
 * <p>{@code {name}} matches one segment that is not empty. {@code {name...}} at the end matches the
 * rest, which may be empty. Everything else matches as it is written.
 */
final class PathTemplate {
  private final String text;
  private final List<String> segments;
  private final boolean open;

  PathTemplate(String text) {
    this.text = text;
    List<String> all = List.of(text.split("/", -1));
    String last = all.get(all.size() - 1);
    open = last.startsWith("{") && last.endsWith("...}");
    segments = open ? all.subList(0, all.size() - 1) : all;
  }

  boolean matches(String path) {
    // With a rest, one more segment follows, which may be empty.
    String[] parts = path.split("/", open ? segments.size() + 1 : -1);
    if (parts.length != segments.size() + (open ? 1 : 0)) {
      return false;
    }
    for (int at = 0; at < segments.size(); at++) {
      String segment = segments.get(at);
      boolean variable = segment.startsWith("{") && segment.endsWith("}");
      if (variable ? parts[at].isEmpty() : !segment.equals(parts[at])) {
        return false;
      }
    }
    return true;
  }

  @Override
  public String toString() {
    return text;
  }
}
