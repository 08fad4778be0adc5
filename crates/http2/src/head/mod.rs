//! Reads the header blocks of requests.
//!
//! How: calls of one method by one client have the same headers again and again, by index and so in
//! the same bytes. A block equal to the last call's, with the dynamic table unchanged in between,
//! means the same and is not decoded. All others are decoded and checked field by field.
//!
//! A call keeps only the headers that its handler reads. A declined call is rebuilt from them.

mod fields;

pub(crate) use self::fields::CallHead;
use self::fields::HeadFields;
use crate::config::Config;
use crate::event::CapturedValue;
use crate::field_kind::FieldKind;
use crate::grpc::CONTENT_TYPES;
use crate::header_list::{HeaderList, RequestHead};
use crate::hpack::{BlockSkipper, Decoder, Fields};

/// The longest block that is kept and compared with the next, in bytes.
const CACHED_BLOCK_BYTES_MAX: usize = 512;

/// How much memory of a header list is kept for the next, in bytes.
const KEPT_TEXT_BYTES_MAX: usize = 4_096;

/// Reads the header blocks of one connection.
#[derive(Debug)]
pub(crate) struct HeadReader {
    decoder: Decoder,
    fields: Fields,
    unary_path: Option<&'static str>,
    captured_header: Option<&'static str>,
    /// Block of the last call, what it means, and the version of the table that it refers to.
    cached_block: Vec<u8>,
    cached_call: CallHead,
    cached_version: u64,
    /// Set while a block is read that is too long to be kept.
    skipper: Option<Box<BlockSkipper>>,
}

/// What a header block means.
#[derive(Debug)]
pub(crate) enum ParsedHead {
    /// A call on the fast path.
    Call(CallHead),
    /// Any other request, and its content-length.
    Request(RequestHead, Option<u64>),
    /// The list exceeds its limit; whether it is known to be of a gRPC call.
    TooLong { grpc: bool },
    /// It is not a request.
    Malformed,
}

/// What a block behind a body means.
#[derive(Debug)]
pub(crate) enum ParsedTrailers {
    Valid(HeaderList),
    /// It has fields that trailers must not have, or is too long.
    Malformed,
}

// === impl HeadReader ===

impl HeadReader {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            decoder: Decoder::default(),
            fields: Fields::new(config.header_list_bytes_max),
            unary_path: config.unary_path,
            captured_header: config.captured_header,
            cached_block: Vec::new(),
            cached_call: CallHead::default(),
            cached_version: 0,
            skipper: None,
        }
    }

    /// Reads a request's block. None if it is invalid, and the connection must end.
    pub(crate) fn read(&mut self, block: &[u8]) -> Option<ParsedHead> {
        if !block.is_empty()
            && block == self.cached_block
            && self.cached_version == self.decoder.version()
        {
            return Some(ParsedHead::Call(self.cached_call));
        }
        let version = self.decoder.version();
        self.decoder.decode(block, &mut self.fields)?;
        let head = self.parse();
        if let ParsedHead::Call(call) = head
            && block.len() <= CACHED_BLOCK_BYTES_MAX
            && version == self.decoder.version()
        {
            self.cached_block.clear();
            self.cached_block.extend_from_slice(block);
            self.cached_call = call;
            self.cached_version = version;
        }
        self.fields.shrink(KEPT_TEXT_BYTES_MAX);
        Some(head)
    }

    /// Begins to skip a block that is too long to be kept.
    pub(crate) fn begin_to_skip(&mut self) {
        self.fields.clear();
        self.skipper = Some(Box::default());
    }

    /// Reads a part of such a block for what it changes in the dynamic table. None if it is
    /// invalid, and the connection must end.
    pub(crate) fn skip_part(&mut self, part: &[u8]) -> Option<()> {
        let skipper = self.skipper.as_mut()?;
        skipper.skip_part(part, &mut self.decoder, &mut self.fields)
    }

    /// Ends such a block. None if it is cut off.
    pub(crate) fn end_skipped(&mut self) -> Option<ParsedHead> {
        let skipper = self.skipper.take()?;
        skipper.is_between_fields().then(|| {
            let head = self.parse();
            self.fields.shrink(KEPT_TEXT_BYTES_MAX);
            match head {
                // Its fields were few and long: the list is within its limit, the block is not.
                ParsedHead::Call(_) => ParsedHead::TooLong { grpc: true },
                ParsedHead::Request(..) | ParsedHead::Malformed => {
                    ParsedHead::TooLong { grpc: false }
                }
                too_long @ ParsedHead::TooLong { .. } => too_long,
            }
        })
    }

    /// Reads the block behind a body. None if it is invalid, and the connection must end.
    pub(crate) fn read_trailers(&mut self, block: &[u8]) -> Option<ParsedTrailers> {
        self.decoder.decode(block, &mut self.fields)?;
        let valid = !self.fields.is_too_long()
            && self
                .fields
                .iter()
                .all(|(kind, ..)| kind != FieldKind::Malformed && !kind.is_pseudo());
        let trailers = if valid {
            ParsedTrailers::Valid(self.fields.to_list())
        } else {
            ParsedTrailers::Malformed
        };
        self.fields.shrink(KEPT_TEXT_BYTES_MAX);
        Some(trailers)
    }

    /// A call as a request, of the headers that were kept.
    pub(crate) fn request_of(&self, call: &CallHead) -> RequestHead {
        let mut list = HeaderList::default();
        let path = self.unary_path.unwrap_or_default().as_bytes();
        list.push(FieldKind::Method, b":method", b"POST");
        list.push(FieldKind::Path, b":path", path);
        list.push(FieldKind::ContentType, b"content-type", CONTENT_TYPES[0]);
        if let Some(timeout) = &call.timeout {
            list.push(FieldKind::GrpcTimeout, b"grpc-timeout", timeout.text());
        }
        if let (Some(name), Some(value)) = (self.captured_header, &call.captured) {
            list.push(FieldKind::Other, name.as_bytes(), value.as_bytes());
        }
        RequestHead::new(list)
    }

    /// What the decoded fields mean.
    fn parse(&self) -> ParsedHead {
        let mut found = HeadFields::new(self.captured_header);
        let well_formed = self
            .fields
            .iter()
            .all(|(kind, name, value)| found.add(kind, name, value).is_some());
        if self.fields.is_too_long() {
            return ParsedHead::TooLong {
                grpc: found.is_grpc(),
            };
        }
        if !well_formed || !found.is_request() {
            return ParsedHead::Malformed;
        }
        if self.unary_path.is_some_and(|path| found.is_call(path)) {
            return ParsedHead::Call(CallHead {
                timeout: found.timeout,
                content_length: found.content_length,
                captured: found.captured_once().map(CapturedValue::new),
            });
        }
        let head = RequestHead::new(self.fields.to_list());
        ParsedHead::Request(head, found.content_length)
    }
}

#[cfg(test)]
mod tests {
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

    fn reader() -> HeadReader {
        HeadReader::new(&Config {
            header_list_bytes_max: 1_000,
            unary_path: Some(PATH),
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
        let no_fast_path = HeadReader::new(&Config::default()).read(&block(&CALL, 0));
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
}
