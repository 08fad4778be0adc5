package io.github.tollgatelimits.grpc;

import io.grpc.Metadata;
import io.grpc.ServerCall;

/**
 * A call to a gRPC server, for the functions of the options.
 *
 * @param call the call
 * @param headers its metadata
 */
public record GrpcRequest(ServerCall<?, ?> call, Metadata headers) {}
