package io.github.tollgatelimits;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.function.Predicate;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;

/** Reads the vectors, from {@code TOLLGATE_VECTORS} or {@code ../vectors}. */
public final class Vectors {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Vectors() {}

  /** Runs one case. */
  @FunctionalInterface
  public interface Case {
    /** Fails if the case fails. */
    void run(JsonNode vector) throws Exception;
  }

  /** Returns a test for each case of a file. */
  public static Stream<DynamicTest> tests(String file, Case run) {
    return tests(file, "", run);
  }

  /** Returns a test for each case of a file, with a suffix of their names. */
  public static Stream<DynamicTest> tests(String file, String suffix, Case run) {
    return tests(file, suffix, vector -> true, run);
  }

  /** Returns a test for each case of a file that applies, with a suffix of their names. */
  public static Stream<DynamicTest> tests(
      String file, String suffix, Predicate<JsonNode> applies, Case run) {
    return tests(file, "cases", suffix, applies, run);
  }

  /** Returns a test for each case of a list of a file that applies. */
  public static Stream<DynamicTest> tests(
      String file, String list, String suffix, Predicate<JsonNode> applies, Case run) {
    JsonNode cases = read(file).path(list);
    if (cases.isEmpty()) {
      throw new IllegalStateException(file + " has no " + list);
    }
    return StreamSupport.stream(cases.spliterator(), false)
        .filter(applies)
        .map(
            vector -> {
              String name = vector.path("name").asText() + suffix;
              return DynamicTest.dynamicTest(
                  name,
                  () -> {
                    try {
                      run.run(vector);
                    } catch (Exception | AssertionError error) {
                      throw new AssertionError("vector '" + name + "': " + error, error);
                    }
                  });
            });
  }

  private static JsonNode read(String file) {
    String folder = System.getenv().getOrDefault("TOLLGATE_VECTORS", "../vectors");
    try {
      return MAPPER.readTree(Path.of(folder, file).toFile());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
