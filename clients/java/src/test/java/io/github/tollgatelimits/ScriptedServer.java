package io.github.tollgatelimits;

import com.google.protobuf.Message;
import io.github.tollgatelimits.internal.rls.RateLimitRequest;
import io.github.tollgatelimits.internal.rls.RateLimitResponse;
import io.github.tollgatelimits.internal.v1.Answer;
import io.github.tollgatelimits.internal.v1.BatchRequest;
import io.github.tollgatelimits.internal.v1.BatchResponse;
import io.github.tollgatelimits.internal.v1.Call;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.CommitRequest;
import io.github.tollgatelimits.internal.v1.ExtendRequest;
import io.github.tollgatelimits.internal.v1.Failure;
import io.github.tollgatelimits.internal.v1.LeaseRequest;
import io.github.tollgatelimits.internal.v1.LeaseResponse;
import io.github.tollgatelimits.internal.v1.ReleaseRequest;
import io.github.tollgatelimits.internal.v1.ReserveResponse;
import io.github.tollgatelimits.internal.v1.SettleResponse;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;

/** A gRPC server on loopback that answers as a test says. */
final class ScriptedServer implements AutoCloseable {
  /** Answers a call: a message, a {@link Status}, a future of one, or null for no answer. */
  private volatile Function<Received, Object> script =
      received -> Status.INTERNAL.withDescription("the script has no answer");

  private final List<Received> calls = new CopyOnWriteArrayList<>();
  private final Server server;

  private final Set<ServerCall<?, ?>> streams = ConcurrentHashMap.newKeySet();
  private final AtomicInteger streamsOpened = new AtomicInteger();

  /**
   * A call that the server got.
   *
   * @param streamed whether it came over the stream
   */
  record Received(String method, Message request, boolean streamed) {}

  ScriptedServer() throws IOException {
    String own = TollgateProtocol.SERVICE;
    var check = io.github.tollgatelimits.internal.v1.CheckRequest.getDefaultInstance();
    var reserve = io.github.tollgatelimits.internal.v1.ReserveRequest.getDefaultInstance();
    SettleResponse settled = SettleResponse.getDefaultInstance();
    server =
        NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
            .addService(
                ServerServiceDefinition.builder(own)
                    .addMethod(
                        unary(own, "Check", check, CheckResponse.getDefaultInstance()), handler())
                    .addMethod(
                        unary(own, "Peek", check, CheckResponse.getDefaultInstance()), handler())
                    .addMethod(
                        unary(own, "Reserve", reserve, ReserveResponse.getDefaultInstance()),
                        handler())
                    .addMethod(
                        unary(own, "Commit", CommitRequest.getDefaultInstance(), settled),
                        handler())
                    .addMethod(
                        unary(own, "Release", ReleaseRequest.getDefaultInstance(), settled),
                        handler())
                    .addMethod(
                        unary(
                            own,
                            "Lease",
                            LeaseRequest.getDefaultInstance(),
                            LeaseResponse.getDefaultInstance()),
                        handler())
                    .addMethod(
                        unary(
                            own,
                            "Batch",
                            BatchRequest.getDefaultInstance(),
                            BatchResponse.getDefaultInstance()),
                        handler())
                    .addMethod(CheckStream.METHOD, streamHandler())
                    .addMethod(
                        unary(own, "Extend", ExtendRequest.getDefaultInstance(), settled),
                        handler())
                    .build())
            .addService(
                ServerServiceDefinition.builder("envoy.service.ratelimit.v3.RateLimitService")
                    .addMethod(
                        unary(
                            "envoy.service.ratelimit.v3.RateLimitService",
                            "ShouldRateLimit",
                            RateLimitRequest.getDefaultInstance(),
                            RateLimitResponse.getDefaultInstance()),
                        handler())
                    .build())
            .build()
            .start();
  }

  private static <Q extends Message, A extends Message> MethodDescriptor<Q, A> unary(
      String service, String name, Q request, A answer) {
    return CheckProtocol.unary(service, name, request, answer);
  }

  String address() {
    return "127.0.0.1:" + server.getPort();
  }

  /** Sets the script, and forgets the calls before. */
  void answer(Function<Received, Object> next) {
    calls.clear();
    script = next;
  }

  List<Received> calls() {
    return List.copyOf(calls);
  }

  private <Q extends Message, A extends Message> ServerCallHandler<Q, A> handler() {
    return (call, headers) -> {
      call.request(2);
      return new ServerCall.Listener<>() {
        @Override
        public void onMessage(Q request) {
          Received received =
              new Received(call.getMethodDescriptor().getBareMethodName(), request, false);
          calls.add(received);
          answered(received, answer -> reply(call, answer));
        }
      };
    };
  }

  private void answered(Received received, Consumer<Object> reply) {
    Object answer = script.apply(received);
    if (answer instanceof CompletableFuture<?> later) {
      later.thenAccept(reply);
    } else {
      reply.accept(answer);
    }
  }

  private ServerCallHandler<Call, Answer> streamHandler() {
    return (call, headers) -> {
      streamsOpened.incrementAndGet();
      streams.add(call);
      call.sendHeaders(new Metadata());
      call.request(Integer.MAX_VALUE);
      return new ServerCall.Listener<>() {
        @Override
        public void onMessage(Call message) {
          Received received = new Received("Check", message.getCheck(), true);
          calls.add(received);
          answered(received, answer -> replyOnStream(call, message.getTag(), answer));
        }

        @Override
        public void onCancel() {
          streams.remove(call);
        }
      };
    };
  }

  private static void replyOnStream(ServerCall<?, Answer> call, long tag, Object answer) {
    Answer.Builder message = Answer.newBuilder().setTag(tag);
    if (answer instanceof Status status) {
      message.setFailure(
          Failure.newBuilder()
              .setCode(status.getCode().value())
              .setMessage(String.valueOf(status.getDescription())));
    } else if (answer instanceof CheckResponse response) {
      message.setCheck(response);
    } else if (answer instanceof SettleResponse response) {
      message.setSettle(response);
    }
    if (answer != null) {
      synchronized (call) {
        call.sendMessage(message.build());
      }
    }
  }

  /** Ends the open streams. */
  void endStreams(Status status) {
    for (ServerCall<?, ?> call : Set.copyOf(streams)) {
      streams.remove(call);
      synchronized (call) {
        call.close(status, new Metadata());
      }
    }
  }

  int openStreams() {
    return streams.size();
  }

  int streamsOpened() {
    return streamsOpened.get();
  }

  @SuppressWarnings("unchecked")
  private static <A> void reply(ServerCall<?, A> call, Object answer) {
    if (answer instanceof Status status) {
      call.close(status, new Metadata());
    } else if (answer != null) {
      call.sendHeaders(new Metadata());
      call.sendMessage((A) answer);
      call.close(Status.OK, new Metadata());
    }
  }

  @Override
  public void close() {
    server.shutdownNow();
    try {
      server.awaitTermination(5, TimeUnit.SECONDS);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }
}
