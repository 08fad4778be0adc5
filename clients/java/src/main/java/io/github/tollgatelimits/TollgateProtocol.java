package io.github.tollgatelimits;

import io.github.tollgatelimits.internal.v1.BatchRequest;
import io.github.tollgatelimits.internal.v1.BatchResponse;
import io.github.tollgatelimits.internal.v1.CheckResponse;
import io.github.tollgatelimits.internal.v1.CommitRequest;
import io.github.tollgatelimits.internal.v1.Entry;
import io.github.tollgatelimits.internal.v1.ExtendRequest;
import io.github.tollgatelimits.internal.v1.LeaseRequest;
import io.github.tollgatelimits.internal.v1.LeaseResponse;
import io.github.tollgatelimits.internal.v1.LimitStatus;
import io.github.tollgatelimits.internal.v1.ReleaseRequest;
import io.github.tollgatelimits.internal.v1.ReserveResponse;
import io.github.tollgatelimits.internal.v1.SettleResponse;
import io.github.tollgatelimits.internal.v1.Verdict;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Function;

/** Messages of {@code tollgate.v1.RateLimits}. */
final class TollgateProtocol implements CheckProtocol {
  static final String SERVICE = "tollgate.v1.RateLimits";

  private static final MethodDescriptor<
          io.github.tollgatelimits.internal.v1.CheckRequest, CheckResponse>
      CHECK = checkMethod("Check");
  private static final MethodDescriptor<
          io.github.tollgatelimits.internal.v1.CheckRequest, CheckResponse>
      PEEK = checkMethod("Peek");
  private static final MethodDescriptor<
          io.github.tollgatelimits.internal.v1.ReserveRequest, ReserveResponse>
      RESERVE =
          CheckProtocol.unary(
              SERVICE,
              "Reserve",
              io.github.tollgatelimits.internal.v1.ReserveRequest.getDefaultInstance(),
              ReserveResponse.getDefaultInstance());
  private static final MethodDescriptor<CommitRequest, SettleResponse> COMMIT =
      CheckProtocol.unary(
          SERVICE,
          "Commit",
          CommitRequest.getDefaultInstance(),
          SettleResponse.getDefaultInstance());
  private static final MethodDescriptor<ReleaseRequest, SettleResponse> RELEASE =
      CheckProtocol.unary(
          SERVICE,
          "Release",
          ReleaseRequest.getDefaultInstance(),
          SettleResponse.getDefaultInstance());
  private static final MethodDescriptor<ExtendRequest, SettleResponse> EXTEND =
      CheckProtocol.unary(
          SERVICE,
          "Extend",
          ExtendRequest.getDefaultInstance(),
          SettleResponse.getDefaultInstance());

  private static final MethodDescriptor<LeaseRequest, LeaseResponse> LEASE =
      CheckProtocol.unary(
          SERVICE, "Lease", LeaseRequest.getDefaultInstance(), LeaseResponse.getDefaultInstance());
  private static final MethodDescriptor<BatchRequest, BatchResponse> BATCH =
      CheckProtocol.unary(
          SERVICE, "Batch", BatchRequest.getDefaultInstance(), BatchResponse.getDefaultInstance());

  /** The parts of a reservation that the server made. */
  record Reserved(Decision decision, Optional<String> id, long hits, Optional<Duration> expires) {}

  private static MethodDescriptor<io.github.tollgatelimits.internal.v1.CheckRequest, CheckResponse>
      checkMethod(String name) {
    return CheckProtocol.unary(
        SERVICE,
        name,
        io.github.tollgatelimits.internal.v1.CheckRequest.getDefaultInstance(),
        CheckResponse.getDefaultInstance());
  }

  @Override
  public Rpc<io.github.tollgatelimits.internal.v1.CheckRequest, CheckResponse, Decision> check(
      String domain, CheckRequest request) {
    return new Rpc<>(CHECK, message(domain, request), TollgateProtocol::decision);
  }

  @Override
  public Rpc<io.github.tollgatelimits.internal.v1.CheckRequest, CheckResponse, Decision> peek(
      String domain, CheckRequest request) {
    return new Rpc<>(PEEK, message(domain, request), TollgateProtocol::decision);
  }

  Rpc<?, ?, Reserved> reserve(String domain, ReserveRequest request) {
    var message =
        io.github.tollgatelimits.internal.v1.ReserveRequest.newBuilder()
            .setDomain(domain)
            .addAllDescriptors(messages(request.descriptors()));
    request.hits().ifPresent(message::setHits);
    request.id().ifPresent(message::setReservation);
    request.expires().ifPresent(expires -> message.setExpires(message(expires)));
    request
        .onExpiry()
        .ifPresent(
            onExpiry ->
                message.setOnExpiry(
                    switch (onExpiry) {
                      case CHARGE -> io.github.tollgatelimits.internal.v1.OnExpiry.ON_EXPIRY_CHARGE;
                      case RELEASE ->
                          io.github.tollgatelimits.internal.v1.OnExpiry.ON_EXPIRY_RELEASE;
                    }));
    return new Rpc<>(RESERVE, message.build(), TollgateProtocol::reserved);
  }

  /**
   * Returns a commit.
   *
   * @param descriptors descriptors with the hits of each, or without
   * @param hits hits of all descriptors; null if each has its own
   */
  Rpc<?, ?, Settlement> commit(
      String domain, List<Descriptor> descriptors, String reservation, Long hits) {
    CommitRequest.Builder message =
        CommitRequest.newBuilder()
            .setDomain(domain)
            .addAllDescriptors(messages(descriptors))
            .setReservation(reservation);
    if (hits != null) {
      message.setHits(hits);
    }
    return new Rpc<>(COMMIT, message.build(), TollgateProtocol::settlement);
  }

  Rpc<?, ?, Settlement> release(String domain, List<Descriptor> descriptors, String reservation) {
    return new Rpc<>(
        RELEASE,
        ReleaseRequest.newBuilder()
            .setDomain(domain)
            .addAllDescriptors(messages(descriptors))
            .setReservation(reservation)
            .build(),
        TollgateProtocol::settlement);
  }

  Rpc<?, ?, Settlement> extend(
      String domain, List<Descriptor> descriptors, String reservation, Duration expires) {
    return new Rpc<>(
        EXTEND,
        ExtendRequest.newBuilder()
            .setDomain(domain)
            .addAllDescriptors(messages(descriptors))
            .setReservation(reservation)
            .setExpires(message(expires))
            .build(),
        TollgateProtocol::settlement);
  }

  Rpc<?, ?, Leases.Granted> lease(LeaseRequest request) {
    return new Rpc<>(LEASE, request, TollgateProtocol::granted);
  }

  Rpc<BatchRequest, BatchResponse, BatchResponse> batch(BatchRequest request) {
    return new Rpc<>(BATCH, request, Function.identity());
  }

  private static io.github.tollgatelimits.internal.v1.CheckRequest message(
      String domain, CheckRequest request) {
    var message =
        io.github.tollgatelimits.internal.v1.CheckRequest.newBuilder()
            .setDomain(domain)
            .addAllDescriptors(messages(request.descriptors()));
    request.hits().ifPresent(message::setHits);
    return message.build();
  }

  static List<io.github.tollgatelimits.internal.v1.Descriptor> messages(
      List<Descriptor> descriptors) {
    return descriptors.stream().map(TollgateProtocol::message).toList();
  }

  private static io.github.tollgatelimits.internal.v1.Descriptor message(Descriptor descriptor) {
    var message = io.github.tollgatelimits.internal.v1.Descriptor.newBuilder();
    for (Descriptor.Entry entry : descriptor.entries()) {
      message.addEntries(Entry.newBuilder().setKey(entry.key()).setValue(entry.value()));
    }
    descriptor.hits().ifPresent(message::setHits);
    return message.build();
  }

  private static com.google.protobuf.Duration message(Duration duration) {
    return com.google.protobuf.Duration.newBuilder()
        .setSeconds(duration.getSeconds())
        .setNanos(duration.getNano())
        .build();
  }

  static Decision decision(CheckResponse answer) {
    return decision(
        answer.getVerdict(),
        answer.hasRemaining() ? OptionalLong.of(answer.getRemaining()) : OptionalLong.empty(),
        CheckProtocol.duration(answer.hasReset(), answer.getReset()),
        CheckProtocol.duration(answer.hasRetryAfter(), answer.getRetryAfter()),
        answer.getLimitsList(),
        answer.getNoLimit());
  }

  private static Reserved reserved(ReserveResponse answer) {
    Decision decision =
        decision(
            answer.getVerdict(),
            answer.hasRemaining() ? OptionalLong.of(answer.getRemaining()) : OptionalLong.empty(),
            CheckProtocol.duration(answer.hasReset(), answer.getReset()),
            CheckProtocol.duration(answer.hasRetryAfter(), answer.getRetryAfter()),
            answer.getLimitsList(),
            answer.getNoLimit());
    return new Reserved(
        decision,
        Optional.of(answer.getReservation()).filter(id -> decision.allowed() && !id.isEmpty()),
        answer.getHits(),
        CheckProtocol.duration(answer.hasExpires(), answer.getExpires()));
  }

  static Leases.Granted granted(LeaseResponse answer) {
    Decision decision =
        decision(
            answer.getVerdict(),
            answer.hasRemaining() ? OptionalLong.of(answer.getRemaining()) : OptionalLong.empty(),
            CheckProtocol.duration(answer.hasReset(), answer.getReset()),
            CheckProtocol.duration(answer.hasRetryAfter(), answer.getRetryAfter()),
            answer.getLimitsList(),
            "");
    return new Leases.Granted(
        decision,
        answer.getNotLeased().isEmpty(),
        answer.getLease(),
        answer.getGranted(),
        CheckProtocol.duration(true, answer.getExpires()).orElseThrow());
  }

  private static Decision decision(
      Verdict verdict,
      OptionalLong remaining,
      Optional<Duration> reset,
      Optional<Duration> retryAfter,
      List<LimitStatus> limits,
      String noLimit) {
    return new Decision(
        allowed(verdict),
        Source.SERVER,
        remaining,
        reset,
        retryAfter,
        limits(limits),
        NoLimit.of(noLimit),
        Optional.empty(),
        Duration.ZERO);
  }

  private static boolean allowed(Verdict verdict) {
    return switch (verdict) {
      case VERDICT_OK -> true;
      case VERDICT_OVER_LIMIT -> false;
      default ->
          throw TollgateException.of(
              Status.INTERNAL.withDescription("the answer has no known verdict"));
    };
  }

  private static Settlement settlement(SettleResponse answer) {
    return new Settlement(
        Optional.of(answer.getReservation()),
        answer.getReserved(),
        answer.getCommitted(),
        answer.getRepeated(),
        answer.hasRemaining() ? OptionalLong.of(answer.getRemaining()) : OptionalLong.empty(),
        CheckProtocol.duration(answer.hasReset(), answer.getReset()),
        limits(answer.getLimitsList()),
        CheckProtocol.duration(answer.hasExpires(), answer.getExpires()));
  }

  private static List<Limit> limits(List<LimitStatus> statuses) {
    return statuses.stream()
        .map(
            status ->
                new Limit(
                    status.getDescriptorIndex(),
                    status.getName(),
                    status.getRule(),
                    status.getRequestsPerUnit(),
                    status.getWindow(),
                    status.getVerdict() != Verdict.VERDICT_OVER_LIMIT,
                    status.getRemaining(),
                    CheckProtocol.duration(status.hasReset(), status.getReset()),
                    CheckProtocol.duration(status.hasRetryAfter(), status.getRetryAfter())))
        .toList();
  }
}
