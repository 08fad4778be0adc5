//! Metrics of real services, replayed to the alerts for an hour: a healthy service fires none, a
//! failing one fires its alerts and no other.
//!
//! Why in addition to `alerts_test.yaml`: handwritten series contain what their author believes. A
//! service without a store, for example, has the same 0 as one whose store has failed.
//!
//! What it deliberately does not do: change counters. Alerts on rates are tested with handwritten
//! series.

use std::fmt::Write as _;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::ports::reserved_port;
use tollgate_test_support::ratelimit_process::RatelimitProcess;

use crate::guides::alerts::promtool;
use crate::guides::guide::root;

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 1 }
";

/// Alerts that fire after an hour of these series.
fn fired(metrics: &str, expected: &[&str]) {
    let added = "namespace=\"n\",job=\"j\",instance=\"i\"";
    let mut test = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n  - {{ series: 'up{{{added}}}', values: '1x61' }}\n",
        root().join("helm/tollgate/files/alerts.yaml").display()
    );
    let mut lines = metrics.lines();
    let now = lines.find_map(|line| line.strip_prefix("process_start_time_seconds "));
    let now: f64 = now.expect("when it started").parse().unwrap();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        // The replay begins in 1970.
        let value = if series.contains("_timestamp_seconds") {
            (value.parse::<f64>().unwrap() - now).to_string()
        } else {
            value.to_owned()
        };
        let series = match series.split_once('{') {
            Some((name, labels)) => format!("{name}{{{added},{labels}"),
            None => format!("{series}{{{added}}}"),
        };
        let _ = writeln!(test, "  - {{ series: '{series}', values: '{value}x61' }}");
    }
    test += "  promql_expr_test:\n  - expr: 'count by (alertname) (ALERTS{alertstate=\"firing\"})'\n    eval_time: 61m\n    exp_samples:\n";
    for name in expected {
        let _ = writeln!(
            test,
            "    - {{ labels: '{{alertname=\"{name}\"}}', value: 1 }}"
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), test).unwrap();
    let (good, said) = promtool(&["test", "rules", file.path().to_str().unwrap()]);
    assert!(good, "{said}");
}

fn metrics(replica: &RatelimitProcess) -> String {
    http(replica.http, "GET", "/metrics", "").1
}

#[test]
fn a_healthy_service_fires_no_alert_and_a_failing_one_fires_its_alerts() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let [good, bad] = [
        ("good.yaml", RULES),
        ("bad.yaml", "domain: d\nfortnight: 1\n"),
    ]
    .map(|(name, text)| file(name, text));
    let well = RatelimitProcess::start(&[("TOLLGATE_RULES", &good)]);
    well.wait_until_ready();
    let asked = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    let statuses = [0; 3].map(|_| http(well.http, "POST", "/json", asked).0);
    assert_eq!(statuses, [200, 429, 429]);
    fired(&metrics(&well), &[]);

    // Invalid rules are rejected, and the old ones are restored.
    for (text, refused, expected) in [
        ("rules: none", 1, &["TollgateRulesRefused"][..]),
        (RULES, 0, &[]),
    ] {
        file("good.yaml", text);
        until(&format!("`{text}` is read"), || {
            let is_read = well.metric("tollgate_rules_refused") == refused;
            is_read.then_some(()).ok_or_else(|| well.said())
        });
        fired(&metrics(&well), expected);
    }

    let key = KeyPair::generate().unwrap();
    let mut expired = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    expired.not_before = date_time_ymd(2000, 1, 1);
    expired.not_after = date_time_ymd(2001, 1, 1);
    let certificate = file("tls.crt", &expired.self_signed(&key).unwrap().pem());
    let key = file("tls.key", &key.serialize_pem());
    let store = format!("redis://127.0.0.1:{}", reserved_port());
    let xds = format!("127.0.0.1:{}", reserved_port());
    let ill = RatelimitProcess::start(&[
        ("TOLLGATE_RULES", &bad),
        ("TOLLGATE_STORE", &store),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &certificate),
        ("GRPC_SERVER_TLS_KEY", &key),
    ]);
    // The store is tried before or after the rules are read.
    until("the store and the rules are tried", || {
        let refused = ill.metric("tollgate_rules_refused") == 1;
        let both = refused && ill.metric("tollgate_store_probes_total") > 0;
        both.then_some(()).ok_or_else(|| ill.said())
    });
    let all = [
        "TollgateCertificateExpiresInADay",
        "TollgateCertificateExpiresInAWeek",
        "TollgateNoRules",
        "TollgateRulesRefused",
        "TollgateStoreDown",
    ];
    fired(&metrics(&ill), &all);

    let lost = RatelimitProcess::start(&[
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &xds),
    ]);
    until("the xDS server is tried", || {
        let is_lost = lost.metric("tollgate_xds_lost_total") > 0;
        is_lost.then_some(()).ok_or_else(|| lost.said())
    });
    fired(&metrics(&lost), &["TollgateNoRules", "TollgateXdsDown"]);
}
