//! The requirements of Envoy Gateway, and of every protected port: TLS, sockets, xDS, and the exact
//! environment in which it starts the reference service.
//!
//! The test makes certificates, mounts them as Kubernetes mounts a secret and replaces them as
//! Kubernetes does. The xDS server is the test's own, so that its streams can be cut and its
//! responses be invalid. Envoy is real.
//!
//! What it deliberately does not do: start a cluster.

// A test fails by a panic.

mod admin;
mod ads;
mod dropin;
mod hit;
mod overlay;
mod sockets;
mod tls;
mod xds;

use tollgate_test_support::polling::until;

/// A limit of a thousand a year for each key, in one domain.
const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 1000 }
";

/// Waits until a log has these words.
fn wait_for_log(said: impl Fn() -> String, words: &str) {
    until(words, || match said() {
        said if said.contains(words) => Ok(()),
        said => Err(said),
    });
}
