package io.github.tollgatelimits;

import com.google.protobuf.Message;
import io.grpc.MethodDescriptor;
import io.grpc.protobuf.ProtoUtils;
import java.time.Duration;
import java.util.Optional;

/** How a protocol sends checks and peeks. */
interface CheckProtocol {
  /** Returns a check. */
  Rpc<?, ?, Decision> check(String domain, CheckRequest request);

  /** Returns a peek. */
  Rpc<?, ?, Decision> peek(String domain, CheckRequest request);

  /** Returns the unary method {@code name} of a service. */
  static <Q extends Message, A extends Message> MethodDescriptor<Q, A> unary(
      String service, String name, Q request, A answer) {
    return MethodDescriptor.<Q, A>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName(MethodDescriptor.generateFullMethodName(service, name))
        .setRequestMarshaller(ProtoUtils.marshaller(request))
        .setResponseMarshaller(ProtoUtils.marshaller(answer))
        .build();
  }

  /** Converts a duration of an answer. A negative one is 0. */
  static Optional<Duration> duration(boolean present, com.google.protobuf.Duration sent) {
    if (!present) {
      return Optional.empty();
    }
    Duration duration = Duration.ofSeconds(sent.getSeconds(), sent.getNanos());
    return Optional.of(duration.isNegative() ? Duration.ZERO : duration);
  }
}
