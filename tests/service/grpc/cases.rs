//! Single calls, from plain to malformed: the server responds like tonic's routes.
//!
//! Each case is sent to both in turn, so that buckets and counters stay equal as well. These are
//! compared at the end.
//!
//! What it deliberately does not do: several calls at once (`streams`).

use http::Request;
use prost::Message as _;
use tollgate_test_support::grpc_client::{Code, RateLimitRequest, request};

use super::gzip::gzipped;
use super::raw::{PATH, call, frame, question};
use super::routes::Pair;
use super::{RULES, left, one};

/// A case: its name, the call's headers, its DATA frames and the expected gRPC status; none for an
/// HTTP error.
type Case = (
    &'static str,
    Request<()>,
    Vec<Vec<u8>>,
    Option<&'static str>,
);

fn plain() -> Request<()> {
    call().body(()).unwrap()
}

fn with(name: &str, value: &[u8]) -> Request<()> {
    call().header(name, value).body(()).unwrap()
}

fn of_type(kind: &str) -> Request<()> {
    let request = Request::post(format!("http://test{PATH}"));
    request.header("content-type", kind).body(()).unwrap()
}

fn to(path: &str) -> Request<()> {
    let request = Request::post(format!("http://test{path}"));
    let request = request.header("content-type", "application/grpc");
    request.body(()).unwrap()
}

#[allow(clippy::too_many_lines)] // a table
fn cases() -> Vec<Case> {
    let good = question(&one("x", 1));
    let message = one("x", 1).encode_to_vec();
    let bytes = good.iter().map(|byte| vec![*byte]).collect();
    let compressed = [&[1], &good[1..]].concat();
    let not_gzip = compressed.clone();
    let odd_flag = [&[2], &good[1..]].concat();
    let short = good[..good.len() - 1].to_vec();
    let more = [&good[..], b"x"].concat();
    let twice = [&good[..], &good[..]].concat();
    let long = question(&one(&"x".repeat(3_000), 1));
    let late_end = vec![long[..2_000].to_vec(), long[2_000..].to_vec()];
    let no_domain = question(&request("", vec![]));
    let huge = [&[0], &u32::MAX.to_be_bytes()[..], &message[..]].concat();
    let merged = RateLimitRequest::default();
    let merged = [one("x", 1).encode_to_vec(), merged.encode_to_vec()].concat();
    // The domain again, as another field's type.
    let broken = frame(&[&message[..], b"\x08\x01"].concat());
    let unusual = frame(&[&message[..], b"\x4b\x08\x01\x4c"].concat());
    let get = Request::get(format!("http://test{PATH}"));
    let get = get.header("content-type", "application/grpc");
    let no_type = Request::post(format!("http://test{PATH}"));
    let two_types = call().header("content-type", "text/plain");
    vec![
        ("whole", plain(), vec![good.clone()], Some("0")),
        ("byte by byte", plain(), bytes, Some("0")),
        (
            "head, then message",
            plain(),
            vec![good[..5].to_vec(), message.clone()],
            Some("0"),
        ),
        (
            "the end apart",
            plain(),
            vec![good.clone(), vec![]],
            Some("0"),
        ),
        (
            "an empty frame first",
            plain(),
            vec![vec![], good.clone()],
            Some("0"),
        ),
        (
            "empty frames",
            plain(),
            vec![vec![], vec![], good.clone(), vec![], vec![]],
            Some("0"),
        ),
        (
            "two protobuf messages in one",
            plain(),
            vec![frame(&merged)],
            Some("0"),
        ),
        ("an unknown group", plain(), vec![unusual], Some("0")),
        (
            "compressed without saying how",
            plain(),
            vec![compressed],
            Some("13"),
        ),
        ("no such flag", plain(), vec![odd_flag], Some("13")),
        (
            "gzip",
            with("grpc-encoding", b"gzip"),
            vec![gzipped(&message)],
            Some("0"),
        ),
        (
            "gzip in parts",
            with("grpc-encoding", b"gzip"),
            gzipped(&message).iter().map(|byte| vec![*byte]).collect(),
            Some("0"),
        ),
        (
            "gzip announced, and not used",
            with("grpc-encoding", b"gzip"),
            vec![good.clone()],
            Some("0"),
        ),
        (
            "gzip announced, and something else sent",
            with("grpc-encoding", b"gzip"),
            vec![not_gzip],
            Some("13"),
        ),
        (
            "too long once gzip has expanded it",
            with("grpc-encoding", b"gzip"),
            vec![gzipped(&long[5..])],
            Some("0"),
        ),
        (
            "deflate",
            with("grpc-encoding", b"deflate"),
            vec![good.clone()],
            Some("12"),
        ),
        (
            "identity",
            with("grpc-encoding", b"identity"),
            vec![good.clone()],
            Some("0"),
        ),
        ("too long", plain(), vec![long], Some("0")),
        ("too long in two frames", plain(), late_end, Some("0")),
        ("too long by its head", plain(), vec![huge], Some("0")),
        ("truncated", plain(), vec![short], Some("13")),
        ("half a head", plain(), vec![vec![0, 0]], Some("13")),
        ("trailing byte", plain(), vec![more], Some("13")),
        // A server of unary calls reads one message.
        ("two messages", plain(), vec![twice], Some("0")),
        (
            "two messages in two frames",
            plain(),
            vec![good.clone(), good.clone()],
            Some("0"),
        ),
        ("no body", plain(), vec![], Some("13")),
        ("an empty body", plain(), vec![vec![]], Some("13")),
        ("an empty message", plain(), vec![frame(b"")], Some("3")),
        ("broken protobuf", plain(), vec![broken], Some("13")),
        (
            "not protobuf",
            plain(),
            vec![frame(b"\xff\xff\xff")],
            Some("13"),
        ),
        ("no domain", plain(), vec![no_domain], Some("3")),
        (
            "no descriptors",
            plain(),
            vec![question(&request("d", vec![]))],
            Some("3"),
        ),
        (
            "unknown domain",
            plain(),
            vec![question(&request("e", one("x", 1).descriptors))],
            Some("0"),
        ),
        (
            "unknown service",
            to("/no.such.Service/Call"),
            vec![good.clone()],
            Some("12"),
        ),
        (
            "unknown method",
            to(&PATH.replace("Should", "Could")),
            vec![good.clone()],
            Some("12"),
        ),
        ("root", to("/"), vec![good.clone()], Some("12")),
        (
            "a query",
            to(&format!("{PATH}?a=b")),
            vec![good.clone()],
            Some("0"),
        ),
        (
            "a slash more",
            to(&format!("{PATH}/")),
            vec![good.clone()],
            Some("12"),
        ),
        (
            "+proto",
            of_type("application/grpc+proto"),
            vec![good.clone()],
            Some("0"),
        ),
        (
            "+json",
            of_type("application/grpc+json"),
            vec![good.clone()],
            Some("0"),
        ),
        ("text", of_type("text/plain"), vec![good.clone()], Some("0")),
        (
            "capitals",
            of_type("Application/GRPC"),
            vec![good.clone()],
            Some("0"),
        ),
        (
            "no type",
            no_type.body(()).unwrap(),
            vec![good.clone()],
            Some("0"),
        ),
        (
            "two types",
            two_types.body(()).unwrap(),
            vec![good.clone()],
            Some("0"),
        ),
        ("GET", get.body(()).unwrap(), vec![good.clone()], Some("0")),
        (
            "metadata",
            with("x-request-id", b"\xff\xfe"),
            vec![good.clone()],
            Some("0"),
        ),
        (
            "accepts gzip",
            with("grpc-accept-encoding", b"gzip,identity"),
            vec![good],
            Some("0"),
        ),
    ]
}

/// Values of `grpc-timeout`, and whether the deadline passes at once.
pub(crate) const TIMEOUTS: &[(&[u8], bool)] = &[
    (b"1H", false),
    (b"99999999H", false),
    (b"5M", false),
    (b"20S", false),
    (b"20000m", false),
    (b"20000000u", false),
    (b"99999999n", false),
    (b"0H", true),
    (b"0M", true),
    (b"0S", true),
    (b"0m", true),
    (b"0u", true),
    (b"0n", true),
    (b"00000000n", true),
    // These are invalid and ignored.
    (b"123456789m", false),
    (b"000000000n", false),
    (b"m", false),
    (b"", false),
    (b"0", false),
    (b"-0m", false),
    (b"+0m", false),
    (b"0 m", false),
    (b"0ms", false),
    (b"0s", false),
    (b"\xff", false),
    (b"0\xffm", false),
];

async fn compare_cases(arguments: &[&str], beyond: Code) {
    let mut pair = Pair::start(RULES, arguments).await;
    for (name, head, body, status) in cases() {
        let seen = pair.make(name, &head, &body).await;
        assert_eq!(seen.error, None, "{name}");
        assert_eq!(seen.grpc_status(), status, "{name}: {seen:?}");
        if name.starts_with("too long") {
            assert_eq!(seen.answer().overall_code(), beyond, "{name}");
        }
    }
    pair.compare_counters();
    assert!(left(&mut pair.server, "x").await < 1_000_000);
    assert_eq!(
        left(&mut pair.server, "x").await,
        left(&mut pair.oracle, "x").await
    );
    assert_eq!(
        pair.server
            .metric("tollgate_excess_total{bound=\"message_size\"}"),
        4
    );
}

#[tokio::test]
async fn every_call_is_answered_alike() {
    let long = ["--message-size-max", "2000"];
    compare_cases(&long, Code::OverLimit).await;
    compare_cases(&[&long[..], &["--on-excess", "allow"]].concat(), Code::Ok).await;
}

#[tokio::test]
async fn a_message_too_long_is_an_error_when_configured() {
    let arguments = ["--message-size-max", "2000", "--on-excess", "error"];
    let mut pair = Pair::start(RULES, &arguments).await;
    for size in [1_900, 2_100] {
        let body = [question(&one(&"x".repeat(size), 1))];
        let seen = pair.make("long", &plain(), &body).await;
        let expected = if size < 2_000 { "0" } else { "11" };
        assert_eq!(seen.grpc_status(), Some(expected));
    }
}

#[tokio::test]
async fn a_message_may_be_exactly_as_long_as_the_bound() {
    let message = one("exactly", 1);
    let length = message.encoded_len().to_string();
    let mut pair = Pair::start(RULES, &["--message-size-max", &length]).await;
    let seen = pair.make("exact", &plain(), &[question(&message)]).await;
    assert_eq!(seen.left(), 999_999);
    let seen = pair
        .make("one more", &plain(), &[question(&one("exactly1", 1))])
        .await;
    assert_eq!(seen.answer().overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn every_form_of_grpc_timeout_is_parsed_alike() {
    let mut pair = Pair::start(RULES, &[]).await;
    for (timeout, over) in TIMEOUTS {
        let name = String::from_utf8_lossy(timeout);
        let body = [question(&one("x", 1))];
        let head = with("grpc-timeout", timeout);
        let seen = pair.make(&name, &head, &body).await;
        let expected = if *over { "4" } else { "0" };
        assert_eq!(seen.grpc_status(), Some(expected), "{name}");
    }
    let in_time = TIMEOUTS.iter().filter(|(_, over)| !over).count();
    for service in [&mut pair.server, &mut pair.oracle] {
        let taken = 1_000_000 - left(service, "x").await;
        assert_eq!(taken as usize, in_time);
        let shed = "tollgate_shed_total{reason=\"deadline_passed\"}";
        let shed = usize::try_from(service.metric(shed)).unwrap();
        assert_eq!(shed, TIMEOUTS.len() - in_time);
    }
}
