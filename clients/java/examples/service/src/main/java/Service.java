import io.github.tollgatelimits.Decision;
import io.github.tollgatelimits.OnError;
import io.github.tollgatelimits.Source;
import io.github.tollgatelimits.TollgateClient;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestEntry;
import io.github.tollgatelimits.servlet.TollgateFilter;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.EnumMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/** HTTP service of the demo: one limit, and counts of its decisions. */
public final class Service {
  private static final Duration LATE = Duration.ofMillis(100);

  private Service() {}

  /** Counts of decisions. */
  private static final class Stats {
    final AtomicLong checks = new AtomicLong();
    final AtomicLong late = new AtomicLong();
    final Map<Source, AtomicLong> sources = new EnumMap<>(Source.class);
    private final Duration lateAfter;

    Stats(Duration deadline) {
      lateAfter = deadline.plus(LATE);
      for (Source source : Source.values()) {
        sources.put(source, new AtomicLong());
      }
    }

    void count(Decision decision) {
      checks.incrementAndGet();
      sources.get(decision.source()).incrementAndGet();
      if (decision.elapsed().compareTo(lateAfter) > 0) {
        late.incrementAndGet();
      }
    }

    String json() {
      String counts =
          sources.entrySet().stream()
              .map(
                  entry ->
                      "\"%s\": %d"
                          .formatted(
                              entry.getKey().name().toLowerCase(Locale.ROOT),
                              entry.getValue().get()))
              .collect(Collectors.joining(", "));
      return "{\"checks\": %d, \"late\": %d, \"sources\": {%s}, \"threads\": %d}"
          .formatted(checks.get(), late.get(), counts, Thread.activeCount());
    }
  }

  private static final class Routes extends HttpServlet {
    private static final long serialVersionUID = 1L;

    private final transient Stats stats;

    Routes(Stats stats) {
      this.stats = stats;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      switch (request.getRequestURI()) {
        case "/" -> response.getWriter().print("hello from java");
        case "/healthz" -> response.getWriter().print("ok");
        case "/stats" -> {
          response.setContentType("application/json");
          response.getWriter().print(stats.json());
        }
        default -> response.sendError(HttpServletResponse.SC_NOT_FOUND);
      }
    }
  }

  private static String env(String name, String fallback) {
    return System.getenv().getOrDefault(name, fallback);
  }

  /** Runs the service until SIGTERM. */
  public static void main(String[] args) throws Exception {
    Duration deadline = Duration.ofMillis(Long.parseLong(env("DEADLINE_MS", "100")));
    Stats stats = new Stats(deadline);
    TollgateClient client =
        TollgateClient.builder()
            .addresses(env("TOLLGATE", "localhost:8081"))
            .domain("demo")
            .deadline(deadline)
            .onError(OnError.valueOf(env("ON_ERROR", "allow").toUpperCase(Locale.ROOT)))
            .build();
    LimitOptions<HttpServletRequest> options =
        LimitOptions.<HttpServletRequest>builder()
            .descriptor(RequestEntry.value("generic_key", "demo"))
            .skipPaths("/healthz", "/stats")
            .onDecision((request, decision) -> stats.count(decision))
            .build();

    Path folder = Files.createTempDirectory("tollgate-service");
    folder.toFile().deleteOnExit();
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setHostname("127.0.0.1");
    tomcat.setPort(Integer.parseInt(env("PORT", "8000")));
    tomcat.setSilent(true);
    Context context = tomcat.addContext("", folder.toString());
    Tomcat.addServlet(context, "routes", new Routes(stats));
    context.addServletMappingDecoded("/", "routes");
    FilterDef filter = new FilterDef();
    filter.setFilterName("tollgate");
    filter.setFilter(new TollgateFilter(client, options));
    context.addFilterDef(filter);
    FilterMap mapping = new FilterMap();
    mapping.setFilterName("tollgate");
    mapping.addURLPattern("/*");
    context.addFilterMap(mapping);
    tomcat.getConnector().setProperty("address", "127.0.0.1");
    tomcat.start();

    Runtime.getRuntime().addShutdownHook(new Thread(client::close));
    System.out.println("listening on 127.0.0.1:" + tomcat.getConnector().getLocalPort());
    Thread.currentThread().join();
  }
}
