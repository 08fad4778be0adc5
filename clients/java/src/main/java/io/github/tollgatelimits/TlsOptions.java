package io.github.tollgatelimits;

import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;

/**
 * TLS of the connections to tollgate. All files are PEM.
 *
 * @param caBundle CA bundle that signs the server's certificate; empty: the system's roots
 * @param certificate client certificate with its chain; empty: none is sent
 * @param privateKey PKCS#8 key of the client certificate; present if and only if it is
 * @param serverName name that the server's certificate must have; empty: the host of the address
 */
public record TlsOptions(
    Optional<Path> caBundle,
    Optional<Path> certificate,
    Optional<Path> privateKey,
    Optional<String> serverName) {
  /**
   * Checks that a certificate has a key.
   *
   * @throws IllegalArgumentException if only one of certificate and key is present
   */
  public TlsOptions {
    Objects.requireNonNull(caBundle, "caBundle");
    Objects.requireNonNull(serverName, "serverName");
    if (certificate.isPresent() != privateKey.isPresent()) {
      throw new IllegalArgumentException("a client certificate needs its private key");
    }
  }

  /** Returns TLS with the system's roots, without a client certificate. */
  public static TlsOptions systemRoots() {
    return new TlsOptions(Optional.empty(), Optional.empty(), Optional.empty(), Optional.empty());
  }

  /** Returns TLS with a CA bundle, without a client certificate. */
  public static TlsOptions caBundle(Path caBundle) {
    return new TlsOptions(
        Optional.of(caBundle), Optional.empty(), Optional.empty(), Optional.empty());
  }

  /** Returns these options with a client certificate and its PKCS#8 key. */
  public TlsOptions withClientCertificate(Path certificate, Path privateKey) {
    return new TlsOptions(caBundle, Optional.of(certificate), Optional.of(privateKey), serverName);
  }

  /** Returns these options with the name that the server's certificate must have. */
  public TlsOptions withServerName(String serverName) {
    return new TlsOptions(caBundle, certificate, privateKey, Optional.of(serverName));
  }
}
