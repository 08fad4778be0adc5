//! Metrics that running services expose at `/metrics`: each series, its labels and their values.
//!
//! How: two processes, since TLS and a store each change the set, and a client that causes errors
//! at both, so that counters of errors exist.
//!
//! What it deliberately does not do: check values.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;

use tollgate::metrics::{Label, LabelValues, Metrics};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, until};
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::promql;

/// Labels of each series, and values of each label.
pub(crate) type Shown = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Labels that Prometheus adds to each series when it scrapes.
const ADDED: [&str; 3] = ["namespace", "job", "instance"];

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 1 }
";

/// All metrics, gathered once.
pub(crate) static SHOWN: LazyLock<Shown> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let [certificate, key] =
        ["tls.crt", "tls.key"].map(|name| directory.path().join(name).display().to_string());
    std::fs::write(&certificate, signed.cert.pem()).expect("the certificate");
    std::fs::write(&key, signed.signing_key.serialize_pem()).expect("its key");
    let tls = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &certificate),
        ("GRPC_SERVER_TLS_KEY", &key),
    ];
    let secure = Tollgate::start_with(RULES, &[], &tls);
    send(secure.grpc, b"GET / HTTP/1.1\r\n\r\n");
    waited_for(&secure, "tollgate_tls_handshake_failures_total{");

    let store = format!("redis://127.0.0.1:{}", reserved_port());
    let arguments = ["--store", &store, "--control-frames-per-second-max", "10"];
    let away = Tollgate::start(RULES, &arguments);
    for domain in ["d", "nobody's"] {
        let asked = format!(
            r#"{{"domain":"{domain}","descriptors":[{{"entries":[{{"key":"k","value":"v"}}]}}]}}"#
        );
        http(away.http, "POST", "/json", &asked);
    }
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ping: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let flood = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        settings,
        &ping.repeat(100),
    ]
    .concat();
    send(away.grpc, &flood);
    waited_for(&away, "tollgate_connections_broken_total{");

    let mut shown = Shown::new();
    for service in [secure, away] {
        let text = service.get("/metrics");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            let labels = shown.entry(name.to_owned()).or_default();
            if let Some((_, inside)) = series.split_once('{') {
                for label in inside.trim_end_matches('}').split("\",") {
                    let (label, value) = label.split_once("=\"").expect("a label");
                    let value = value.trim_end_matches('"').to_owned();
                    labels.entry(label.to_owned()).or_default().insert(value);
                }
            }
        }
    }
    shown
});

/// Sends the bytes and waits until the server closes the connection.
fn send(to: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // The server may close the connection early.
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut Vec::new());
}

fn waited_for(service: &Tollgate, series: &str) {
    until(series, || service.get("/metrics").contains(series));
}

/// The labels of a declared metric, by the name of one of its series.
fn declared_labels(metrics: &Metrics, series: &str) -> Option<&'static [Label]> {
    let histogram = ["_bucket", "_sum", "_count"];
    let family = histogram.iter().find_map(|end| series.strip_suffix(end));
    let mut declarations = metrics.declarations();
    let found = declarations.find(|one| one.name == series || Some(one.name) == family);
    found.map(|declaration| declaration.labels)
}

/// Every series, label and value that running services show is declared.
#[test]
fn shown_series_are_declared() {
    let metrics = Metrics::new().unwrap();
    for (series, labels) in SHOWN.iter() {
        let declared = declared_labels(&metrics, series);
        let declared = declared.unwrap_or_else(|| panic!("{series} is not declared"));
        for (label, values) in labels.iter().filter(|(label, _)| *label != "le") {
            let found = declared.iter().find(|one| one.name == label);
            let found = found.unwrap_or_else(|| panic!("{series} has no declared label {label}"));
            if let LabelValues::OneOf(allowed) = found.values {
                for value in values {
                    assert!(
                        allowed.contains(&value.as_str()),
                        "{series} {label}={value}"
                    );
                }
            }
        }
    }
}

/// Names, labels and values in an expression that no declaration has.
pub(crate) fn unknown(expression: &str) -> Vec<String> {
    let metrics = Metrics::new().unwrap();
    let mut wrong = Vec::new();
    let mut known: BTreeSet<&str> = ADDED.into();
    known.insert("le");
    let named = promql::metrics(expression);
    for named in &named {
        let Some(labels) = declared_labels(&metrics, &named.metric) else {
            wrong.push(format!("no metric {}", named.metric));
            continue;
        };
        known.extend(labels.iter().map(|label| label.name));
        for (label, operator, value) in &named.labels {
            if ADDED.contains(&label.as_str()) || label == "le" {
                continue;
            }
            let equal = operator == "=" || operator == "!=";
            match labels
                .iter()
                .find(|one| one.name == label)
                .map(|one| one.values)
            {
                None => wrong.push(format!("{} has no label {label}", named.metric)),
                Some(LabelValues::OneOf(values)) if equal && !values.contains(&value.as_str()) => {
                    wrong.push(format!("{}: no {label}={value}: {values:?}", named.metric));
                }
                Some(_) => {}
            }
        }
    }
    let groups = promql::grouped_by(expression);
    let missing = groups
        .iter()
        .filter(|label| !named.is_empty() && !known.contains(label.as_str()));
    wrong.extend(missing.map(|label| format!("nothing has a label {label}")));
    wrong
}

#[test]
fn unknown_metrics_are_reported() {
    assert_eq!(
        unknown("rate(tollgate_shed_total{reason=\"mailbox_full\"}[5m])"),
        [""; 0]
    );
    let wrong = unknown(
        "sum by (colour) (tollgate_shed_total{reason=\"tired\", why=\"x\"}) + tollgate_sheds_total",
    );
    assert_eq!(wrong.len(), 4, "{wrong:?}");
}
