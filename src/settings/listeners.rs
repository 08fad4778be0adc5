//! The settings of listeners: their addresses, certificates and access, and limits of connections.
//!
//! What it deliberately does not do: read files (`tls`), or bound a request (`Settings` does).

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::settings::help::{CONNECTIONS, INGRESSES, LISTENERS, LOGS, TLS};
use crate::settings::parse::{
    FileMode, boolean, duration, file_mode, nonzero_duration, port, positive,
};
use crate::tls::{ClientName, ServerFiles, TlsError};

/// Addresses and ports.
#[derive(Args, Clone, Debug)]
pub struct ListenerSettings {
    /// Address of the gRPC listener
    ///
    /// Example: 127.0.0.1
    #[arg(long, env, default_value = "0.0.0.0", value_name = "HOST", help_heading = LISTENERS)]
    pub grpc_host: String,

    /// Port of the gRPC listener
    ///
    /// It serves the rate limit service, health and reflection. 0 picks a free port.
    #[arg(long, env, default_value_t = 8081, value_parser = port, value_name = "PORT", help_heading = LISTENERS)]
    pub grpc_port: u16,

    /// Unix socket for gRPC, in place of a port
    ///
    /// Example: /run/tollgate/grpc.sock
    #[arg(long, env, help_heading = LISTENERS)]
    pub grpc_uds: Option<PathBuf>,

    /// Permissions of the Unix socket, in octal as for chmod
    ///
    /// Range: 0 to 0777
    ///
    /// Example: 0600
    #[arg(long, env = "TOLLGATE_GRPC_UDS_MODE", default_value = "0660", value_parser = file_mode, value_name = "MODE", help_heading = LISTENERS)]
    pub grpc_uds_mode: FileMode,

    /// Address of the HTTP listener
    ///
    /// Example: 127.0.0.1
    #[arg(long, env, default_value = "0.0.0.0", value_name = "HOST", help_heading = LISTENERS)]
    pub host: String,

    /// Port of the HTTP listener
    ///
    /// It serves /healthcheck, /livez, /readyz, /json, /v1 and /metrics. 0 picks a free port.
    #[arg(long, env, default_value_t = 8080, value_parser = port, value_name = "PORT", help_heading = LISTENERS)]
    pub port: u16,

    /// Answer requests on /json and /v1; default: true, without client certificates for gRPC
    ///
    /// They cannot require client certificates. If gRPC requires them, the default is false.
    #[arg(long, env = "TOLLGATE_JSON", value_parser = boolean, action = ArgAction::Set, help_heading = LISTENERS)]
    pub json: Option<bool>,

    /// Address of the admin listener
    ///
    /// The admin listener shows and changes what the service does. Keep it on loopback, or set
    /// --admin-token-file or --admin-client-cacert.
    ///
    /// Example: 0.0.0.0
    #[arg(long, env, default_value = "127.0.0.1", value_name = "HOST", help_heading = LISTENERS)]
    pub debug_host: String,

    /// Port of the admin listener
    ///
    /// It serves the admin API, /rlconfig, /readyz?verbose and /log-level. 0 picks a free port.
    #[arg(long, env, default_value_t = 6070, value_parser = port, value_name = "PORT", help_heading = LISTENERS)]
    pub debug_port: u16,
}

/// Limits of connections.
#[derive(Args, Clone, Debug)]
pub struct ConnectionSettings {
    /// Maximum connections of the gRPC listener
    #[arg(long, env = "TOLLGATE_GRPC_CONNECTIONS_MAX", default_value_t = 16_384, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub grpc_connections_max: usize,

    /// Maximum connections of the HTTP listener, and of the admin listener
    #[arg(long, env = "TOLLGATE_HTTP_CONNECTIONS_MAX", default_value_t = 4_096, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub http_connections_max: usize,

    /// Maximum open streams of a connection
    ///
    /// Envoy opens up to 1,024 streams before it knows this limit.
    #[arg(long, env = "TOLLGATE_STREAMS_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT", help_heading = CONNECTIONS)]
    pub streams_max: u32,

    /// Maximum streaming calls of a connection: reflection, health Watch
    ///
    /// Further streaming calls are answered RESOURCE_EXHAUSTED.
    #[arg(long, env = "TOLLGATE_STREAMING_CALLS_PER_CONNECTION_MAX", default_value_t = 16, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub streaming_calls_per_connection_max: usize,

    /// Maximum streaming calls of all connections
    ///
    /// Further streaming calls are answered RESOURCE_EXHAUSTED.
    #[arg(long, env = "TOLLGATE_STREAMING_CALLS_MAX", default_value_t = 1_024, value_parser = positive, value_name = "COUNT", help_heading = CONNECTIONS)]
    pub streaming_calls_max: usize,

    /// Maximum streams that a connection may reset, or have refused, per second
    ///
    /// A connection that exceeds it is closed. An Envoy whose 20 ms deadline ends for all of its
    /// calls resets some 50,000.
    #[arg(long, env = "TOLLGATE_RESETS_PER_SECOND_MAX", default_value_t = 100_000, value_name = "NUMBER", help_heading = CONNECTIONS)]
    pub resets_per_second_max: u32,

    /// Maximum control frames of a connection per second
    ///
    /// They are pings, settings, window updates and empty frames. A connection that exceeds it is
    /// closed.
    #[arg(long, env = "TOLLGATE_CONTROL_FRAMES_PER_SECOND_MAX", default_value_t = 100_000, value_name = "NUMBER", help_heading = CONNECTIONS)]
    pub control_frames_per_second_max: u32,

    /// Maximum age of a gRPC connection, ± 10%
    ///
    /// The server then sends GOAWAY, so that clients connect to new replicas. 0 means no limit.
    #[arg(long, env, default_value = "24h", value_parser = duration, help_heading = CONNECTIONS)]
    pub grpc_max_connection_age: Duration,

    /// Time for calls in progress when a connection reaches its maximum age
    ///
    /// 0 means no limit.
    #[arg(long, env, default_value = "1h", value_parser = duration, help_heading = CONNECTIONS)]
    pub grpc_max_connection_age_grace: Duration,

    /// Interval of pings on an idle connection
    ///
    /// 0 disables pings.
    #[arg(long, env = "TOLLGATE_KEEPALIVE_INTERVAL", default_value = "30s", value_parser = duration, help_heading = CONNECTIONS)]
    pub keepalive_interval: Duration,

    /// Maximum wait for the response to a ping
    ///
    /// The connection is then closed.
    #[arg(long, env = "TOLLGATE_KEEPALIVE_TIMEOUT", default_value = "20s", value_parser = duration, help_heading = CONNECTIONS)]
    pub keepalive_timeout: Duration,
}

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

    /// Maximum overrides of the limits of single descriptors
    ///
    /// Operators set them on the admin listener. Each takes at most 4 KiB.
    ///
    /// Range: 1 to 10000
    #[arg(long, env = "TOLLGATE_OVERRIDES_MAX", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "COUNT", help_heading = CONNECTIONS)]
    pub overrides_max: u32,

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
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set, help_heading = LOGS)]
    pub use_prometheus: bool,

    /// Address and port of the listener for metrics
    ///
    /// Without an address, it listens on every address of the machine.
    ///
    /// Example: 127.0.0.1:9090
    #[arg(long, env, default_value = ":9090", value_parser = address, value_name = "HOST:PORT", help_heading = LOGS)]
    pub prometheus_addr: (String, u16),

    /// Path of metrics on the listener for metrics
    ///
    /// Example: /stats/prometheus
    #[arg(long, env, default_value = "/metrics", value_parser = path, value_name = "PATH", help_heading = LOGS)]
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

/// TLS on the gRPC port: its certificate, and the clients that it admits.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = TLS)]
pub struct GrpcTlsSettings {
    /// Use TLS for gRPC
    ///
    /// The versions are 1.3 and 1.2.
    #[arg(long, env, default_value = "false", value_parser = boolean, action = ArgAction::Set)]
    pub grpc_server_use_tls: bool,

    /// Certificate chain for gRPC, PEM
    ///
    /// The leaf certificate comes first, the intermediate ones follow. The file is read again when
    /// it changes.
    #[arg(long, env)]
    pub grpc_server_tls_cert: Option<PathBuf>,

    /// Private key for gRPC, PEM
    ///
    /// The file is read again when it changes.
    #[arg(long, env)]
    pub grpc_server_tls_key: Option<PathBuf>,

    /// CA bundle for clients, PEM
    ///
    /// Every client of the gRPC listener must then present a certificate. The file is read again
    /// when it changes.
    #[arg(long, env)]
    pub grpc_client_tls_cacert: Option<PathBuf>,

    /// Names of which a client certificate must have one, separated by commas; default: any
    ///
    /// A name is a DNS name, an IP address or a URI, such as a SPIFFE ID.
    ///
    /// Example: spiffe://example.org/ns/edge/sa/envoy
    #[arg(long, env, value_delimiter = ',', value_name = "NAMES")]
    pub grpc_client_tls_san: Vec<String>,

    /// Maximum TLS handshakes in progress on a listener
    ///
    /// Further connections are closed.
    #[arg(long, env = "TOLLGATE_TLS_HANDSHAKES_MAX", default_value_t = 4_096, value_parser = positive, value_name = "COUNT")]
    pub tls_handshakes_max: usize,

    /// Maximum duration of a TLS handshake
    ///
    /// Range: above 0
    #[arg(long, env = "TOLLGATE_TLS_HANDSHAKE_TIMEOUT", default_value = "5s", value_parser = nonzero_duration)]
    pub tls_handshake_timeout: Duration,

    /// CPU time for the TLS handshakes of a listener, in percent of one core
    ///
    /// Beyond it, handshakes wait.
    ///
    /// Range: 1 to 100
    #[arg(long, env = "TOLLGATE_TLS_HANDSHAKES_CPU_PERCENT_MAX", default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT")]
    pub tls_handshakes_cpu_percent_max: u8,
}

// === impl GrpcTlsSettings ===

impl GrpcTlsSettings {
    /// Whether clients of the gRPC port must show a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.grpc_server_use_tls && self.grpc_client_tls_cacert.is_some()
    }

    /// The files of the gRPC port; none when it is not TLS.
    ///
    /// # Errors
    ///
    /// When a setting is missing or has no effect.
    pub fn server_files(&self) -> Result<Option<ServerFiles>, TlsError> {
        let names = self.grpc_client_tls_san.iter();
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        if !self.grpc_server_use_tls {
            if self.grpc_client_tls_cacert.is_some() || !names.is_empty() {
                let words = "GRPC_CLIENT_TLS_CACERT or GRPC_CLIENT_TLS_SAN is set, but gRPC does not use TLS; set GRPC_SERVER_USE_TLS=true";
                return Err(TlsError::Settings(words.to_owned()));
            }
            return Ok(None);
        }
        let (Some(certificate), Some(key)) =
            (&self.grpc_server_tls_cert, &self.grpc_server_tls_key)
        else {
            let words = "GRPC_SERVER_USE_TLS is true, but the certificate or its key is missing; set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY";
            return Err(TlsError::Settings(words.to_owned()));
        };
        if self.grpc_client_tls_cacert.is_none() && !names.is_empty() {
            let words = "GRPC_CLIENT_TLS_SAN is set, but clients need no certificate; set GRPC_CLIENT_TLS_CACERT";
            return Err(TlsError::Settings(words.to_owned()));
        }
        let names = names.into_iter().map(|name| {
            ClientName::of(name).ok_or_else(|| {
                let words = format!(
                    "GRPC_CLIENT_TLS_SAN: {name:?} is neither a DNS name nor an address nor a URI such as spiffe://example.org/ns/edge/sa/envoy"
                );
                TlsError::Settings(words)
            })
        });
        Ok(Some(ServerFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: self.grpc_client_tls_cacert.clone(),
            client_names: names.collect::<Result<_, _>>()?,
            protocol: "h2",
        }))
    }
}

/// Listeners for proxies that do not speak gRPC.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = INGRESSES)]
pub struct IngressSettings {
    /// Address of the listeners of this section
    ///
    /// Example: 127.0.0.1
    #[arg(
        long,
        env = "TOLLGATE_INGRESS_HOST",
        default_value = "0.0.0.0",
        value_name = "HOST"
    )]
    pub ingress_host: String,

    /// Port of forward auth; default: no listener
    ///
    /// It answers /auth/DOMAIN, by `requests` of the rules. 0 picks a free port.
    ///
    /// Example: 8082
    #[arg(long, env = "TOLLGATE_AUTH_PORT", value_parser = port, value_name = "PORT")]
    pub auth_port: Option<u16>,

    /// Port of the Redis protocol; default: no listener
    ///
    /// It answers CL.THROTTLE and TG.CHECK. 0 picks a free port.
    ///
    /// Example: 6380
    #[arg(long, env = "TOLLGATE_RESP_PORT", value_parser = port, value_name = "PORT")]
    pub resp_port: Option<u16>,

    /// File with the password of the Redis protocol
    ///
    /// Clients must then send it by AUTH or HELLO. The file is read at the start.
    ///
    /// Example: /etc/tollgate/resp-password
    #[arg(long, env = "TOLLGATE_RESP_PASSWORD_FILE", requires = "resp_port")]
    pub resp_password_file: Option<PathBuf>,

    /// Port of the agent for HAProxy (SPOE); default: no listener
    ///
    /// 0 picks a free port.
    ///
    /// Example: 8084
    #[arg(long, env = "TOLLGATE_SPOE_PORT", value_parser = port, value_name = "PORT")]
    pub spoe_port: Option<u16>,

    /// Maximum connections of each of these listeners
    #[arg(long, env = "TOLLGATE_INGRESS_CONNECTIONS_MAX", default_value_t = 4_096, value_parser = positive, value_name = "COUNT")]
    pub ingress_connections_max: usize,

    /// Certificate chain of these listeners, PEM; enables TLS
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "TOLLGATE_INGRESS_TLS_CERT", requires = "ingress_tls_key")]
    pub ingress_tls_cert: Option<PathBuf>,

    /// Private key of these listeners, PEM
    ///
    /// The file is read again when it changes.
    #[arg(long, env = "TOLLGATE_INGRESS_TLS_KEY", requires = "ingress_tls_cert")]
    pub ingress_tls_key: Option<PathBuf>,

    /// CA bundle for clients of these listeners, PEM
    ///
    /// Every client must then present a certificate.
    #[arg(
        long,
        env = "TOLLGATE_INGRESS_CLIENT_CACERT",
        requires = "ingress_tls_cert"
    )]
    pub ingress_client_cacert: Option<PathBuf>,
}

// === impl IngressSettings ===

impl IngressSettings {
    /// The files of TLS; none without it.
    pub fn server_files(&self) -> Option<ServerFiles> {
        Some(ServerFiles {
            certificate: self.ingress_tls_cert.clone()?,
            key: self.ingress_tls_key.clone()?,
            client_ca: self.ingress_client_cacert.clone(),
            client_names: Vec::new(),
            protocol: "http/1.1",
        })
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
