package io.github.tollgatelimits.grpc;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.rpc.RetryInfo;
import io.github.tollgatelimits.CheckRequest;
import io.github.tollgatelimits.Decision;
import io.github.tollgatelimits.TollgateClient;
import io.github.tollgatelimits.middleware.Answer;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestView;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.stream.StreamSupport;

/**
 * Checks each call of a gRPC server once, when it starts, and ends those that are refused.
 *
 * <p>The thread of the call waits for the check, at most the deadline of the client. A server with
 * a direct executor must not use it. The interceptor does not close the client.
 */
public final class TollgateInterceptor implements ServerInterceptor {
  private final TollgateClient client;
  private final LimitOptions<GrpcRequest> options;

  private record CallView(ServerCall<?, ?> call, Metadata metadata) implements RequestView {
    @Override
    public String method() {
      return "POST";
    }

    @Override
    public String path() {
      return "/" + call.getMethodDescriptor().getFullMethodName();
    }

    @Override
    public List<String> headers(String name) {
      String lowerCase = name.toLowerCase(Locale.ROOT);
      if (lowerCase.endsWith(Metadata.BINARY_HEADER_SUFFIX)) {
        return List.of();
      }
      Iterable<String> values =
          metadata.getAll(Metadata.Key.of(lowerCase, Metadata.ASCII_STRING_MARSHALLER));
      return values == null
          ? List.of()
          : StreamSupport.stream(values.spliterator(), false).toList();
    }

    @Override
    public String peerAddress() {
      SocketAddress peer = call.getAttributes().get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR);
      return peer instanceof InetSocketAddress inet && inet.getAddress() != null
          ? inet.getAddress().getHostAddress()
          : "";
    }
  }

  /** Creates an interceptor. */
  public TollgateInterceptor(TollgateClient client, LimitOptions<GrpcRequest> options) {
    this.client = Objects.requireNonNull(client, "client");
    this.options = Objects.requireNonNull(options, "options");
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    GrpcRequest request = new GrpcRequest(call, headers);
    Optional<CheckRequest> check = options.checkOf(new CallView(call, headers), request);
    if (check.isEmpty()) {
      return next.startCall(call, headers);
    }
    Decision decision = client.check(check.get());
    options.notifyDecision(request, decision);
    Answer answer = options.answer(decision);
    Metadata limits = metadata(answer.limitHeaders());
    if (answer.passes() && check.get().dryRun()) {
      return counted(call, limits, headers, next, check.get(), decision);
    }
    if (answer.passes()) {
      return next.startCall(withInitialMetadata(call, limits), headers);
    }
    Refusal refusal = refusal(answer);
    limits.merge(refusal.trailers());
    call.close(refusal.status(), limits);
    return new ServerCall.Listener<>() {};
  }

  /** Starts a call that takes hits once it has ended, if its outcome counts. */
  private <Q, A> ServerCall.Listener<Q> counted(
      ServerCall<Q, A> call,
      Metadata limits,
      Metadata headers,
      ServerCallHandler<Q, A> next,
      CheckRequest check,
      Decision decision) {
    AtomicBoolean ended = new AtomicBoolean();
    Consumer<Boolean> end =
        failed -> {
          if (ended.compareAndSet(false, true)) {
            options.ended(client, check, decision, failed);
          }
        };
    ServerCall<Q, A> reporting =
        new SimpleForwardingServerCall<>(withInitialMetadata(call, limits)) {
          @Override
          public void close(Status status, Metadata trailers) {
            end.accept(!status.isOk());
            super.close(status, trailers);
          }
        };
    return new SimpleForwardingServerCallListener<>(next.startCall(reporting, headers)) {
      @Override
      public void onCancel() {
        end.accept(true);
        super.onCancel();
      }
    };
  }

  record Refusal(Status status, Metadata trailers) {}

  /** Returns the status of a refused call, and its details as trailers. */
  static Refusal refusal(Answer answer) {
    Status status =
        answer.serviceFailed()
            ? Status.UNAVAILABLE.withDescription("rate limit service unavailable")
            : Status.RESOURCE_EXHAUSTED.withDescription("rate limited");
    if (answer.retryAfter().isEmpty()) {
      return new Refusal(status, new Metadata());
    }
    java.time.Duration retryAfter = answer.retryAfter().get();
    RetryInfo retryInfo =
        RetryInfo.newBuilder()
            .setRetryDelay(
                Duration.newBuilder()
                    .setSeconds(retryAfter.getSeconds())
                    .setNanos(retryAfter.getNano()))
            .build();
    com.google.rpc.Status details =
        com.google.rpc.Status.newBuilder()
            .setCode(status.getCode().value())
            .setMessage(status.getDescription())
            .addDetails(Any.pack(retryInfo))
            .build();
    return new Refusal(status, StatusProto.toStatusRuntimeException(details).getTrailers());
  }

  static Metadata metadata(Map<String, String> headers) {
    Metadata metadata = new Metadata();
    headers.forEach(
        (name, value) ->
            metadata.put(
                Metadata.Key.of(name.toLowerCase(Locale.ROOT), Metadata.ASCII_STRING_MARSHALLER),
                value));
    return metadata;
  }

  private static <Q, A> ServerCall<Q, A> withInitialMetadata(
      ServerCall<Q, A> call, Metadata added) {
    if (added.keys().isEmpty()) {
      return call;
    }
    return new SimpleForwardingServerCall<>(call) {
      @Override
      public void sendHeaders(Metadata headers) {
        headers.merge(added);
        super.sendHeaders(headers);
      }
    };
  }
}
