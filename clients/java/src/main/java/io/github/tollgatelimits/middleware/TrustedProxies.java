package io.github.tollgatelimits.middleware;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;

/** Finds the address of a client behind trusted proxies. */
final class TrustedProxies {
  private static final String FORWARDED_FOR = "X-Forwarded-For";

  private final List<Block> blocks;

  private record Block(IpAddress address, int length) {
    static Block parse(String text) {
      int slash = text.indexOf('/');
      Optional<IpAddress> address = IpAddress.parse(slash < 0 ? text : text.substring(0, slash));
      if (address.isPresent()) {
        int bits = address.get().bits();
        int length = slash < 0 ? bits : parseLength(text.substring(slash + 1));
        if (length >= 0 && length <= bits) {
          return new Block(address.get(), length);
        }
      }
      throw new IllegalArgumentException(
          "trusted proxy must be an address or a CIDR block: " + text);
    }

    private static int parseLength(String text) {
      return text.matches("[0-9]{1,3}") ? Integer.parseInt(text) : -1;
    }

    boolean contains(IpAddress other) {
      return address.sharesPrefix(other, length);
    }
  }

  TrustedProxies(Collection<String> proxies) {
    blocks = proxies.stream().map(Block::parse).toList();
  }

  /** Returns the address of the client; empty if the connection has none. */
  Optional<String> clientAddress(RequestView request) {
    Optional<IpAddress> peer = IpAddress.parse(request.peerAddress());
    if (peer.isEmpty() || !isTrusted(peer.get())) {
      return peer.map(IpAddress::toString);
    }
    List<String> forwarded = new ArrayList<>();
    for (String header : request.headers(FORWARDED_FOR)) {
      forwarded.addAll(List.of(header.split(",", -1)));
    }
    IpAddress client = peer.get();
    for (int at = forwarded.size() - 1; at >= 0; at--) {
      Optional<IpAddress> address = IpAddress.parseWithPort(forwarded.get(at).strip());
      if (address.isEmpty()) {
        break;
      }
      client = address.get();
      if (!isTrusted(client)) {
        break;
      }
    }
    return Optional.of(client.toString());
  }

  private boolean isTrusted(IpAddress address) {
    return blocks.stream().anyMatch(block -> block.contains(address));
  }
}
