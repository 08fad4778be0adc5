package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.tollgatelimits.grpc.GrpcRequest;
import io.github.tollgatelimits.grpc.TollgateInterceptor;
import io.github.tollgatelimits.middleware.Count;
import io.github.tollgatelimits.middleware.HeaderStyle;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestEntry;
import io.github.tollgatelimits.servlet.TollgateFilter;
import io.github.tollgatelimits.spring.TollgateAutoConfiguration;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.services.HealthStatusManager;
import io.grpc.stub.MetadataUtils;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.ThrowingConsumer;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** The middleware of each framework, on real sockets, with a real tollgate. */
class MiddlewareTest {
  private static final HttpClient HTTP = HttpClient.newHttpClient();

  private static HttpResponse<String> get(int port, String path) throws Exception {
    return HTTP.send(
        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).build(),
        HttpResponse.BodyHandlers.ofString());
  }

  private static void fivePassAndTheSixthIsRefused(int port) throws Exception {
    for (int call = 0; call < 5; call++) {
      HttpResponse<String> response = get(port, "/");
      assertEquals(200, response.statusCode());
      assertEquals("hello", response.body());
      assertEquals("5", response.headers().firstValue("RateLimit-Limit").orElseThrow());
      assertEquals(
          Integer.toString(4 - call),
          response.headers().firstValue("RateLimit-Remaining").orElseThrow());
      assertTrue(response.headers().firstValue("RateLimit-Reset").isPresent());
    }
    HttpResponse<String> refused = get(port, "/");
    assertEquals(429, refused.statusCode());
    assertEquals("Too Many Requests", refused.body());
    assertEquals(
        "text/plain;charset=utf-8",
        refused.headers().firstValue("Content-Type").orElseThrow().replace(" ", "").toLowerCase());
    assertTrue(Long.parseLong(refused.headers().firstValue("Retry-After").orElseThrow()) >= 1);
    assertEquals("0", refused.headers().firstValue("RateLimit-Remaining").orElseThrow());
    assertEquals(200, get(port, "/healthz").statusCode());
  }

  /** Answers hello, or as the path says. */
  public static final class HelloServlet extends HttpServlet {
    private static final long serialVersionUID = 1L;

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      switch (request.getRequestURI()) {
        case "/missing" -> response.sendError(404);
        case "/broken" -> throw new IOException("part of the test");
        case "/later" -> {
          AsyncContext later = request.startAsync();
          later.start(
              () -> {
                response.setStatus(404);
                later.complete();
              });
        }
        default -> response.getWriter().print("hello");
      }
    }
  }

  /** Runs the servlet behind a filter. */
  private static void withServlet(
      java.nio.file.Path folder,
      TollgateClient client,
      LimitOptions<HttpServletRequest> options,
      ThrowingConsumer<Integer> use)
      throws Throwable {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setHostname("127.0.0.1");
    tomcat.setPort(0);
    Context context = tomcat.addContext("", folder.toString());
    Tomcat.addServlet(context, "hello", new HelloServlet()).setAsyncSupported(true);
    context.addServletMappingDecoded("/*", "hello");
    FilterDef definition = new FilterDef();
    definition.setFilterName("tollgate");
    definition.setFilter(new TollgateFilter(client, options));
    definition.setAsyncSupported("true");
    context.addFilterDef(definition);
    FilterMap mapping = new FilterMap();
    mapping.setFilterName("tollgate");
    mapping.addURLPattern("/*");
    mapping.setDispatcher(DispatcherType.REQUEST.name());
    context.addFilterMap(mapping);
    tomcat.getConnector();
    tomcat.start();
    try {
      use.accept(tomcat.getConnector().getLocalPort());
    } finally {
      tomcat.stop();
      tomcat.destroy();
    }
  }

  /** Waits until the requests that counted have left so many hits. */
  private static void awaitLeft(TollgateClient client, long left) {
    Descriptor address = Descriptor.of("remote_address", "127.0.0.1");
    CheckRequest nothing = CheckRequest.builder().descriptor(address).hits(0).build();
    long started = System.nanoTime();
    while (client.peek(nothing).remaining().orElseThrow() != left) {
      assertTrue(System.nanoTime() - started < 10_000_000_000L, "no hit was taken");
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"FAILED", "SUCCESSFUL"})
  void servletFilterCounts(Count count, @TempDir java.nio.file.Path folder) throws Throwable {
    Map<String, Integer> failing = Map.of("/missing", 404, "/broken", 500, "/later", 404);
    LimitOptions<HttpServletRequest> options =
        LimitOptions.<HttpServletRequest>builder()
            .descriptor(RequestEntry.remoteAddress("remote_address"))
            .count(count)
            .build();
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client = ServiceTest.client(tollgate.address()).build()) {
      withServlet(
          folder,
          client,
          options,
          port -> {
            List<String> bad = List.of("/missing", "/broken", "/later");
            List<String> good = List.of("/");
            List<String> counted = count == Count.FAILED ? bad : good;
            for (int left = 4; left >= 0; left--) {
              for (String path : count == Count.FAILED ? good : bad) {
                assertEquals(failing.getOrDefault(path, 200), get(port, path).statusCode(), path);
              }
              String path = counted.get(left % counted.size());
              assertEquals(failing.getOrDefault(path, 200), get(port, path).statusCode(), path);
              awaitLeft(client, left);
            }
            assertEquals(429, get(port, "/").statusCode());
            assertEquals(429, get(port, "/missing").statusCode());
          });
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"FAILED", "SUCCESSFUL"})
  void grpcInterceptorCounts(Count count) throws Exception {
    LimitOptions<GrpcRequest> options =
        LimitOptions.<GrpcRequest>builder()
            .descriptor(RequestEntry.remoteAddress("remote_address"))
            .count(count)
            .build();
    HealthCheckRequest good = HealthCheckRequest.getDefaultInstance();
    HealthCheckRequest bad = HealthCheckRequest.newBuilder().setService("unknown").build();
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client = ServiceTest.client(tollgate.address()).build()) {
      Server server =
          NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
              .intercept(new TollgateInterceptor(client, options))
              .addService(new HealthStatusManager().getHealthService())
              .build()
              .start();
      ManagedChannel channel =
          NettyChannelBuilder.forAddress("127.0.0.1", server.getPort()).usePlaintext().build();
      try {
        var stub = HealthGrpc.newBlockingStub(channel);
        for (int left = 4; left >= 0; left--) {
          // First the one that does not count: the other one may be counted at once.
          for (HealthCheckRequest request :
              count == Count.FAILED ? List.of(good, bad) : List.of(bad, good)) {
            Status.Code expected = request == good ? Status.Code.OK : Status.Code.NOT_FOUND;
            assertEquals(expected, check(stub, request));
          }
          awaitLeft(client, left);
        }
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, check(stub, good));
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, check(stub, bad));
      } finally {
        channel.shutdownNow();
        server.shutdownNow();
      }
    }
  }

  private static Status.Code check(HealthGrpc.HealthBlockingStub stub, HealthCheckRequest request) {
    try {
      stub.check(request);
      return Status.Code.OK;
    } catch (StatusRuntimeException ended) {
      return ended.getStatus().getCode();
    }
  }

  /** Refuses each request by a decision of its own. */
  public static final class RefusingServlet extends HttpServlet {
    private static final long serialVersionUID = 1L;

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      LimitOptions<Object> options =
          LimitOptions.builder()
              .headers(HeaderStyle.X_RATELIMIT)
              .body("slow down", "text/plain")
              .build();
      TollgateException error = TollgateException.breakerIsOpen();
      Decision allowed = Decision.withoutAnswer(true, Source.ALLOW, Optional.empty(), error);
      Decision refused =
          Decision.withoutAnswer(
              false, Source.LOCAL, Optional.of(java.time.Duration.ofMillis(1_500)), error);
      assertFalse(TollgateFilter.writeRefusal(response, allowed, options));
      assertTrue(TollgateFilter.writeRefusal(response, refused, options));
    }
  }

  @Test
  void aHandlerWritesTheRefusal(@TempDir java.nio.file.Path folder) throws Exception {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(folder.toString());
    tomcat.setHostname("127.0.0.1");
    tomcat.setPort(0);
    Context context = tomcat.addContext("", folder.toString());
    Tomcat.addServlet(context, "refusing", new RefusingServlet());
    context.addServletMappingDecoded("/*", "refusing");
    tomcat.getConnector();
    tomcat.start();
    try {
      HttpResponse<String> refused = get(tomcat.getConnector().getLocalPort(), "/");
      assertEquals(429, refused.statusCode());
      assertEquals("slow down", refused.body());
      assertEquals("2", refused.headers().firstValue("Retry-After").orElseThrow());
    } finally {
      tomcat.stop();
      tomcat.destroy();
    }
  }

  @Test
  void servletFilter(@TempDir java.nio.file.Path folder) throws Throwable {
    AtomicInteger decisions = new AtomicInteger();
    LimitOptions<HttpServletRequest> options =
        LimitOptions.<HttpServletRequest>builder()
            .descriptor(RequestEntry.remoteAddress("remote_address"))
            .skipPaths("/healthz")
            .skip(request -> request.getHeader("x-internal") != null)
            .onDecision(
                (request, decision) -> {
                  decisions.incrementAndGet();
                  throw new IllegalStateException("must be logged only");
                })
            .build();
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client = ServiceTest.client(tollgate.address()).build()) {
      withServlet(folder, client, options, MiddlewareTest::fivePassAndTheSixthIsRefused);
      assertEquals(6, decisions.get());
    }
  }

  /** A Spring Boot application. */
  @Configuration(proxyBeanMethods = false)
  @EnableAutoConfiguration
  @RestController
  public static class Application {
    /** Answers hello. */
    @GetMapping({"/", "/healthz"})
    public String hello() {
      return "hello";
    }
  }

  @Test
  void springBootRefusesAnUnknownProperty() {
    springBootRefuses("tollgate.address", "--tollgate.address=limits:8081");
  }

  @Test
  void springBootRefusesAnUnknownSystemProperty() {
    System.setProperty("tollgate.filter.shadw", "true");
    try {
      springBootRefuses("tollgate.filter.shadw", "--tollgate.deadline=5s");
    } finally {
      System.clearProperty("tollgate.filter.shadw");
    }
  }

  private static void springBootRefuses(String name, String property) {
    Throwable refused =
        assertThrows(
            RuntimeException.class,
            () ->
                new SpringApplication(Application.class)
                    .run(
                        "--server.port=0",
                        "--spring.main.banner-mode=off",
                        "--logging.level.root=OFF",
                        "--tollgate.domain=edge",
                        property));
    while (refused.getCause() != null) {
      refused = refused.getCause();
    }
    assertTrue(refused.getMessage().contains(name), refused.getMessage());
  }

  @Test
  void springBoot() throws Exception {
    try (RealTollgate tollgate = RealTollgate.start();
        var context =
            (ServletWebServerApplicationContext)
                new SpringApplication(Application.class)
                    .run(
                        "--server.port=0",
                        "--server.address=127.0.0.1",
                        "--spring.main.banner-mode=off",
                        "--logging.level.root=WARN",
                        "--tollgate.domain=edge",
                        "--tollgate.addresses=" + tollgate.address(),
                        "--tollgate.deadline=5s",
                        "--tollgate.filter.descriptors[0][0].key=remote_address",
                        "--tollgate.filter.descriptors[0][0].remote-address=true",
                        "--tollgate.filter.skip-paths=/healthz")) {
      assertNotNull(context.getBean(TollgateAutoConfiguration.class));
      fivePassAndTheSixthIsRefused(context.getWebServer().getPort());
    }
  }

  @Test
  void grpcInterceptor() throws Exception {
    LimitOptions<GrpcRequest> options =
        LimitOptions.<GrpcRequest>builder()
            .descriptor(RequestEntry.remoteAddress("remote_address"))
            .skipPaths("/grpc.health.v1.Health/List")
            .build();
    HealthStatusManager health = new HealthStatusManager();
    try (RealTollgate tollgate = RealTollgate.start();
        TollgateClient client = ServiceTest.client(tollgate.address()).build()) {
      Server server =
          NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
              .intercept(new TollgateInterceptor(client, options))
              .addService(health.getHealthService())
              .build()
              .start();
      ManagedChannel channel =
          NettyChannelBuilder.forAddress("127.0.0.1", server.getPort()).usePlaintext().build();
      try {
        AtomicReference<Metadata> initial = new AtomicReference<>();
        AtomicReference<Metadata> trailers = new AtomicReference<>();
        Channel captured =
            ClientInterceptors.intercept(
                channel, MetadataUtils.newCaptureMetadataInterceptor(initial, trailers));
        var stub = HealthGrpc.newBlockingStub(captured);
        Metadata.Key<String> remaining =
            Metadata.Key.of("ratelimit-remaining", Metadata.ASCII_STRING_MARSHALLER);
        for (int call = 0; call < 5; call++) {
          stub.check(HealthCheckRequest.getDefaultInstance());
          assertEquals(Integer.toString(4 - call), initial.get().get(remaining));
        }
        StatusRuntimeException refused =
            org.junit.jupiter.api.Assertions.assertThrows(
                StatusRuntimeException.class,
                () -> stub.check(HealthCheckRequest.getDefaultInstance()));
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, refused.getStatus().getCode());
        assertEquals("rate limited", refused.getStatus().getDescription());
        assertEquals("0", trailers.get().get(remaining));
        var details =
            io.grpc.protobuf.StatusProto.fromStatusAndTrailers(
                refused.getStatus(), refused.getTrailers());
        assertTrue(details.getDetails(0).is(com.google.rpc.RetryInfo.class));

        // A streaming call is checked once, when it starts.
        StatusRuntimeException stream =
            org.junit.jupiter.api.Assertions.assertThrows(
                StatusRuntimeException.class,
                () -> stub.watch(HealthCheckRequest.getDefaultInstance()).next());
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, stream.getStatus().getCode());
      } finally {
        channel.shutdownNow();
        server.shutdownNow();
      }
    }
  }
}
