package io.github.tollgatelimits;

import io.grpc.EquivalentAddressGroup;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.Status;
import io.grpc.StatusOr;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;

/**
 * Resolves a host name. gRPC's resolver refuses names that {@link java.net.URI} refuses, such as
 * those with an underscore.
 */
final class HostResolver extends NameResolver {
  static final String SCHEME = "host";

  private final String host;
  private final int port;
  private final Args args;
  private Listener2 listener;
  private boolean resolving;
  private volatile boolean shutdown;

  private HostResolver(String host, int port, Args args) {
    this.host = host;
    this.port = port;
    this.args = args;
  }

  static NameResolverProvider provider(String host, int port) {
    return new NameResolverProvider() {
      @Override
      protected boolean isAvailable() {
        return true;
      }

      @Override
      protected int priority() {
        return 5;
      }

      @Override
      public String getDefaultScheme() {
        return SCHEME;
      }

      @Override
      public NameResolver newNameResolver(java.net.URI target, Args args) {
        return new HostResolver(host, port, args);
      }
    };
  }

  @Override
  public String getServiceAuthority() {
    return host + ":" + port;
  }

  @Override
  public void start(Listener2 resultListener) {
    listener = resultListener;
    refresh();
  }

  @Override
  public void refresh() {
    if (resolving || shutdown) {
      return;
    }
    resolving = true;
    args.getOffloadExecutor()
        .execute(
            () -> {
              StatusOr<List<EquivalentAddressGroup>> found = lookup();
              args.getSynchronizationContext().execute(() -> resolved(found));
            });
  }

  private StatusOr<List<EquivalentAddressGroup>> lookup() {
    try {
      List<EquivalentAddressGroup> found = new ArrayList<>();
      for (InetAddress address : InetAddress.getAllByName(host)) {
        found.add(new EquivalentAddressGroup(new InetSocketAddress(address, port)));
      }
      return StatusOr.fromValue(found);
    } catch (UnknownHostException error) {
      return StatusOr.fromStatus(
          Status.UNAVAILABLE.withDescription("Unable to resolve host " + host).withCause(error));
    }
  }

  private void resolved(StatusOr<List<EquivalentAddressGroup>> found) {
    resolving = false;
    if (!shutdown) {
      listener.onResult2(ResolutionResult.newBuilder().setAddressesOrError(found).build());
    }
  }

  @Override
  public void shutdown() {
    shutdown = true;
  }
}
