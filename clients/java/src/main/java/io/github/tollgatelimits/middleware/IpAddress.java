package io.github.tollgatelimits.middleware;

import com.google.common.net.InetAddresses;
import java.math.BigInteger;
import java.net.InetAddress;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** An IP address. An IPv4 address mapped to IPv6 is the IPv4 address. A zone is dropped. */
record IpAddress(InetAddress address) {
  private static final Pattern WITH_PORT =
      Pattern.compile("(?:\\[(?<v6>[^\\]]*:[^\\]]*)\\](?::[0-9]{1,5})?|(?<v4>[^:]*):[0-9]{1,5})");

  /** Parses an address without a port. Names are not resolved. */
  static Optional<IpAddress> parse(String text) {
    String address = text.indexOf(':') < 0 ? text : text.replaceFirst("%.*", "");
    return InetAddresses.isInetAddress(address)
        ? Optional.of(new IpAddress(InetAddresses.forString(address)))
        : Optional.empty();
  }

  /** Parses {@code 1.2.3.4}, {@code 1.2.3.4:80}, {@code ::1}, {@code [::1]} or {@code [::1]:80}. */
  static Optional<IpAddress> parseWithPort(String text) {
    Matcher found = WITH_PORT.matcher(text);
    if (!found.matches()) {
      return parse(text);
    }
    return parse(found.group("v6") == null ? found.group("v4") : found.group("v6"));
  }

  int bits() {
    return address.getAddress().length * 8;
  }

  /** Returns whether the first {@code length} bits are those of {@code other}, of the same kind. */
  boolean sharesPrefix(IpAddress other, int length) {
    return bits() == other.bits() && number().xor(other.number()).bitLength() <= bits() - length;
  }

  private BigInteger number() {
    return new BigInteger(1, address.getAddress());
  }

  /** Returns the text: dotted for IPv4, as RFC 5952 says for IPv6. */
  @Override
  public String toString() {
    return InetAddresses.toAddrString(address);
  }
}
