package io.github.tollgatelimits;

import io.grpc.MethodDescriptor;
import java.util.function.Function;

/**
 * A method, its request, and how to read its answer.
 *
 * @param decode reads the answer; throws a {@link TollgateException} if it makes no sense
 */
record Rpc<Q, A, R>(MethodDescriptor<Q, A> method, Q request, Function<A, R> decode) {}
