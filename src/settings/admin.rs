//! The settings of the admin port and of the port for metrics.
//!
//! What it deliberately does not do: read files.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::settings::headings::{CONNECTIONS, LISTENERS, LOGS, TLS};
use crate::settings::parse::{boolean, positive};
use crate::tls::ServerFiles;

/// Access to the admin listener.
#[derive(Args, Clone, Debug)]
pub struct AdminSettings {
    /// File with the bearer token of the admin listener, at least 16 bytes
    ///
    /// Every request must then have the header `authorization: Bearer TOKEN`. The file is read
    /// again for each request.
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN_FILE", help_heading = LISTENERS)]
    pub admin_token_file: Option<PathBuf>,

    /// Names of the admin listener in the Host header, separated by commas; default: loopback
    ///
    /// Without a token or client certificates, only requests for localhost, 127.0.0.0/8, [::1] and
    /// these names are served. A name has no port.
    ///
    /// Example: tollgate.internal
    #[arg(
        long,
        env = "TOLLGATE_ADMIN_HOST",
        value_delimiter = ',',
        value_parser = host_name,
        value_name = "NAMES",
        help_heading = LISTENERS
    )]
    pub admin_host: Vec<String>,

    /// Maximum streams of /events on the admin listener
    #[arg(long, env = "TOLLGATE_EVENT_STREAMS_MAX", default_value_t = 256, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub event_streams_max: usize,

    /// Certificate chain of the admin listener, PEM; enables TLS
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_CERT", requires = "admin_tls_key", help_heading = TLS)]
    pub admin_tls_cert: Option<PathBuf>,

    /// Private key of the admin listener, PEM
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "TOLLGATE_ADMIN_TLS_KEY", requires = "admin_tls_cert", help_heading = TLS)]
    pub admin_tls_key: Option<PathBuf>,

    /// CA bundle for client certificates on the admin listener, PEM
    ///
    /// Every client of the admin listener must then present a certificate.
    #[arg(long, env = "TOLLGATE_ADMIN_CLIENT_CACERT", requires = "admin_tls_cert", help_heading = TLS)]
    pub admin_client_cacert: Option<PathBuf>,
}

/// A listener for metrics alone, in addition to /metrics on the HTTP listener.
#[derive(Args, Clone, Debug)]
pub struct PrometheusSettings {
    /// Serve metrics on a listener of their own
    ///
    /// /metrics on the HTTP listener serves them in any case.
    #[arg(long, env = "USE_PROMETHEUS", default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = LOGS)]
    pub use_prometheus: bool,

    /// Address and port of the listener for metrics
    ///
    /// Without an address, it listens on every address of the machine.
    ///
    /// Example: 127.0.0.1:9090
    #[arg(long, env = "PROMETHEUS_ADDR", default_value = ":9090", value_parser = address, value_name = "HOST:PORT", help_heading = LOGS)]
    pub prometheus_addr: (String, u16),

    /// Path of metrics on the listener for metrics
    ///
    /// Example: /stats/prometheus
    #[arg(long, env = "PROMETHEUS_PATH", default_value = "/metrics", value_parser = path, value_name = "PATH", help_heading = LOGS)]
    pub prometheus_path: String,
}

// === impl AdminSettings ===

impl AdminSettings {
    /// The files of the admin port; none when it is not TLS.
    pub fn server_files(&self) -> Option<ServerFiles> {
        Some(ServerFiles {
            certificate: self.admin_tls_cert.clone()?,
            key: self.admin_tls_key.clone()?,
            client_ca: self.admin_client_cacert.clone(),
            client_names: Vec::new(),
            protocol: "http/1.1",
        })
    }
}

/// Parses the name or address of a host, without a port.
fn host_name(text: &str) -> Result<String, String> {
    let address = text.trim_start_matches('[').trim_end_matches(']');
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if address.parse::<IpAddr>().is_ok() || (!text.is_empty() && text.bytes().all(is_name)) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("use a name or an address without a port, such as tollgate.internal".to_owned())
    }
}

/// Parses an address as Go writes it: `host:port`, `[v6]:port`, or `:port` for every address.
fn address(text: &str) -> Result<(String, u16), String> {
    let split = text.rsplit_once(':');
    let parsed = split.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parsed.ok_or("use HOST:PORT or :PORT, such as 127.0.0.1:9090")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), port))
}

fn path(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && !"{}?#*".contains(c);
    if text.starts_with('/') && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("use a path that begins with a slash, such as /metrics".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_go_writes_them() {
        for (text, host, port) in [
            (":19001", "", 19_001),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("[::1]:9090", "::1", 9_090),
            ("metrics.local:80", "metrics.local", 80),
        ] {
            assert_eq!(address(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in ["", "9090", ":", ":http", ":65536", "host"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_admin_host_is_a_name_or_an_address_without_a_port() {
        for text in [
            "tollgate.internal",
            "Admin",
            "10.0.0.1",
            "[2001:db8::1]",
            "2001:db8::1",
        ] {
            assert_eq!(host_name(text), Ok(text.to_ascii_lowercase()), "{text}");
        }
        for text in ["", "a:80", "http://a", "a b", "a/b", "[::1]:80", "*"] {
            assert!(host_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_is_one_that_a_router_takes_for_itself() {
        assert!(path("/stats/prometheus").is_ok());
        for text in ["", "metrics", "/{a}", "/*", "/a b", "/?x", "/#y"] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}
