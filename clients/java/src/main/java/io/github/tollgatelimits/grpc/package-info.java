/** Rate limits for gRPC servers. */
package io.github.tollgatelimits.grpc;
