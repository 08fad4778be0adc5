package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Runs {@code addresses.json}. */
class AddressVectorsTest {
  @TestFactory
  Stream<DynamicTest> addresses() {
    return Vectors.tests("addresses.json", AddressVectorsTest::run);
  }

  private static void run(JsonNode vector) {
    String address = vector.path("address").asText();
    JsonNode expect = vector.path("expect");
    TollgateClient.Builder builder = TollgateClient.builder().domain("vectors");
    if (expect.path("valid").asBoolean()) {
      builder.addresses(address).build().close();
      return;
    }
    var refused =
        assertThrows(IllegalArgumentException.class, () -> builder.addresses(address).build());
    assertTrue(
        refused.getMessage().contains(expect.path("error").asText()), () -> refused.getMessage());
  }
}
