//! h2spec, the conformance tests of HTTP/2, against the gRPC port: in the clear and over TLS.
//!
//! How: every case must pass, but for those in `EXCEPTIONS`, each of which has its reason and must
//! still fail. h2spec waits five seconds where a frame does not come, so its groups run at the same
//! time.
//!
//! What it deliberately does not do: send gRPC calls. h2spec sends `GET /`, which tollgate answers
//! at once with the gRPC status UNIMPLEMENTED and without a body; what calls meet is in
//! `tests/service/grpc` and `tests/clients`.
// A failed test panics.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use tollgate_test_support::certificates::{Authority, Secret};
use tollgate_test_support::components::component;
use tollgate_test_support::tollgate_process::Tollgate;

const RULES: &str =
    "{domain: d, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 5}}]}";

/// Groups of cases that run one after the other. Together they are all of h2spec.
const GROUPS: &[&[&str]] = &[
    &["generic"],
    &[
        "http2/3",
        "http2/4",
        "http2/5.4",
        "http2/5.5",
        "http2/7",
        "http2/8.2",
        "hpack",
    ],
    &["http2/5.1"],
    &["http2/5.3"],
    &["http2/6"],
    &["http2/8.1"],
];

/// Number of cases that this version of h2spec has.
const CASES: usize = 146;

/// Outcome of a case.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

use Outcome::{Failed, Skipped};

const NO_BODY: &str = "h2spec waits for a DATA frame, but UNIMPLEMENTED has no body: the HEADERS frame ends the stream.";
const FORGOTTEN: &str = "The server keeps no list of ended streams, so it cannot tell a reused identifier from trailers that were \
     on their way when it reset the stream. It resets the stream, and the other calls go on.";
const NO_PRIORITIES: &str =
    "RFC 9113 dropped priorities and this rule with them; they are ignored.";
const ANSWERED: &str = "The stream has ended when the fault comes: the answer is sent as soon as the headers are there.";

/// Cases that do not pass: section, description, outcome, reason.
const EXCEPTIONS: &[(&str, &str, Outcome, &str)] = &[
    (
        "generic/2",
        "Sends a WINDOW_UPDATE frame on half-closed (remote) stream",
        Failed,
        NO_BODY,
    ),
    (
        "generic/2",
        "Sends a PRIORITY frame on half-closed (remote) stream",
        Failed,
        NO_BODY,
    ),
    (
        "http2/5.1",
        "closed: Sends a HEADERS frame",
        Failed,
        FORGOTTEN,
    ),
    (
        "http2/5.1.1",
        "Sends stream identifier that is numerically smaller than previous",
        Failed,
        FORGOTTEN,
    ),
    (
        "http2/5.1.2",
        "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
        Failed,
        "Each request is answered before the next one is read, so no two streams are open at the same time.",
    ),
    (
        "http2/5.3.1",
        "Sends HEADERS frame that depend on itself",
        Failed,
        NO_PRIORITIES,
    ),
    (
        "http2/5.3.1",
        "Sends PRIORITY frame that depend on itself",
        Failed,
        NO_PRIORITIES,
    ),
    (
        "http2/6.5.3",
        "Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE",
        Skipped,
        NO_BODY,
    ),
    (
        "http2/6.9",
        "Sends a WINDOW_UPDATE frame with a flow control window increment of 0 on a stream",
        Failed,
        ANSWERED,
    ),
    (
        "http2/6.9.1",
        "Sends SETTINGS frame to set the initial window size to 1 and sends HEADERS frame",
        Skipped,
        NO_BODY,
    ),
    (
        "http2/6.9.1",
        "Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream",
        Failed,
        ANSWERED,
    ),
    (
        "http2/6.9.2",
        "Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame",
        Skipped,
        NO_BODY,
    ),
    (
        "http2/6.9.2",
        "Sends a SETTINGS frame for window size to be negative",
        Skipped,
        NO_BODY,
    ),
    (
        "http2/8.1",
        "Sends a second HEADERS frame without the END_STREAM flag",
        Failed,
        ANSWERED,
    ),
    (
        "http2/8.1.2.1",
        "Sends a HEADERS frame that contains a pseudo-header field as trailers",
        Failed,
        ANSWERED,
    ),
    (
        "http2/8.1.2.6",
        "Sends a HEADERS frame with the \"content-length\" header field which does not equal the DATA frame payload length",
        Failed,
        ANSWERED,
    ),
    (
        "http2/8.1.2.6",
        "Sends a HEADERS frame with the \"content-length\" header field which does not equal the sum of the multiple DATA frames payload length",
        Failed,
        ANSWERED,
    ),
];

#[test]
fn the_grpc_port_conforms_in_the_clear() {
    let mut service = Tollgate::start(RULES, &[]);
    assert_conforms(&mut service, &[]);
}

#[test]
fn the_grpc_port_conforms_over_tls() {
    let authority = Authority::new("authority");
    let secret = Secret::new(&authority.signs(&["127.0.0.1"]), &authority.pem);
    let mut service = Tollgate::start(
        RULES,
        &[
            "--grpc-server-use-tls",
            "true",
            "--grpc-server-tls-cert",
            &secret.file("tls.crt"),
            "--grpc-server-tls-key",
            &secret.file("tls.key"),
        ],
    );
    assert_conforms(&mut service, &["--tls", "--insecure"]);
}

/// Runs all cases and compares their outcomes with `EXCEPTIONS`.
fn assert_conforms(service: &mut Tollgate, arguments: &[&str]) {
    let port = service.grpc.port();
    let reports = tempfile::tempdir().unwrap();
    let cases: Vec<_> = thread::scope(|scope| {
        let groups: Vec<_> = GROUPS
            .iter()
            .enumerate()
            .map(|(number, group)| {
                let report = reports.path().join(format!("{number}.xml"));
                scope.spawn(move || run(port, group, arguments, &report))
            })
            .collect();
        let ended = groups.into_iter().map(|group| group.join().unwrap());
        ended.flatten().collect()
    });
    assert!(service.running(), "{}", service.said());
    assert_eq!(cases.len(), CASES, "cases");
    let other: BTreeSet<_> = cases
        .into_iter()
        .filter(|(.., outcome)| *outcome != Outcome::Passed)
        .collect();
    let expected: BTreeSet<_> = EXCEPTIONS
        .iter()
        .map(|(section, case, outcome, _)| ((*section).to_owned(), (*case).to_owned(), *outcome))
        .collect();
    let new: Vec<_> = other.difference(&expected).collect();
    assert!(new.is_empty(), "these do not pass: {new:#?}");
    let gone: Vec<_> = expected.difference(&other).collect();
    assert!(
        gone.is_empty(),
        "these pass; take them out of EXCEPTIONS: {gone:#?}"
    );
}

/// Runs a group of cases: section, description and outcome of each.
fn run(
    port: u16,
    group: &[&str],
    arguments: &[&str],
    report: &Path,
) -> Vec<(String, String, Outcome)> {
    let status = Command::new(component("h2spec/h2spec"))
        .args(group)
        .args(["--strict", "--host", "127.0.0.1"])
        .args(["--port", &port.to_string()])
        .args(["--timeout", "5", "--junit-report"])
        .arg(report)
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .expect("h2spec starts");
    let text = std::fs::read_to_string(report)
        .unwrap_or_else(|error| panic!("h2spec {group:?} ({status}): {error}"));
    read_report(&text)
}

/// Reads the cases of a JUnit report.
fn read_report(text: &str) -> Vec<(String, String, Outcome)> {
    text.split("<testcase ")
        .skip(1)
        .map(|case| {
            let case = case.split("</testcase>").next().unwrap();
            let outcome = if case.contains("<skipped") {
                Outcome::Skipped
            } else if case.contains("<error") || case.contains("<failure") {
                Outcome::Failed
            } else {
                Outcome::Passed
            };
            (
                attribute(case, "package"),
                attribute(case, "classname"),
                outcome,
            )
        })
        .collect()
}

fn attribute(case: &str, name: &str) -> String {
    let (_, rest) = case.split_once(&format!("{name}=\"")).expect(name);
    let (value, _) = rest.split_once('"').expect(name);
    value.replace("&#34;", "\"")
}
