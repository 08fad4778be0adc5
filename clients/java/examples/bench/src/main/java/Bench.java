import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.Bucket;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.proxy.ProxyManager;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.github.tollgatelimits.TollgateClient;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestEntry;
import io.github.tollgatelimits.servlet.TollgateFilter;
import io.lettuce.core.RedisClient;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.IntStream;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/**
 * HTTP server with routes that answer alike: without a limit, with constant headers of one, with
 * tollgate, and with Bucket4j and Redis.
 */
public final class Bench {
  private static final long LIMIT_PER_DAY = 1_000_000_000L;

  private Bench() {}

  private static final class Hello extends HttpServlet {
    private static final long serialVersionUID = 1L;

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      response.getWriter().print("hello");
    }
  }

  /** Sends the headers of tollgate's filter, and limits nothing. */
  private static final class HeaderFilter extends HttpFilter {
    private static final long serialVersionUID = 1L;

    @Override
    protected void doFilter(
        HttpServletRequest request, HttpServletResponse response, FilterChain chain)
        throws IOException, ServletException {
      response.setHeader("RateLimit-Limit", Long.toString(LIMIT_PER_DAY));
      response.setHeader("RateLimit-Remaining", Long.toString(LIMIT_PER_DAY));
      response.setHeader("RateLimit-Reset", "86400");
      chain.doFilter(request, response);
    }
  }

  private static final class BucketFilter extends HttpFilter {
    private static final long serialVersionUID = 1L;

    private final transient Bucket[] buckets;

    BucketFilter(Bucket[] buckets) {
      this.buckets = buckets;
    }

    @Override
    protected void doFilter(
        HttpServletRequest request, HttpServletResponse response, FilterChain chain)
        throws IOException, ServletException {
      if (buckets[ThreadLocalRandom.current().nextInt(buckets.length)].tryConsume(1)) {
        chain.doFilter(request, response);
      } else {
        response.setStatus(429);
      }
    }
  }

  private static Bucket[] redisBuckets(RedisClient redis, int keys) {
    ProxyManager<byte[]> proxies = Bucket4jLettuce.casBasedBuilder(redis).build();
    BucketConfiguration configuration =
        BucketConfiguration.builder()
            .addLimit(
                Bandwidth.builder()
                    .capacity(LIMIT_PER_DAY)
                    .refillGreedy(LIMIT_PER_DAY, Duration.ofDays(1))
                    .build())
            .build();
    return IntStream.range(0, keys)
        .mapToObj(
            key ->
                proxies.getProxy(
                    ("bench" + key).getBytes(StandardCharsets.UTF_8), () -> configuration))
        .toArray(Bucket[]::new);
  }

  private static void addFilter(Context context, String name, Filter filter) {
    FilterDef definition = new FilterDef();
    definition.setFilterName(name);
    definition.setFilter(filter);
    context.addFilterDef(definition);
    FilterMap mapping = new FilterMap();
    mapping.setFilterName(name);
    mapping.addURLPattern("/" + name);
    context.addFilterMap(mapping);
  }

  private static String env(String name, String fallback) {
    return System.getenv().getOrDefault(name, fallback);
  }

  /** Runs the server until SIGTERM. */
  public static void main(String[] args) throws Exception {
    TollgateClient client =
        TollgateClient.builder()
            .addresses(env("TOLLGATE", "localhost:8081"))
            .batching(env("BATCHING", "0").equals("1"))
            .leases(env("LEASES", "0").equals("1"))
            .domain("bench")
            .denialCacheEntries(0)
            .build();
    int keys = Integer.parseInt(env("KEYS", "1"));
    RedisClient redis = RedisClient.create(env("REDIS", "redis://127.0.0.1:6379"));
    LimitOptions<HttpServletRequest> options =
        LimitOptions.<HttpServletRequest>builder()
            .descriptor(
                RequestEntry.function(
                    "key", request -> String.valueOf(ThreadLocalRandom.current().nextInt(keys))))
            .build();

    Path folder = Files.createTempDirectory("tollgate-bench");
    folder.toFile().deleteOnExit();
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setPort(Integer.parseInt(env("PORT", "8000")));
    tomcat.setSilent(true);
    Context context = tomcat.addContext("", folder.toString());
    Tomcat.addServlet(context, "hello", new Hello());
    for (String route : new String[] {"/bare", "/headers", "/tollgate", "/peer"}) {
      context.addServletMappingDecoded(route, "hello");
    }
    addFilter(context, "headers", new HeaderFilter());
    addFilter(context, "tollgate", new TollgateFilter(client, options));
    addFilter(context, "peer", new BucketFilter(redisBuckets(redis, keys)));
    tomcat.getConnector().setProperty("address", "127.0.0.1");
    tomcat.start();

    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  client.close();
                  redis.shutdown();
                }));
    System.out.println("listening on 127.0.0.1:" + tomcat.getConnector().getLocalPort());
    Thread.currentThread().join();
  }
}
