package io.github.tollgatelimits;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A process of {@code tollgate serve}, from the binary that {@code TOLLGATE_BIN} names. */
public final class RealTollgate implements AutoCloseable {
  private static final Pattern LISTENS =
      Pattern.compile(" listens: gRPC 127\\.0\\.0\\.1:(\\d+), HTTP 127\\.0\\.0\\.1:(\\d+)");

  /** Rules of the tests. */
  public static final String RULES =
      """
      domain: edge
      descriptors:
        - key: user
          rate_limit: { unit: hour, requests_per_unit: 5, algorithm: sliding_window }
        - key: remote_address
          rate_limit: { unit: hour, requests_per_unit: 5, algorithm: sliding_window }
        - key: hundred
          rate_limit: { unit: day, requests_per_unit: 100, algorithm: sliding_window }
        - key: large
          rate_limit: { unit: day, requests_per_unit: 1000000000 }
        - key: budget
          rate_limit: { unit: day, requests_per_unit: 10000, algorithm: sliding_window }
      """;

  private final Process process;
  private final int port;

  private RealTollgate(Process process, int port) {
    this.process = process;
    this.port = port;
  }

  /** Starts a server on a free port. */
  public static RealTollgate start(String... flags) throws Exception {
    return start(0, flags);
  }

  /** Starts a server on a port. */
  public static RealTollgate start(int port, String... flags) throws Exception {
    String binary = System.getenv("TOLLGATE_BIN");
    if (binary == null || binary.isEmpty()) {
      throw new IllegalStateException(
          "TOLLGATE_BIN is not set: set it to the path of the tollgate binary");
    }
    Path rules = Files.createTempFile("tollgate-rules", ".yaml");
    Files.writeString(rules, RULES);
    List<String> command =
        new ArrayList<>(
            List.of(
                binary,
                "serve",
                rules.toString(),
                "--grpc-host",
                "127.0.0.1",
                "--grpc-port",
                Integer.toString(port),
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--debug-port",
                "0"));
    command.addAll(List.of(flags));
    Process process =
        new ProcessBuilder(command)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectInput(ProcessBuilder.Redirect.from(Path.of("/dev/null").toFile()))
            .start();
    CompletableFuture<Integer> listens = new CompletableFuture<>();
    Thread reader = new Thread(() -> read(process, listens), "tollgate-stderr");
    reader.setDaemon(true);
    reader.start();
    try {
      return new RealTollgate(process, listens.get(60, TimeUnit.SECONDS));
    } catch (Exception error) {
      process.destroyForcibly();
      throw error;
    } finally {
      Files.deleteIfExists(rules);
    }
  }

  private static void read(Process process, CompletableFuture<Integer> listens) {
    StringBuilder all = new StringBuilder();
    try (BufferedReader lines =
        new BufferedReader(
            new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        if (all.length() < 10_000) {
          all.append(line).append('\n');
        }
        Matcher match = LISTENS.matcher(line);
        if (match.find()) {
          listens.complete(Integer.parseInt(match.group(1)));
        }
      }
    } catch (IOException ended) {
      // The process has ended.
    }
    listens.completeExceptionally(new IllegalStateException("tollgate ended:\n" + all));
  }

  public int port() {
    return port;
  }

  public String address() {
    return "127.0.0.1:" + port;
  }

  /** Kills the process as SIGKILL does, and waits for its end. */
  public void kill() throws InterruptedException {
    process.destroyForcibly().waitFor();
  }

  /** Stops the process by SIGSTOP, and waits until it has stopped. */
  public void pause() throws Exception {
    signal("STOP");
    long end = System.nanoTime() + Duration.ofSeconds(10).toNanos();
    while (System.nanoTime() < end) {
      String stat = Files.readString(Path.of("/proc/" + process.pid() + "/stat"));
      if (stat.substring(stat.lastIndexOf(')') + 2).startsWith("T")) {
        return;
      }
      Thread.sleep(10);
    }
    throw new IllegalStateException("tollgate did not stop");
  }

  /** Continues the process by SIGCONT. */
  public void resume() throws Exception {
    signal("CONT");
  }

  private void signal(String name) throws Exception {
    new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
  }

  @Override
  public void close() throws InterruptedException {
    kill();
  }
}
