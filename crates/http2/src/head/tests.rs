//! Tests of header blocks.

use super::*;

/// A block of literal fields whose first byte says whether they are indexed.
fn block(headers: &[(&str, &str)], first: u8) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(first);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

const PATH: &str = "/echo.Echo/Echo";

fn reader() -> HeaderDecoder {
    HeaderDecoder::new(&Config {
        header_list_bytes_max: 1_000,
        unary_paths: &[PATH],
        captured_header: Some("traceparent"),
        ..Config::default()
    })
}

fn parsed(headers: &[(&str, &str)]) -> ParsedHead {
    reader().read(&block(headers, 0)).unwrap()
}

const CALL: [(&str, &str); 5] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "test"),
    ("content-type", "application/grpc"),
];

fn call_with(more: &[(&'static str, &'static str)]) -> ParsedHead {
    parsed(&[&CALL[..], more].concat())
}

#[test]
fn a_call_is_recognised_by_its_head() {
    let ParsedHead::Call(call) = call_with(&[("grpc-timeout", "20m"), ("content-length", "7")])
    else {
        panic!("a call");
    };
    assert_eq!(call.timeout.unwrap().us, 20_000);
    assert_eq!(call.content_length, Some(7));
    let head = reader().request_of(&call);
    assert_eq!(head.method(), b"POST");
    assert_eq!(head.path(), Some(PATH.as_bytes()));
    assert_eq!(head.headers().get(b"grpc-timeout"), Some(&b"20m"[..]));
    for more in [
        ("grpc-encoding", "identity"),
        ("content-type", "text/plain"),
        ("grpc-timeout", "20"),
        ("grpc-timeout", ""),
    ] {
        assert!(
            matches!(call_with(&[more]), ParsedHead::Request(..)),
            "{more:?}"
        );
    }
    let no_fast_path = HeaderDecoder::new(&Config::default()).read(&block(&CALL, 0));
    assert!(matches!(no_fast_path, Some(ParsedHead::Request(..))));
}

#[test]
fn one_header_is_captured_if_it_occurs_once() {
    const HERE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let captured = |more: &[(&'static str, &'static str)]| {
        let ParsedHead::Call(call) = call_with(more) else {
            panic!("a call");
        };
        // A declined call has the same.
        let head = reader().request_of(&call);
        let value = head.headers().get(b"traceparent").map(<[u8]>::to_vec);
        assert_eq!(
            value.as_deref(),
            call.captured.as_ref().map(CapturedValue::as_bytes)
        );
        value
    };
    let once = captured(&[("traceparent", HERE)]);
    assert_eq!(once.as_deref(), Some(HERE.as_bytes()));
    assert_eq!(captured(&[]), None);
    assert_eq!(
        captured(&[("traceparent", HERE), ("traceparent", HERE)]),
        None
    );
}

#[test]
fn heads_that_are_no_request_are_malformed() {
    for more in [
        (":path", "/"),
        (":method", "POST"),
        (":status", "200"),
        ("te", "gzip"),
        ("connection", "close"),
        ("content-length", "-1"),
        ("content-length", "+1"),
        ("X", "y"),
    ] {
        assert!(
            matches!(call_with(&[more]), ParsedHead::Malformed),
            "{more:?}"
        );
    }
    for missing in 0..3 {
        let mut headers = CALL.to_vec();
        headers.remove(missing);
        assert!(
            matches!(parsed(&headers), ParsedHead::Malformed),
            "{missing}"
        );
    }
    // A pseudo-header behind a header.
    let mut headers = CALL.to_vec();
    headers.rotate_left(1);
    assert!(matches!(parsed(&headers), ParsedHead::Malformed));
    let two = call_with(&[("content-length", "1"), ("content-length", "2")]);
    assert!(matches!(two, ParsedHead::Malformed));
}

#[test]
fn any_other_request_keeps_all_headers() {
    let ParsedHead::Request(head, _) = parsed(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/a?b=c"),
        (":authority", "test:8081"),
        ("x", "1"),
        ("x", "2"),
    ]) else {
        panic!("a request");
    };
    assert_eq!(head.method(), b"GET");
    assert_eq!(head.scheme(), Some(&b"https"[..]));
    assert_eq!(head.path(), Some(&b"/a?b=c"[..]));
    assert_eq!(head.authority(), Some(&b"test:8081"[..]));
    assert_eq!(head.headers().iter().count(), 2);
    let connect = parsed(&[(":method", "CONNECT"), (":authority", "test:1")]);
    assert!(matches!(connect, ParsedHead::Request(..)));
}

#[test]
fn equal_blocks_mean_the_same_only_while_the_table_is_unchanged() {
    let mut reader = reader();
    // Indexed: 62 is the last of them.
    let with_timeout = [&CALL[..], &[("grpc-timeout", "20m")]].concat();
    let is_call = |head: Option<ParsedHead>| matches!(head, Some(ParsedHead::Call(_)));
    assert!(is_call(reader.read(&block(&with_timeout, 0x40))));
    let by_index = [67, 66, 65, 63, 62].map(|index: u8| 0x80 | index);
    for _ in 0..3 {
        let Some(ParsedHead::Call(call)) = reader.read(&by_index) else {
            panic!("a call");
        };
        assert_eq!(call.timeout.unwrap().us, 20_000);
    }
    assert_eq!(reader.cached_block, by_index);
    // One more field is indexed, and all indexes mean something else.
    reader.read_trailers(&block(&[("x", "y")], 0x40)).unwrap();
    assert!(matches!(
        reader.read(&by_index),
        Some(ParsedHead::Malformed)
    ));
}

#[test]
fn a_list_that_exceeds_its_limit_is_no_request() {
    let long = "x".repeat(100);
    let headers: Vec<_> = (0..10).map(|_| ("x", long.as_str())).collect();
    assert!(matches!(parsed(&headers), ParsedHead::TooLong { .. }));
}

#[test]
fn trailers_have_no_pseudo_headers() {
    let mut reader = reader();
    let mut read = |headers: &[(&str, &str)]| reader.read_trailers(&block(headers, 0)).unwrap();
    let ParsedTrailers::Valid(trailers) = read(&[("x", "y")]) else {
        panic!("valid");
    };
    assert_eq!(trailers.get(b"x"), Some(&b"y"[..]));
    for header in [(":path", "/"), ("connection", "close")] {
        assert!(matches!(read(&[header]), ParsedTrailers::Malformed));
    }
}
