package io.github.tollgatelimits;

import io.grpc.CallOptions;
import io.grpc.ChannelCredentials;
import io.grpc.ConnectivityState;
import io.grpc.Deadline;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.nio.NioEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioSocketChannel;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URISyntaxException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** gRPC channels to the addresses of a client, and the threads that serve them. */
final class Connections implements AutoCloseable {
  /** The shortest time between two attempts to connect, where gRPC's backoff would be longer. */
  private static final long RECONNECT_NANOS = 250_000_000L;

  private static final long CLOSE_SECONDS = 2;
  private static final long RESOLVER_IDLE_SECONDS = 5;

  private static final Pattern ADDRESS =
      Pattern.compile("(?<host>\\[[0-9A-Fa-f:.]+\\]|[0-9A-Za-z._-]+):(?<port>[0-9]{1,5})");

  private final List<Endpoint> endpoints = new ArrayList<>();
  private final AtomicInteger next = new AtomicInteger();
  private final EventLoopGroup eventLoop;
  private final ExecutorService resolver;
  private final Object stateChange = new Object();
  private volatile boolean closed;
  private volatile Thread eventLoopThread;

  private static final class Endpoint {
    final ManagedChannel channel;
    final AtomicLong lastReset = new AtomicLong(System.nanoTime() - RECONNECT_NANOS);

    Endpoint(ManagedChannel channel) {
      this.channel = channel;
    }

    /** Ends gRPC's backoff, which grows to minutes, so that a restarted server is found soon. */
    void reconnect(long pauseNanos) {
      long now = System.nanoTime();
      long last = lastReset.get();
      if (now - last >= pauseNanos && lastReset.compareAndSet(last, now)) {
        channel.resetConnectBackoff();
      }
    }
  }

  Connections(
      List<String> addresses,
      TlsOptions tls,
      Duration keepaliveTime,
      Duration keepaliveTimeout,
      boolean httpProxy) {
    eventLoop =
        new NioEventLoopGroup(
            1,
            task -> {
              Thread thread = daemon(task, "tollgate-client-io");
              eventLoopThread = thread;
              return thread;
            });
    ThreadFactory resolverThreads = task -> daemon(task, "tollgate-client-resolver");
    ThreadPoolExecutor pool =
        new ThreadPoolExecutor(
            1,
            1,
            RESOLVER_IDLE_SECONDS,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            resolverThreads);
    pool.allowCoreThreadTimeOut(true);
    resolver = pool;
    try {
      ChannelCredentials credentials = credentials(tls);
      for (String address : addresses) {
        endpoints.add(
            new Endpoint(
                open(address, credentials, tls, keepaliveTime, keepaliveTimeout, httpProxy)));
      }
    } catch (RuntimeException | IOException error) {
      close();
      throw error instanceof RuntimeException unchecked
          ? unchecked
          : new IllegalArgumentException("cannot read TLS files: " + error.getMessage(), error);
    }
    endpoints.forEach(endpoint -> watch(endpoint.channel, endpoint.channel.getState(true)));
  }

  private static Thread daemon(Runnable task, String name) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    return thread;
  }

  private ManagedChannel open(
      String address,
      ChannelCredentials credentials,
      TlsOptions tls,
      Duration keepaliveTime,
      Duration keepaliveTimeout,
      boolean httpProxy) {
    NettyChannelBuilder builder =
        target(parse(address), credentials)
            .eventLoopGroup(eventLoop)
            .channelType(NioSocketChannel.class)
            .directExecutor()
            .offloadExecutor(resolver)
            .defaultLoadBalancingPolicy("round_robin")
            .disableServiceConfigLookUp()
            .disableRetry()
            .keepAliveTime(keepaliveTime.toNanos(), TimeUnit.NANOSECONDS)
            .keepAliveTimeout(keepaliveTimeout.toNanos(), TimeUnit.NANOSECONDS)
            .keepAliveWithoutCalls(false);
    if (!httpProxy) {
      builder.proxyDetector(server -> null);
    }
    if (tls != null) {
      tls.serverName().ifPresent(builder::overrideAuthority);
    }
    return builder.build();
  }

  @SuppressWarnings("deprecation") // The other way is a resolver for the whole program.
  private static NettyChannelBuilder target(
      InetSocketAddress address, ChannelCredentials credentials) {
    String host = address.getHostString();
    int port = address.getPort();
    if (isUriHost(host)) {
      return NettyChannelBuilder.forAddress(host, port, credentials);
    }
    return NettyChannelBuilder.forTarget(HostResolver.SCHEME + ":///", credentials)
        .nameResolverFactory(HostResolver.provider(host, port));
  }

  /** Parses {@code host:port}, with an IPv6 address in brackets. */
  static InetSocketAddress parse(String address) {
    Matcher form = ADDRESS.matcher(address);
    if (form.matches()) {
      String host = form.group("host");
      int port = Integer.parseInt(form.group("port"));
      if (port > 0 && port < 65_536 && (!host.startsWith("[") || isUriHost(host))) {
        return InetSocketAddress.createUnresolved(host, port);
      }
    }
    // What is before the last @ may be a password.
    String masked = address.replaceFirst("(?s)^.*@", "***@");
    throw new IllegalArgumentException(
        "address \"" + masked + "\" is invalid; write host:port, such as localhost:8081");
  }

  private static boolean isUriHost(String host) {
    try {
      return new URI("grpc://" + host).getHost() != null;
    } catch (URISyntaxException error) {
      return false;
    }
  }

  private static ChannelCredentials credentials(TlsOptions tls) throws IOException {
    if (tls == null) {
      return InsecureChannelCredentials.create();
    }
    TlsChannelCredentials.Builder builder = TlsChannelCredentials.newBuilder();
    if (tls.caBundle().isPresent()) {
      builder.trustManager(tls.caBundle().get().toFile());
    }
    if (tls.certificate().isPresent()) {
      builder.keyManager(tls.certificate().get().toFile(), tls.privateKey().get().toFile());
    }
    return builder.build();
  }

  /**
   * Starts a call on the next connection.
   *
   * @param wait whether to wait for a connection if none can be made now
   */
  <Q, A> UnaryCall<A> call(
      MethodDescriptor<Q, A> method, Q request, Deadline deadline, boolean wait) {
    CallOptions options = CallOptions.DEFAULT.withDeadline(deadline);
    ManagedChannel channel = pick(wait);
    return UnaryCall.start(channel, method, wait ? options.withWaitForReady() : options, request);
  }

  /**
   * Returns the next channel that is connected. Without one, the next that may connect.
   *
   * @param urgent whether channels that wait to reconnect do so now
   */
  ManagedChannel pick(boolean urgent) {
    int start = Math.floorMod(next.getAndIncrement(), endpoints.size());
    ManagedChannel connected = null;
    ManagedChannel connecting = null;
    for (int offset = 0; offset < endpoints.size(); offset++) {
      Endpoint endpoint = endpoints.get((start + offset) % endpoints.size());
      ConnectivityState state = endpoint.channel.getState(true);
      if (state == ConnectivityState.READY) {
        connected = connected == null ? endpoint.channel : connected;
      } else if (state == ConnectivityState.TRANSIENT_FAILURE) {
        endpoint.reconnect(urgent ? 0 : RECONNECT_NANOS);
      } else {
        connecting = connecting == null ? endpoint.channel : connecting;
      }
    }
    if (connected != null) {
      return connected;
    }
    return connecting != null ? connecting : endpoints.get(start).channel;
  }

  /** Returns whether the caller is on the thread of the connections. */
  boolean isOnThread() {
    return Thread.currentThread() == eventLoopThread;
  }

  /** Runs a task on the thread of the connections. */
  void execute(Runnable task) {
    eventLoop.execute(task);
  }

  /** Runs a task later on the thread of the connections. */
  Future<?> schedule(Runnable task, long nanos) {
    return eventLoop.schedule(task, nanos, TimeUnit.NANOSECONDS);
  }

  /** Waits until one of the addresses is connected. Connects again without gRPC's backoff. */
  boolean ready(Duration timeout) throws InterruptedException {
    long started = System.nanoTime();
    synchronized (stateChange) {
      while (!pickReady()) {
        long left = timeout.toNanos() - (System.nanoTime() - started);
        if (left <= 0 || closed) {
          return false;
        }
        TimeUnit.NANOSECONDS.timedWait(stateChange, Math.min(left, RECONNECT_NANOS));
      }
    }
    return true;
  }

  private boolean pickReady() {
    return pick(false).getState(false) == ConnectivityState.READY;
  }

  /** Reports each change of a channel's state to those who wait, until the channel is shut down. */
  private void watch(ManagedChannel channel, ConnectivityState state) {
    if (state != ConnectivityState.SHUTDOWN) {
      channel.notifyWhenStateChanged(
          state,
          () -> {
            synchronized (stateChange) {
              stateChange.notifyAll();
            }
            watch(channel, channel.getState(false));
          });
    }
  }

  @Override
  public void close() {
    closed = true;
    endpoints.forEach(endpoint -> endpoint.channel.shutdownNow());
    resolver.shutdownNow();
    boolean interrupted = false;
    boolean wait = !isOnThread();
    try {
      for (Endpoint endpoint : wait ? endpoints : List.<Endpoint>of()) {
        endpoint.channel.awaitTermination(CLOSE_SECONDS, TimeUnit.SECONDS);
      }
    } catch (InterruptedException error) {
      interrupted = true;
    }
    eventLoop.shutdownGracefully(0, CLOSE_SECONDS, TimeUnit.SECONDS);
    try {
      if (wait && !interrupted) {
        eventLoop.awaitTermination(CLOSE_SECONDS, TimeUnit.SECONDS);
        resolver.awaitTermination(CLOSE_SECONDS, TimeUnit.SECONDS);
      }
    } catch (InterruptedException error) {
      interrupted = true;
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
