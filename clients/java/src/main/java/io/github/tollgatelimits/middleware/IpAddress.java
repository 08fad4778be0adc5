package io.github.tollgatelimits.middleware;

import java.util.Arrays;
import java.util.Optional;

/** An IP address. An IPv4 address mapped to IPv6 is the IPv4 address. A zone is dropped. */
final class IpAddress {
  private static final int GROUPS = 8;
  private static final int MAPPED_PREFIX = 12;
  private static final int PORT_MAX = 65_535;

  private final byte[] bytes;

  private IpAddress(byte[] bytes) {
    this.bytes = bytes;
  }

  /** Parses an address without a port. Names are not resolved. */
  static Optional<IpAddress> parse(String text) {
    int zone = text.indexOf('%');
    byte[] bytes =
        text.indexOf(':') >= 0 ? parseV6(zone < 0 ? text : text.substring(0, zone)) : parseV4(text);
    return bytes == null ? Optional.empty() : Optional.of(new IpAddress(unmapped(bytes)));
  }

  /** Parses {@code 1.2.3.4}, {@code 1.2.3.4:80}, {@code ::1}, {@code [::1]} or {@code [::1]:80}. */
  static Optional<IpAddress> parseWithPort(String text) {
    if (text.startsWith("[")) {
      int end = text.indexOf(']');
      if (end < 0 || text.lastIndexOf(':', end) < 0 || !isPortSuffix(text.substring(end + 1))) {
        return Optional.empty();
      }
      return parse(text.substring(1, end));
    }
    int colon = text.indexOf(':');
    if (colon >= 0 && colon == text.lastIndexOf(':')) {
      return isPortSuffix(text.substring(colon))
          ? parse(text.substring(0, colon))
          : Optional.empty();
    }
    return parse(text);
  }

  private static boolean isPortSuffix(String text) {
    if (text.isEmpty()) {
      return true;
    }
    int digits = text.length() - 1;
    if (text.charAt(0) != ':' || digits < 1 || digits > 5) {
      return false;
    }
    int port = 0;
    for (int at = 1; at < text.length(); at++) {
      char digit = text.charAt(at);
      if (digit < '0' || digit > '9') {
        return false;
      }
      port = port * 10 + digit - '0';
    }
    return port <= PORT_MAX;
  }

  private static byte[] parseV4(String text) {
    byte[] bytes = new byte[4];
    int at = 0;
    for (int part = 0; part < bytes.length; part++) {
      if (part > 0) {
        if (at >= text.length() || text.charAt(at) != '.') {
          return null;
        }
        at++;
      }
      int start = at;
      int value = 0;
      while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
        value = value * 10 + text.charAt(at) - '0';
        at++;
        if (value > 255) {
          return null;
        }
      }
      if (at == start || (at - start > 1 && text.charAt(start) == '0')) {
        return null;
      }
      bytes[part] = (byte) value;
    }
    return at == text.length() ? bytes : null;
  }

  private static byte[] parseV6(String text) {
    int gap = text.indexOf("::");
    if (gap < 0) {
      byte[] all = parseGroups(text);
      return all != null && all.length == 2 * GROUPS ? all : null;
    }
    String right = text.substring(gap + 2);
    if (right.startsWith(":") || right.contains("::")) {
      return null;
    }
    byte[] head = parseGroups(text.substring(0, gap));
    byte[] tail = parseGroups(right);
    // "::" stands for one group at least. Only the last group may be an IPv4 address.
    if (head == null
        || tail == null
        || head.length + tail.length > 2 * GROUPS - 2
        || text.substring(0, gap).indexOf('.') >= 0) {
      return null;
    }
    byte[] bytes = Arrays.copyOf(head, 2 * GROUPS);
    System.arraycopy(tail, 0, bytes, bytes.length - tail.length, tail.length);
    return bytes;
  }

  private static byte[] parseGroups(String text) {
    if (text.isEmpty()) {
      return new byte[0];
    }
    String[] groups = text.split(":", -1);
    if (groups.length > GROUPS) {
      return null;
    }
    byte[] bytes = new byte[2 * GROUPS + 2];
    int length = 0;
    for (int at = 0; at < groups.length; at++) {
      String group = groups[at];
      if (at == groups.length - 1 && group.indexOf('.') >= 0) {
        byte[] v4 = parseV4(group);
        if (v4 == null) {
          return null;
        }
        System.arraycopy(v4, 0, bytes, length, v4.length);
        length += v4.length;
        continue;
      }
      int value = parseGroup(group);
      if (value < 0) {
        return null;
      }
      bytes[length++] = (byte) (value >> 8);
      bytes[length++] = (byte) value;
    }
    return length > 2 * GROUPS ? null : Arrays.copyOf(bytes, length);
  }

  private static int parseGroup(String text) {
    if (text.isEmpty() || text.length() > 4) {
      return -1;
    }
    int value = 0;
    for (int at = 0; at < text.length(); at++) {
      char unit = text.charAt(at);
      int digit = unit < 0x80 ? Character.digit(unit, 16) : -1;
      if (digit < 0) {
        return -1;
      }
      value = value << 4 | digit;
    }
    return value;
  }

  private static byte[] unmapped(byte[] bytes) {
    if (bytes.length != 2 * GROUPS || bytes[10] != -1 || bytes[11] != -1) {
      return bytes;
    }
    for (int at = 0; at < 10; at++) {
      if (bytes[at] != 0) {
        return bytes;
      }
    }
    return Arrays.copyOfRange(bytes, MAPPED_PREFIX, 2 * GROUPS);
  }

  int bits() {
    return bytes.length * 8;
  }

  /** Returns whether the first {@code length} bits are those of {@code other}, of the same kind. */
  boolean sharesPrefix(IpAddress other, int length) {
    if (bytes.length != other.bytes.length) {
      return false;
    }
    int whole = length / 8;
    if (!Arrays.equals(bytes, 0, whole, other.bytes, 0, whole)) {
      return false;
    }
    int rest = length % 8;
    return rest == 0
        || (bytes[whole] & 0xff) >> 8 - rest == (other.bytes[whole] & 0xff) >> 8 - rest;
  }

  /** Returns the text: dotted for IPv4, as RFC 5952 says for IPv6. */
  @Override
  public String toString() {
    if (bytes.length == 4) {
      return (bytes[0] & 0xff)
          + "."
          + (bytes[1] & 0xff)
          + "."
          + (bytes[2] & 0xff)
          + "."
          + (bytes[3] & 0xff);
    }
    int gap = -1;
    int gapLength = 1;
    for (int at = 0; at < GROUPS; at++) {
      int end = at;
      while (end < GROUPS && group(end) == 0) {
        end++;
      }
      if (end - at > gapLength) {
        gap = at;
        gapLength = end - at;
      }
    }
    StringBuilder text = new StringBuilder();
    for (int at = 0; at < GROUPS; at++) {
      if (at == gap) {
        text.append("::");
        at += gapLength - 1;
        continue;
      }
      if (!text.isEmpty() && text.charAt(text.length() - 1) != ':') {
        text.append(':');
      }
      text.append(Integer.toHexString(group(at)));
    }
    return text.toString();
  }

  private int group(int at) {
    return (bytes[2 * at] & 0xff) << 8 | bytes[2 * at + 1] & 0xff;
  }
}
