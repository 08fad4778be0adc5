package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Compiles and runs the programs of the README, each in an empty folder. */
class ReadmeTest {
  private static final Pattern BLOCK =
      Pattern.compile("<!-- run: (\\w+)\\.java -->\n```java\n(.*?)```\n", Pattern.DOTALL);
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  @TempDir Path folder;
  private RealTollgate tollgate;

  @BeforeEach
  void start() throws Exception {
    tollgate = RealTollgate.start();
  }

  @AfterEach
  void stop() throws Exception {
    tollgate.close();
  }

  private static Map<String, String> blocks() throws IOException {
    Map<String, String> blocks = new LinkedHashMap<>();
    Matcher match = BLOCK.matcher(Files.readString(Path.of("README.md")));
    while (match.find()) {
      blocks.put(match.group(1), match.group(2));
    }
    return blocks;
  }

  private Process run(String name, int port) throws Exception {
    Path source = folder.resolve(name + ".java");
    Files.writeString(source, blocks().get(name));
    // Spring scans the classes beside the application: those of the tests must not be there.
    String classPath = System.getProperty("java.class.path");
    int result =
        ToolProvider.getSystemJavaCompiler()
            .run(
                null,
                null,
                null,
                "-d",
                folder.toString(),
                "-cp",
                classPath,
                "-parameters",
                source.toString());
    assertEquals(0, result, name + " does not compile");
    ProcessBuilder builder =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp",
                folder + File.pathSeparator + withoutTests(classPath),
                name)
            .directory(folder.toFile())
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("output").toFile());
    builder.environment().put("TOLLGATE", tollgate.address());
    builder.environment().put("PORT", Integer.toString(port));
    return builder.start();
  }

  private static String withoutTests(String classPath) {
    return Pattern.compile(File.pathSeparator)
        .splitAsStream(classPath)
        .filter(part -> !part.endsWith("test-classes"))
        .collect(java.util.stream.Collectors.joining(File.pathSeparator));
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  @Test
  void allProgramsAreTested() throws Exception {
    assertEquals(
        Set.of("ClientExample", "ServletExample", "SpringExample", "GrpcExample"),
        blocks().keySet());
  }

  @Test
  void client() throws Exception {
    Process process = run("ClientExample", 0);
    assertTrue(process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS));
    assertEquals("allowed\ncommitted 120\n", Files.readString(folder.resolve("output")));
  }

  @Test
  void servlet() throws Exception {
    fivePassAndTheSixthIsRefused("ServletExample");
  }

  @Test
  void spring() throws Exception {
    fivePassAndTheSixthIsRefused("SpringExample");
  }

  private void fivePassAndTheSixthIsRefused(String name) throws Exception {
    int port = freePort();
    Process process = run(name, port);
    try {
      HttpClient http = HttpClient.newHttpClient();
      awaitPort(process, port);
      HttpRequest request =
          HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/")).build();
      int refused = 0;
      for (int call = 0; call < 8; call++) {
        HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() == 429) {
          refused++;
        } else {
          assertEquals("hello", response.body());
        }
      }
      assertEquals(3, refused, "refused of 8");
    } finally {
      process.destroyForcibly().waitFor();
    }
  }

  @Test
  void grpc() throws Exception {
    int port = freePort();
    Process process = run("GrpcExample", port);
    ManagedChannel channel =
        NettyChannelBuilder.forAddress("127.0.0.1", port).usePlaintext().build();
    try {
      awaitPort(process, port);
      Status.Code last = Status.Code.OK;
      for (int call = 0; call < 10; call++) {
        try {
          HealthGrpc.newBlockingStub(channel).check(HealthCheckRequest.getDefaultInstance());
        } catch (StatusRuntimeException refused) {
          last = refused.getStatus().getCode();
        }
      }
      assertEquals(Status.Code.RESOURCE_EXHAUSTED, last);
    } finally {
      channel.shutdownNow();
      process.destroyForcibly().waitFor();
    }
  }

  private void awaitPort(Process process, int port) throws Exception {
    long end = System.nanoTime() + PATIENCE.toNanos();
    while (true) {
      try (var socket = new java.net.Socket("127.0.0.1", port)) {
        return;
      } catch (IOException closed) {
        assertTrue(process.isAlive(), () -> output());
        assertTrue(System.nanoTime() < end, () -> output());
        Thread.sleep(50);
      }
    }
  }

  private String output() {
    try {
      return Files.readString(folder.resolve("output"));
    } catch (IOException error) {
      return error.toString();
    }
  }
}
