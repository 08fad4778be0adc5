package io.github.tollgatelimits;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.concurrent.CompletableFuture;

/**
 * One unary gRPC call as a future. It fails with a {@link TollgateException}. Cancelling the future
 * cancels the call.
 */
final class UnaryCall<A> extends CompletableFuture<A> {
  private final ClientCall<?, A> call;

  private UnaryCall(ClientCall<?, A> call) {
    this.call = call;
  }

  static <Q, A> UnaryCall<A> start(
      Channel channel, MethodDescriptor<Q, A> method, CallOptions options, Q request) {
    // Outside the caller's gRPC context: its deadline and its end are not those of this call.
    Context caller = Context.ROOT.attach();
    try {
      ClientCall<Q, A> call = channel.newCall(method, options);
      UnaryCall<A> future = new UnaryCall<>(call);
      call.start(future.new Listener(), new Metadata());
      call.request(2);
      call.sendMessage(request);
      call.halfClose();
      return future;
    } finally {
      Context.ROOT.detach(caller);
    }
  }

  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    boolean cancelled = super.cancel(mayInterruptIfRunning);
    if (cancelled) {
      call.cancel("cancelled by the caller", null);
    }
    return cancelled;
  }

  private final class Listener extends ClientCall.Listener<A> {
    private A answer;

    @Override
    public void onMessage(A message) {
      answer = message;
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      if (!status.isOk()) {
        completeExceptionally(TollgateException.of(status));
      } else if (answer == null) {
        completeExceptionally(
            TollgateException.of(Status.INTERNAL.withDescription("the answer has no message")));
      } else {
        complete(answer);
      }
    }
  }
}
