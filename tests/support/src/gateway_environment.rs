//! The environment variables that Envoy Gateway sets for its rate limit service.

use crate::redis_server::RedisServer;

/// What Envoy Gateway's Deployment sets (v1.9.1, `internal/infrastructure/kubernetes/ratelimit`),
/// Redis aside.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
    ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("USE_PROMETHEUS", "true"),
    ("PROMETHEUS_ADDR", ":19001"),
    ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
];

/// These variables with the folder of the certificates (which ends with a slash), the address of
/// the xDS server, Redis, and a Redis deadline that a busy machine keeps.
pub fn environment(
    certificates: &str,
    xds_server: &str,
    redis: &RedisServer,
) -> Vec<(&'static str, String)> {
    let own = |(name, value): &(&'static str, &str)| {
        let value = match *name {
            "CONFIG_GRPC_XDS_SERVER_URL" => xds_server.to_owned(),
            "PROMETHEUS_ADDR" => "127.0.0.1:@PROMETHEUS@".to_owned(),
            _ => value.replace("/certs/", certificates),
        };
        (*name, value)
    };
    let mut variables: Vec<_> = ENVIRONMENT.iter().map(own).collect();
    variables.push(("REDIS_URL", format!("127.0.0.1:{}", redis.port())));
    variables.push(("TOLLGATE_STORE_DEADLINE_MS", "5000".to_owned()));
    variables
}
