package io.github.tollgatelimits;

import com.google.protobuf.UInt64Value;
import io.github.tollgatelimits.internal.rls.RateLimitDescriptor;
import io.github.tollgatelimits.internal.rls.RateLimitRequest;
import io.github.tollgatelimits.internal.rls.RateLimitResponse;
import io.github.tollgatelimits.internal.rls.RateLimitResponse.Code;
import io.github.tollgatelimits.internal.rls.RateLimitResponse.DescriptorStatus;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;

/** Messages of Envoy's rate limit service. */
final class EnvoyProtocol implements CheckProtocol {
  private static final MethodDescriptor<RateLimitRequest, RateLimitResponse> SHOULD_RATE_LIMIT =
      CheckProtocol.unary(
          "envoy.service.ratelimit.v3.RateLimitService",
          "ShouldRateLimit",
          RateLimitRequest.getDefaultInstance(),
          RateLimitResponse.getDefaultInstance());

  @Override
  public Rpc<?, ?, Decision> check(String domain, CheckRequest request) {
    List<Long> hits = Hits.ofEach(request.descriptors(), request.hitsOrNull());
    return rpc(domain, request.descriptors(), hits);
  }

  @Override
  public Rpc<?, ?, Decision> peek(String domain, CheckRequest request) {
    List<Long> none = request.descriptors().stream().map(descriptor -> 0L).toList();
    return rpc(domain, request.descriptors(), none);
  }

  private static Rpc<?, ?, Decision> rpc(
      String domain, List<Descriptor> descriptors, List<Long> hits) {
    RateLimitRequest.Builder message = RateLimitRequest.newBuilder().setDomain(domain);
    for (int at = 0; at < descriptors.size(); at++) {
      RateLimitDescriptor.Builder descriptor = message.addDescriptorsBuilder();
      for (Descriptor.Entry entry : descriptors.get(at).entries()) {
        descriptor.addEntriesBuilder().setKey(entry.key()).setValue(entry.value());
      }
      if (hits.get(at) != 1) {
        descriptor.setHitsAddend(UInt64Value.of(hits.get(at)));
      }
    }
    return new Rpc<>(SHOULD_RATE_LIMIT, message.build(), EnvoyProtocol::decision);
  }

  private static Decision decision(RateLimitResponse answer) {
    boolean allowed =
        switch (answer.getOverallCode()) {
          case OK -> true;
          case OVER_LIMIT -> false;
          default ->
              throw TollgateException.of(
                  Status.INTERNAL.withDescription("the answer has no known code"));
        };
    List<Limit> limits = new ArrayList<>();
    Optional<Duration> retryAfter = Optional.empty();
    for (int at = 0; at < answer.getStatusesCount(); at++) {
      DescriptorStatus status = answer.getStatuses(at);
      boolean refused = status.getCode() == Code.OVER_LIMIT;
      Optional<Duration> reset =
          CheckProtocol.duration(status.hasDurationUntilReset(), status.getDurationUntilReset());
      if (refused && reset.isPresent()) {
        retryAfter = Optional.of(longest(retryAfter.orElse(Duration.ZERO), reset.get()));
      }
      if (status.hasCurrentLimit()) {
        RateLimitResponse.RateLimit limit = status.getCurrentLimit();
        limits.add(
            new Limit(
                at,
                limit.getName(),
                "",
                Integer.toUnsignedLong(limit.getRequestsPerUnit()),
                window(limit),
                !refused,
                Integer.toUnsignedLong(status.getLimitRemaining()),
                reset,
                refused ? reset : Optional.empty()));
      }
    }
    Optional<Limit> tightest = Limit.tightest(limits, allowed);
    return new Decision(
        allowed,
        Source.SERVER,
        tightest.isPresent() ? OptionalLong.of(tightest.get().remaining()) : OptionalLong.empty(),
        tightest.flatMap(Limit::reset),
        allowed ? Optional.empty() : retryAfter,
        limits,
        Optional.empty(),
        Optional.empty(),
        Duration.ZERO);
  }

  private static Duration longest(Duration one, Duration other) {
    return one.compareTo(other) >= 0 ? one : other;
  }

  /** Returns the window in words, such as {@code 1 minute} or {@code 15 minutes}. */
  private static String window(RateLimitResponse.RateLimit limit) {
    String unit =
        switch (limit.getUnit()) {
          case UNKNOWN_UNIT, UNRECOGNIZED -> "";
          default -> limit.getUnit().name().toLowerCase(Locale.ROOT);
        };
    if (unit.isEmpty()) {
      return "";
    }
    long count = Integer.toUnsignedLong(limit.getUnitMultiplier().getValue());
    return count <= 1 ? "1 " + unit : count + " " + unit + "s";
  }
}
