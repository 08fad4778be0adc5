//! Single calls, from plain to malformed: the server responds like tonic's routes.
//!
//! Each case is sent to both in turn, so that buckets and counters stay equal as well. These are
//! compared at the end.
//!
//! What it deliberately does not do: several calls at once (`streams`).

use std::slice;

use http::Request;
use prost::Message as _;
use tollgate::proto::tollgate::v1::{CheckRequest, Descriptor, Entry};
use tollgate_test_support::grpc_client::{Code, RateLimitRequest, request};

use super::gzip::gzipped;
use super::raw::{PATH, call, frame, question};
use super::routes::Pair;
use super::{RULES, left, one};

/// A case: its name, the call's headers and DATA frames, and the expected gRPC status, or HTTP's
/// where the request is not gRPC.
type Case = (&'static str, (Request<()>, Vec<Vec<u8>>), &'static str);

const CHECK: &str = "/tollgate.v1.RateLimits/Check";
const PEEK: &str = "/tollgate.v1.RateLimits/Peek";

fn plain() -> Request<()> {
    call().body(()).unwrap()
}

fn with(name: &str, value: &[u8]) -> Request<()> {
    call().header(name, value).body(()).unwrap()
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
    let compressed = [&[1], &good[1..]].concat();
    let odd_flag = [&[2], &good[1..]].concat();
    let long = question(&one(&"x".repeat(3_000), 1));
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
    let two_types_turned = Request::post(format!("http://test{PATH}"))
        .header("content-type", "text/plain")
        .header("content-type", "application/grpc");
    let typed = |kind: &str| {
        let request = Request::post(format!("http://test{PATH}"));
        request.header("content-type", kind).body(()).unwrap()
    };
    let encoded = |encoding: &str| with("grpc-encoding", encoding.as_bytes());
    let once = |head: Request<()>, body: &[u8]| (head, vec![body.to_vec()]);
    let parts = |frames: &[&[u8]]| (plain(), frames.iter().map(|frame| frame.to_vec()).collect());
    let bytes =
        |head: Request<()>, body: &[u8]| (head, body.chunks(1).map(<[u8]>::to_vec).collect());
    let gzip = || encoded("gzip");
    vec![
        ("whole", once(plain(), &good), "0"),
        ("byte by byte", bytes(plain(), &good), "0"),
        ("head, then message", parts(&[&good[..5], &message]), "0"),
        ("the end apart", parts(&[&good, b""]), "0"),
        ("an empty frame first", parts(&[b"", &good]), "0"),
        ("empty frames", parts(&[b"", b"", &good, b"", b""]), "0"),
        (
            "two protobuf messages in one",
            once(plain(), &frame(&merged)),
            "0",
        ),
        ("an unknown group", once(plain(), &unusual), "0"),
        (
            "compressed without saying how",
            once(plain(), &compressed),
            "13",
        ),
        ("no such flag", once(plain(), &odd_flag), "13"),
        ("gzip", once(gzip(), &gzipped(&message)), "0"),
        ("gzip in parts", bytes(gzip(), &gzipped(&message)), "0"),
        ("gzip announced, and not used", once(gzip(), &good), "0"),
        (
            "gzip announced, and something else sent",
            once(gzip(), &compressed),
            "13",
        ),
        (
            "too long once gzip has expanded it",
            once(gzip(), &gzipped(&long[5..])),
            "0",
        ),
        ("deflate", once(encoded("deflate"), &good), "12"),
        ("identity", once(encoded("identity"), &good), "0"),
        ("too long", once(plain(), &long), "0"),
        (
            "too long in two frames",
            parts(&[&long[..2_000], &long[2_000..]]),
            "0",
        ),
        ("too long by its head", once(plain(), &huge), "0"),
        ("truncated", once(plain(), &good[..good.len() - 1]), "13"),
        ("half a head", once(plain(), &[0, 0]), "13"),
        (
            "trailing byte",
            once(plain(), &[&good[..], b"x"].concat()),
            "13",
        ),
        (
            "two messages",
            once(plain(), &[&good[..], &good].concat()),
            "13",
        ),
        ("two messages in two frames", parts(&[&good, &good]), "13"),
        ("no body", parts(&[]), "13"),
        ("an empty body", parts(&[b""]), "13"),
        ("an empty message", once(plain(), &frame(b"")), "3"),
        ("broken protobuf", once(plain(), &broken), "13"),
        ("not protobuf", once(plain(), &frame(b"\xff\xff\xff")), "13"),
        (
            "no domain",
            once(plain(), &question(&request("", vec![]))),
            "3",
        ),
        (
            "no descriptors",
            once(plain(), &question(&request("d", vec![]))),
            "3",
        ),
        (
            "unknown domain",
            once(plain(), &question(&request("e", one("x", 1).descriptors))),
            "0",
        ),
        (
            "unknown service",
            once(to("/no.such.Service/Call"), &good),
            "12",
        ),
        (
            "unknown method",
            once(to(&PATH.replace("Should", "Could")), &good),
            "12",
        ),
        ("root", once(to("/"), &good), "12"),
        ("a query", once(to(&format!("{PATH}?a=b")), &good), "0"),
        ("a slash more", once(to(&format!("{PATH}/")), &good), "12"),
        ("+proto", once(typed("application/grpc+proto"), &good), "0"),
        (
            "+json",
            once(typed("application/grpc+json"), &good),
            "HTTP 415",
        ),
        ("text", once(typed("text/plain"), &good), "HTTP 415"),
        ("capitals", once(typed("Application/GRPC"), &good), "0"),
        (
            "no type",
            once(no_type.body(()).unwrap(), &good),
            "HTTP 415",
        ),
        (
            "two types",
            once(two_types.body(()).unwrap(), &good),
            "HTTP 415",
        ),
        (
            "two types, the last one gRPC's",
            once(two_types_turned.body(()).unwrap(), &good),
            "HTTP 415",
        ),
        ("GET", once(get.body(()).unwrap(), &good), "HTTP 405"),
        (
            "metadata",
            once(with("x-request-id", b"\xff\xfe"), &good),
            "0",
        ),
        (
            "accepts gzip",
            once(with("grpc-accept-encoding", b"gzip,identity"), &good),
            "0",
        ),
    ]
}

/// Checks and peeks of tollgate's API.
fn own_cases() -> Vec<Case> {
    let asked = |domain: &str, descriptors: &[Descriptor], hits| {
        let message = CheckRequest {
            domain: domain.to_owned(),
            descriptors: descriptors.to_vec(),
            hits,
        };
        frame(&message.encode_to_vec())
    };
    let key = |key: &str, value: String| Descriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value,
        }],
        hits: None,
    };
    let one = key("many", "x".to_owned());
    let good = asked("d", slice::from_ref(&one), Some(3));
    let nobody = Descriptor::default();
    let many: Vec<_> = (0..40).map(|n| key("other", n.to_string())).collect();
    let long = asked("d", &[key("many", "x".repeat(3_000))], None);
    let with = |name: &str, value: &str| {
        let head = Request::post(format!("http://test{CHECK}"));
        let head = head.header("content-type", "application/grpc");
        head.header(name, value).body(()).unwrap()
    };
    let mut cases = Vec::new();
    for path in [CHECK, PEEK] {
        let to_path = |body: &[u8]| (to(path), vec![body.to_vec()]);
        cases.extend([
            ("plain", to_path(&good), "0"),
            ("hits of its own", to_path(&asked("d", &many, None)), "0"),
            (
                "nothing to take",
                to_path(&asked("d", slice::from_ref(&one), Some(0))),
                "0",
            ),
            (
                "two messages in one",
                to_path(&frame(&good[5..].repeat(2))),
                "0",
            ),
            (
                "unknown domain",
                to_path(&asked("e", slice::from_ref(&one), None)),
                "0",
            ),
            (
                "no domain",
                to_path(&asked("", slice::from_ref(&one), None)),
                "3",
            ),
            ("no descriptors", to_path(&asked("d", &[], None)), "3"),
            (
                "no entries",
                to_path(&asked("d", slice::from_ref(&nobody), None)),
                "3",
            ),
            (
                "too many hits",
                to_path(&asked("d", slice::from_ref(&one), Some(u64::MAX))),
                "3",
            ),
            ("not protobuf", to_path(&frame(b"\xff\xff\xff")), "13"),
            ("half a head", to_path(&[0, 0]), "13"),
            ("longer than a message may be", to_path(&long), "11"),
        ]);
    }
    let timeout = |text| (with("grpc-timeout", text), vec![good.clone()]);
    let gzip = gzipped(&good[5..]);
    cases.extend([
        ("time enough", timeout("20S"), "0"),
        ("no timeout that it knows", timeout("0s"), "13"),
        ("gzip", (with("grpc-encoding", "gzip"), vec![gzip]), "0"),
    ]);
    cases
}

/// Values of `grpc-timeout`, and the status of a call with it.
pub(crate) const TIMEOUTS: &[(&[u8], &str)] = &[
    (b"1H", "0"),
    (b"99999999H", "0"),
    (b"5M", "0"),
    (b"20S", "0"),
    (b"20000m", "0"),
    (b"20000000u", "0"),
    (b"99999999n", "0"),
    (b"0H", "4"),
    (b"0M", "4"),
    (b"0S", "4"),
    (b"0m", "4"),
    (b"0u", "4"),
    (b"0n", "4"),
    (b"00000000n", "4"),
    // These are malformed.
    (b"123456789m", "13"),
    (b"000000000n", "13"),
    (b"m", "13"),
    (b"", "13"),
    (b"0", "13"),
    (b"-0m", "13"),
    (b"+0m", "13"),
    (b"0 m", "13"),
    (b"0ms", "13"),
    (b"0s", "13"),
    (b"\xff", "13"),
    (b"0\xffm", "13"),
];

async fn compare_cases(arguments: &[&str], beyond: Code) {
    let mut pair = Pair::start(RULES, arguments).await;
    let all = cases().into_iter().chain(own_cases());
    for (name, (head, body), status) in all {
        let seen = pair.make(name, &head, &body).await;
        assert_eq!(seen.error, None, "{name}");
        let http = format!("HTTP {}", seen.status);
        assert_eq!(
            seen.grpc_status().unwrap_or(&http),
            status,
            "{name}: {seen:?}"
        );
        if name.starts_with("too long") {
            assert_eq!(seen.answer().overall_code(), beyond, "{name}");
        }
    }
    pair.compare_counters().await;
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
    for (timeout, expected) in TIMEOUTS {
        let name = String::from_utf8_lossy(timeout);
        let body = [question(&one("x", 1))];
        let head = with("grpc-timeout", timeout);
        let seen = pair.make(&name, &head, &body).await;
        assert_eq!(seen.grpc_status(), Some(*expected), "{name}");
    }
    let with = |status| TIMEOUTS.iter().filter(|(_, of)| *of == status).count();
    for service in [&mut pair.server, &mut pair.oracle] {
        let taken = 1_000_000 - left(service, "x").await;
        assert_eq!(taken as usize, with("0"));
        let shed = "tollgate_shed_total{reason=\"deadline_passed\"}";
        let shed = usize::try_from(service.metric(shed)).unwrap();
        assert_eq!(shed, with("4"));
    }
}
