package io.github.tollgatelimits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** TLS with a real tollgate. */
class TlsTest {
  @TempDir static Path folder;

  @BeforeAll
  static void certificates() throws Exception {
    openssl(
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=test CA",
        "-days",
        "2");
    certificate("server", "subjectAltName=DNS:tollgate.test,IP:127.0.0.1");
    certificate("client", "subjectAltName=DNS:client.test");
  }

  private static void certificate(String name, String extension) throws Exception {
    openssl(
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        name + ".key",
        "-out",
        name + ".csr",
        "-subj",
        "/CN=" + name);
    Files.writeString(folder.resolve(name + ".ext"), extension + "\n");
    openssl(
        "x509",
        "-req",
        "-in",
        name + ".csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-out",
        name + ".pem",
        "-days",
        "2",
        "-extfile",
        name + ".ext");
  }

  private static void openssl(String... arguments) throws Exception {
    List<String> command = new java.util.ArrayList<>(List.of("openssl"));
    command.addAll(List.of(arguments));
    Process process =
        new ProcessBuilder(command)
            .directory(folder.toFile())
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("openssl.log").toFile())
            .start();
    assertEquals(0, process.waitFor(), () -> log());
  }

  private static String log() {
    try {
      return Files.readString(folder.resolve("openssl.log"));
    } catch (java.io.IOException error) {
      return error.toString();
    }
  }

  private static String file(String name) {
    return folder.resolve(name).toString();
  }

  private static RealTollgate server(String... more) throws Exception {
    List<String> flags =
        new java.util.ArrayList<>(
            List.of(
                "--grpc-server-use-tls", "true",
                "--grpc-server-tls-cert", file("server.pem"),
                "--grpc-server-tls-key", file("server.key")));
    flags.addAll(List.of(more));
    return RealTollgate.start(flags.toArray(String[]::new));
  }

  private static Source source(RealTollgate tollgate, TlsOptions tls) {
    TollgateClient.Builder builder = ServiceTest.client(tollgate.address());
    if (tls != null) {
      builder.tls(tls);
    }
    try (TollgateClient client = builder.build()) {
      return client.check(Descriptor.of("large", "x")).source();
    }
  }

  @Test
  void tls() throws Exception {
    try (RealTollgate tollgate = server()) {
      TlsOptions trusted = TlsOptions.caBundle(folder.resolve("ca.pem"));
      assertEquals(Source.SERVER, source(tollgate, trusted));
      assertEquals(Source.SERVER, source(tollgate, trusted.withServerName("tollgate.test")));
      assertEquals(Source.ALLOW, source(tollgate, trusted.withServerName("other.test")));
      assertEquals(Source.ALLOW, source(tollgate, TlsOptions.systemRoots()));
      assertEquals(Source.ALLOW, source(tollgate, null));
    }
  }

  @Test
  void clientCertificate() throws Exception {
    try (RealTollgate tollgate = server("--grpc-client-tls-cacert", file("ca.pem"))) {
      TlsOptions trusted = TlsOptions.caBundle(folder.resolve("ca.pem"));
      TlsOptions mutual =
          trusted.withClientCertificate(folder.resolve("client.pem"), folder.resolve("client.key"));
      assertEquals(Source.SERVER, source(tollgate, mutual));
      assertEquals(Source.ALLOW, source(tollgate, trusted));
    }
  }

  @Test
  void aMissingFileFailsAtOnce() {
    TollgateClient.Builder builder =
        ServiceTest.client("127.0.0.1:1").tls(TlsOptions.caBundle(folder.resolve("none.pem")));
    assertThrows(IllegalArgumentException.class, builder::build);
  }
}
