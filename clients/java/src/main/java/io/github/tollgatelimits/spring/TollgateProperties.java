package io.github.tollgatelimits.spring;

import io.github.tollgatelimits.OnError;
import io.github.tollgatelimits.Protocol;
import io.github.tollgatelimits.UnknownDomain;
import io.github.tollgatelimits.middleware.Count;
import io.github.tollgatelimits.middleware.HeaderStyle;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * Properties under {@code tollgate}.
 *
 * @param domain domain of the rules; without it, nothing is configured
 * @param addresses one or several {@code host:port}
 * @param protocol the gRPC service to call
 * @param deadline longest wait of a check
 * @param onError what decides without an answer
 * @param unknownDomain what becomes of a check whose domain no rules have
 * @param denialCacheEntries bound of the denial cache; 0 turns it off
 * @param leases whether checks take hits from leases; absent: those of the filter
 * @param batching whether concurrent checks go over one stream
 * @param breaker circuit breaker
 * @param local token bucket of {@code on-error: local}
 * @param tls TLS; absent: off
 * @param filter rate limits of requests
 */
@ConfigurationProperties(prefix = "tollgate", ignoreUnknownFields = false)
public record TollgateProperties(
    String domain,
    @DefaultValue("localhost:8081") List<String> addresses,
    @DefaultValue("TOLLGATE") Protocol protocol,
    @DefaultValue("100ms") Duration deadline,
    @DefaultValue("ALLOW") OnError onError,
    @DefaultValue("ALLOW") UnknownDomain unknownDomain,
    @DefaultValue("10000") int denialCacheEntries,
    Boolean leases,
    @DefaultValue("false") boolean batching,
    @DefaultValue Breaker breaker,
    @DefaultValue Local local,
    Tls tls,
    @DefaultValue Filter filter) {
  /**
   * Circuit breaker.
   *
   * @param failures failures in a row that open it
   * @param open time until it lets one call through
   */
  public record Breaker(@DefaultValue("5") int failures, @DefaultValue("1s") Duration open) {}

  /**
   * Token bucket.
   *
   * @param perSecond tokens a second
   * @param burst most tokens
   */
  public record Local(@DefaultValue("10") long perSecond, @DefaultValue("10") long burst) {}

  /**
   * TLS. All files are PEM.
   *
   * @param caBundle CA bundle; absent: the system's roots
   * @param certificate client certificate; absent: none
   * @param privateKey PKCS#8 key of the client certificate
   * @param serverName name that the server's certificate must have
   */
  public record Tls(Path caBundle, Path certificate, Path privateKey, String serverName) {}

  /**
   * Rate limits of requests. Without descriptors, requests are not checked.
   *
   * @param descriptors descriptors, each a list of entries
   * @param hits hits of a request
   * @param trustedProxies addresses and CIDR blocks
   * @param skipPaths templates of the paths that pass without a check
   * @param shadow whether requests always pass
   * @param count which requests take hits
   * @param headers rate limit headers
   * @param status HTTP status of a refused request
   * @param body body of a refused request
   * @param contentType content type of that body
   * @param errorStatus HTTP status of a request that {@code on-error: deny} refuses
   * @param order order of the filter
   */
  public record Filter(
      @DefaultValue List<List<Entry>> descriptors,
      @DefaultValue("1") long hits,
      @DefaultValue List<String> trustedProxies,
      @DefaultValue List<String> skipPaths,
      @DefaultValue("false") boolean shadow,
      @DefaultValue("ALL") Count count,
      @DefaultValue("RATELIMIT") List<HeaderStyle> headers,
      @DefaultValue("429") int status,
      @DefaultValue("Too Many Requests") String body,
      @DefaultValue("text/plain; charset=utf-8") String contentType,
      @DefaultValue("503") int errorStatus,
      @DefaultValue("0") int order) {}

  /**
   * An entry of a descriptor, with one source.
   *
   * @param key the key
   * @param value source: a fixed value
   * @param header source: a header
   * @param method source: the HTTP method, if true
   * @param path source: the path, if true
   * @param pathTemplates source: the first template that matches the path
   * @param remoteAddress source: the address of the client, if true
   * @param defaultValue value of requests that have none
   */
  public record Entry(
      String key,
      String value,
      String header,
      boolean method,
      boolean path,
      List<String> pathTemplates,
      boolean remoteAddress,
      String defaultValue) {}
}
