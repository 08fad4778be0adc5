package io.github.tollgatelimits;

import io.github.tollgatelimits.internal.v1.Answer;
import io.github.tollgatelimits.internal.v1.Call;
import io.github.tollgatelimits.internal.v1.CheckRequest;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.protobuf.ProtoUtils;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;

/**
 * Sends concurrent checks over one bidirectional stream. Its answers are matched by tag.
 *
 * <p>The stream is opened by the first check, and by the first one after a failure. A check that
 * was on a failed stream is never sent again, since it may have been charged.
 */
final class CheckStream implements AutoCloseable {
  /** The checks in progress on the stream. */
  static final int IN_PROGRESS_MAX = 64;

  /** The checks that wait for a place on the stream. */
  static final int QUEUE_MAX = 1_024;

  static final MethodDescriptor<Call, Answer> METHOD =
      MethodDescriptor.<Call, Answer>newBuilder()
          .setType(MethodDescriptor.MethodType.BIDI_STREAMING)
          .setFullMethodName(
              MethodDescriptor.generateFullMethodName(TollgateProtocol.SERVICE, "Stream"))
          .setRequestMarshaller(ProtoUtils.marshaller(Call.getDefaultInstance()))
          .setResponseMarshaller(ProtoUtils.marshaller(Answer.getDefaultInstance()))
          .build();

  private final Connections connections;
  private final long deadlineNanos;
  private final Object lock = new Object();

  // The lock guards all fields below. All checks have the same deadline, so that both collections
  // are ordered by it, and no check in progress ends after one that waits.
  private final Map<Long, Check> inProgress = new LinkedHashMap<>();
  private final Set<Check> queue = new LinkedHashSet<>();

  /** The checks in progress that have not been sent. */
  private final Deque<Check> unsent = new ArrayDeque<>();

  /** The stream, or null before the first check and after a failure. */
  private OpenStream current;

  private long nextTag;
  private Future<?> timer;
  private boolean closed;

  /** Whether {@link #pump} will run. */
  private boolean awake;

  CheckStream(Connections connections, long deadlineNanos) {
    this.connections = connections;
    this.deadlineNanos = deadlineNanos;
  }

  /** A check as a future. It fails with a {@link TollgateException}. */
  private final class Check extends CompletableFuture<CheckResponse> {
    final CheckRequest request;
    final boolean urgent;
    long tag;
    long endsAt;

    Check(CheckRequest request, boolean urgent) {
      this.request = request;
      this.urgent = urgent;
    }

    void answered(Answer answer) {
      if (answer.hasCheck()) {
        complete(answer.getCheck());
        return;
      }
      Status status = Status.OK;
      if (answer.hasFailure()) {
        status =
            Status.fromCodeValue(answer.getFailure().getCode())
                .withDescription(answer.getFailure().getMessage());
      }
      if (status.isOk()) {
        status = Status.INTERNAL.withDescription("the answer is not one of a check");
      }
      completeExceptionally(TollgateException.of(status));
    }

    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
      boolean cancelled = super.cancel(mayInterruptIfRunning);
      if (cancelled) {
        synchronized (lock) {
          forget(this);
          wake();
        }
      }
      return cancelled;
    }
  }

  /**
   * Sends a check as soon as there is a place on the stream.
   *
   * @param urgent whether to wait for a connection if none can be made now
   */
  CompletableFuture<CheckResponse> check(CheckRequest request, boolean urgent) {
    Check check = new Check(request, urgent);
    synchronized (lock) {
      if (closed) {
        return CompletableFuture.failedFuture(closedFailure());
      }
      boolean place = queue.isEmpty() && inProgress.size() < IN_PROGRESS_MAX;
      if (!place && queue.size() >= QUEUE_MAX) {
        return CompletableFuture.failedFuture(TollgateException.queueIsFull());
      }
      check.endsAt = System.nanoTime() + deadlineNanos;
      check.tag = ++nextTag;
      if (place) {
        admit(check);
      } else {
        queue.add(check);
      }
      startTimer();
      wake();
    }
    return check;
  }

  private void admit(Check check) {
    inProgress.put(check.tag, check);
    unsent.add(check);
  }

  private void forget(Check check) {
    if (inProgress.remove(check.tag) == null) {
      queue.remove(check);
    } else {
      unsent.remove(check);
    }
  }

  /** Lets the thread of the connections send what can be sent. */
  private void wake() {
    if (!awake && !closed) {
      awake = true;
      connections.execute(this::pump);
    }
  }

  /**
   * Opens the stream if there is none, and sends what can be sent. It runs on one thread only, as a
   * gRPC call needs it.
   */
  private void pump() {
    synchronized (lock) {
      awake = false;
    }
    OpenStream stream = null;
    try {
      while (true) {
        boolean urgent;
        synchronized (lock) {
          fillPlaces();
          if (closed || unsent.isEmpty()) {
            return;
          }
          stream = current;
          urgent = stream == null && unsent.stream().anyMatch(check -> check.urgent);
        }
        if (stream == null) {
          OpenStream opened = new OpenStream(urgent);
          synchronized (lock) {
            if (closed) {
              return;
            }
            current = opened;
          }
          stream = opened;
          stream.start();
        } else if (!stream.call.isReady()) {
          // onReady goes on.
          return;
        } else {
          Check check;
          synchronized (lock) {
            stream.ready = true;
            check = current == stream ? unsent.poll() : null;
          }
          if (check != null) {
            stream.call.sendMessage(
                Call.newBuilder().setTag(check.tag).setCheck(check.request).build());
          }
        }
      }
    } catch (RuntimeException error) {
      if (stream != null) {
        stream.call.cancel("the stream takes no calls", error);
      }
      end(stream, Status.UNAVAILABLE.withDescription("the stream takes no calls").withCause(error));
    }
  }

  private void fillPlaces() {
    Iterator<Check> next = queue.iterator();
    while (inProgress.size() < IN_PROGRESS_MAX && next.hasNext()) {
      admit(next.next());
      next.remove();
    }
  }

  /** One stream, from its opening to its end. */
  private final class OpenStream extends ClientCall.Listener<Answer> {
    final ClientCall<Call, Answer> call;

    /** Whether it was connected. Before, nothing was sent on it. */
    boolean ready;

    OpenStream(boolean urgent) {
      ManagedChannel channel = connections.pick(urgent);
      call =
          channel.newCall(
              METHOD, urgent ? CallOptions.DEFAULT.withWaitForReady() : CallOptions.DEFAULT);
    }

    void start() {
      // Outside the caller's gRPC context: the stream outlives it.
      Context caller = Context.ROOT.attach();
      try {
        call.start(this, new Metadata());
        call.request(Integer.MAX_VALUE);
      } finally {
        Context.ROOT.detach(caller);
      }
    }

    @Override
    public void onReady() {
      synchronized (lock) {
        wake();
      }
    }

    @Override
    public void onMessage(Answer answer) {
      Check check;
      synchronized (lock) {
        check = current == this ? inProgress.remove(answer.getTag()) : null;
        if (!queue.isEmpty()) {
          wake();
        }
      }
      if (check != null) {
        check.answered(answer);
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      end(this, status.isOk() ? Status.UNAVAILABLE.withDescription("the stream ended") : status);
    }
  }

  /** Fails the checks in progress on a stream that has ended. Those of the queue get another. */
  private void end(OpenStream stream, Status status) {
    List<Check> failed;
    synchronized (lock) {
      if (current != stream) {
        return;
      }
      current = null;
      failed = List.copyOf(inProgress.values());
      inProgress.clear();
      unsent.clear();
      wake();
    }
    fail(failed, status);
  }

  private static void fail(Collection<Check> checks, Status status) {
    checks.forEach(check -> check.completeExceptionally(TollgateException.of(status)));
  }

  private static TollgateException closedFailure() {
    return TollgateException.of(Status.UNAVAILABLE.withDescription("the client is closed"));
  }

  /** Starts the timer of the check that ends first, unless it runs. */
  private void startTimer() {
    if (timer == null && !closed) {
      Iterator<Check> checks = (inProgress.isEmpty() ? queue : inProgress.values()).iterator();
      if (checks.hasNext()) {
        timer = connections.schedule(this::expire, checks.next().endsAt - System.nanoTime());
      }
    }
  }

  /** Fails the checks whose deadline has passed. */
  private void expire() {
    List<Check> expired = new ArrayList<>();
    OpenStream abandoned = null;
    synchronized (lock) {
      timer = null;
      long now = System.nanoTime();
      takeExpired(inProgress.values(), now, expired);
      if (!expired.isEmpty()) {
        unsent.removeAll(expired);
        // A stream without a connection: another address may have one by now.
        if (current != null && !current.ready) {
          abandoned = current;
          current = null;
        }
      }
      takeExpired(queue, now, expired);
      startTimer();
      wake();
    }
    if (abandoned != null) {
      abandoned.call.cancel("no connection", null);
    }
    fail(expired, Status.DEADLINE_EXCEEDED.withDescription("no answer in time"));
  }

  private static void takeExpired(Collection<Check> checks, long now, List<Check> expired) {
    Iterator<Check> next = checks.iterator();
    while (next.hasNext()) {
      Check check = next.next();
      if (check.endsAt - now > 0) {
        return;
      }
      next.remove();
      expired.add(check);
    }
  }

  /** Ends the stream and the timer. Checks in progress and in the queue fail. */
  @Override
  public void close() {
    List<Check> failed;
    OpenStream last;
    synchronized (lock) {
      closed = true;
      last = current;
      current = null;
      failed = new ArrayList<>(inProgress.values());
      failed.addAll(queue);
      inProgress.clear();
      queue.clear();
      unsent.clear();
      if (timer != null) {
        timer.cancel(false);
        timer = null;
      }
    }
    if (last != null) {
      last.call.cancel("the client is closed", null);
    }
    failed.forEach(check -> check.completeExceptionally(closedFailure()));
  }
}
