/**
 * Client of the tollgate rate limit service.
 *
 * <p>{@link io.github.tollgatelimits.TollgateClient} checks limits and reserves hits. The packages
 * {@code servlet}, {@code spring} and {@code grpc} limit the requests of a server.
 */
package io.github.tollgatelimits;
