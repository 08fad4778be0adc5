package io.github.tollgatelimits.middleware;

import java.util.List;

/** The parts of a request that descriptors are made of. Adapters of frameworks implement it. */
public interface RequestView {
  /** Returns the HTTP method. */
  String method();

  /** Returns the path as it was sent, not decoded, with or without the query. */
  String path();

  /** Returns the values of a header in their order. The case of the name has no meaning. */
  List<String> headers(String name);

  /** Returns the IP address of the connection, without a port; empty if it has none. */
  String peerAddress();
}
