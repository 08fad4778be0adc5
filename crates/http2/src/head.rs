//! What a request's headers say.
//!
//! How: a client's calls of ShouldRateLimit have the same headers again and again, by index and so in the same bytes. So a
//! block that is the same as the last such call's, with nothing learnt in between, means the same, and is not decoded.
//! All others are decoded and looked at field by field, once.
//!
//! What it deliberately does not do: keep a call's other headers. Nobody asks for them: the call is made again without
//! them if it turns out to be one for tonic.

use http::header::{CONTENT_TYPE, HeaderName};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

use super::hpack::{BlockDropper, Decoder, Fields, Known};
use crate::service::wire::grpc_timeout_us;
use crate::telemetry::TraceParent;

/// The one call that is taken here.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What a message is sent as that this door reads.
const GRPC_TYPES: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The longest time that says anything: eight digits and a unit.
const TIMEOUT_BYTES_MAX: usize = 9;

/// How long a block may be that is compared with the next.
const KEPT_BLOCK_BYTES_MAX: usize = 512;

/// How much memory of a list of headers is kept for the next.
const KEPT_TEXT_BYTES_MAX: usize = 4_096;

/// A reader of one connection's heads.
#[derive(Debug)]
pub(super) struct Heads {
    decoder: Decoder,
    fields: Fields,
    /// The last call of ShouldRateLimit: its block, what it said, and what the client could refer to.
    last: Vec<u8>,
    last_call: Call,
    last_version: u64,
    /// Set while a block is read that is too long to be kept.
    dropper: Option<Box<BlockDropper>>,
    /// Whether somebody wants to know what callers say of their traces.
    traces: bool,
}

/// What a block of headers asks for.
#[derive(Debug)]
pub(super) enum Asked {
    /// A plain call of ShouldRateLimit.
    Call(Call),
    /// Anything else, and how long its body is if it says so.
    Other(Box<Request<()>>, Option<u64>),
    /// The list is longer than it may be; whether it is seen to be of a gRPC call.
    TooLong { grpc: bool },
    /// It is no request.
    Malformed,
}

/// What stands behind a body.
#[derive(Debug)]
pub(super) enum Trailers {
    Good(HeaderMap),
    /// It says what trailers may not, or too much.
    Malformed,
}

/// What matters of a call of ShouldRateLimit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Call {
    /// How long the caller waits, if it says so.
    pub(super) timeout: Option<Timeout>,
    /// How long its body is, if it says so.
    pub(super) body_bytes: Option<u64>,
    /// Where it is in its trace, if it says so.
    pub(super) parent: Option<TraceParent>,
}

/// A time that a caller waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Timeout {
    pub(super) us: u64,
    text: [u8; TIMEOUT_BYTES_MAX],
    text_bytes: u8,
}

/// What has been found of a request.
#[derive(Default)]
struct Found<'f> {
    method: Option<&'f [u8]>,
    scheme: Option<&'f [u8]>,
    path: Option<&'f [u8]>,
    authority: Option<&'f [u8]>,
    grpc: bool,
    encoded: bool,
    timeout: Option<Timeout>,
    body_bytes: Option<u64>,
    /// What was said of a trace: once, or it says nothing.
    traceparent: Option<&'f [u8]>,
    traceparents: usize,
    /// A header without a colon was there.
    headers: bool,
}

// === impl Heads ===

impl Heads {
    /// Reads lists that count at most so many bytes, and in them, if so, what is said of traces.
    pub(super) fn new(list_bytes_max: usize, traces: bool) -> Self {
        Self {
            decoder: Decoder::default(),
            fields: Fields::new(list_bytes_max),
            last: Vec::new(),
            last_call: Call::default(),
            last_version: 0,
            dropper: None,
            traces,
        }
    }

    /// Reads a request's block. None when it is broken, and the connection with it.
    pub(super) fn read(&mut self, block: &[u8]) -> Option<Asked> {
        if !block.is_empty() && block == self.last && self.last_version == self.decoder.version() {
            return Some(Asked::Call(self.last_call));
        }
        let version = self.decoder.version();
        self.decoder.decode(block, &mut self.fields)?;
        let asked = Found::asked(&self.fields, self.traces);
        if let Asked::Call(call) = asked
            && block.len() <= KEPT_BLOCK_BYTES_MAX
            && version == self.decoder.version()
        {
            self.last.clear();
            self.last.extend_from_slice(block);
            self.last_call = call;
            self.last_version = version;
        }
        self.fields.shrink(KEPT_TEXT_BYTES_MAX);
        Some(asked)
    }

    /// The block that comes is too long to be kept.
    pub(super) fn begin_to_drop(&mut self) {
        self.fields.clear();
        self.dropper = Some(Box::default());
    }

    /// Reads a part of such a block for what it changes in the compression's state, and drops it.
    /// None when it is broken, and the connection with it.
    pub(super) fn drop_part(&mut self, part: &[u8]) -> Option<()> {
        let dropper = self.dropper.as_mut()?;
        dropper.drop_part(part, &mut self.decoder, &mut self.fields)
    }

    /// Such a block has ended: says what it is seen to ask for. None when it is broken.
    pub(super) fn read_dropped(&mut self) -> Option<Asked> {
        let dropper = self.dropper.take()?;
        dropper.is_between_fields().then(|| {
            let asked = Found::asked(&self.fields, self.traces);
            self.fields.shrink(KEPT_TEXT_BYTES_MAX);
            match asked {
                // It took more bytes than any list that may be; its fields were few and long.
                Asked::Call(_) => Asked::TooLong { grpc: true },
                Asked::Other(..) | Asked::Malformed => Asked::TooLong { grpc: false },
                too_long @ Asked::TooLong { .. } => too_long,
            }
        })
    }

    /// Reads what stands behind a body. None when it is broken, and the connection with it.
    pub(super) fn read_trailers(&mut self, block: &[u8]) -> Option<Trailers> {
        self.decoder.decode(block, &mut self.fields)?;
        let mut trailers = HeaderMap::new();
        let good = !self.fields.is_too_long()
            && self.fields.each().all(|(known, name, value)| {
                !matches!(
                    known,
                    Known::Malformed
                        | Known::Method
                        | Known::Scheme
                        | Known::Path
                        | Known::Authority
                ) && put(&mut trailers, name, value).is_some()
            });
        self.fields.shrink(KEPT_TEXT_BYTES_MAX);
        Some(if good {
            Trailers::Good(trailers)
        } else {
            Trailers::Malformed
        })
    }
}

// === impl Call ===

impl Call {
    /// The call as a request, for whoever answers all requests.
    pub(super) fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(SHOULD_RATE_LIMIT);
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if let Some(timeout) = &self.timeout
            && let Some(text) = timeout.text.get(..usize::from(timeout.text_bytes))
            && let Ok(text) = HeaderValue::from_bytes(text)
        {
            headers.insert(GRPC_TIMEOUT, text);
        }
        if let Some(parent) = &self.parent
            && let Ok(text) = HeaderValue::from_str(&parent.text())
        {
            headers.insert(TRACEPARENT, text);
        }
        request
    }
}

// === impl Timeout ===

impl Timeout {
    /// None when it says nothing.
    fn read(value: &[u8]) -> Option<Self> {
        let us = grpc_timeout_us(std::str::from_utf8(value).ok()?)?;
        let mut text = [0; TIMEOUT_BYTES_MAX];
        text.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self {
            us,
            text,
            text_bytes: u8::try_from(value.len()).ok()?,
        })
    }
}

// === impl Found ===

impl<'f> Found<'f> {
    fn asked(fields: &'f Fields, traces: bool) -> Asked {
        let mut found = Self::default();
        let well_formed = fields
            .each()
            .all(|(known, _, value)| found.take(known, value).is_some());
        if fields.is_too_long() {
            return Asked::TooLong { grpc: found.grpc };
        }
        if !well_formed {
            return Asked::Malformed;
        }
        if found.is_call() {
            return Asked::Call(Call {
                timeout: found.timeout,
                body_bytes: found.body_bytes,
                parent: found.parent().filter(|_| traces),
            });
        }
        found.request(fields).map_or(Asked::Malformed, |request| {
            Asked::Other(Box::new(request), found.body_bytes)
        })
    }

    /// None when such a field may not be there.
    fn take(&mut self, known: Known, value: &'f [u8]) -> Option<()> {
        let pseudo = match known {
            Known::Method => &mut self.method,
            Known::Scheme => &mut self.scheme,
            Known::Path => &mut self.path,
            Known::Authority => &mut self.authority,
            Known::Malformed => return None,
            known => {
                self.headers = true;
                match known {
                    Known::ContentType => self.grpc = GRPC_TYPES.contains(&value),
                    Known::GrpcEncoding => self.encoded = true,
                    // Of several the first counts, as where they are looked up.
                    Known::GrpcTimeout => self.timeout = self.timeout.or(Timeout::read(value)),
                    Known::TraceParent => {
                        self.traceparent = Some(value);
                        self.traceparents = self.traceparents.saturating_add(1);
                    }
                    Known::ContentLength => {
                        let digits = value.iter().all(u8::is_ascii_digit);
                        let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
                        let bytes = text.parse().ok()?;
                        // Nobody may say two things.
                        if self.body_bytes.is_some_and(|said| said != bytes) {
                            return None;
                        }
                        self.body_bytes = Some(bytes);
                    }
                    _ => {}
                }
                return Some(());
            }
        };
        // Once each, and before all others.
        (!self.headers && pseudo.replace(value).is_none()).then_some(())
    }

    fn parent(&self) -> Option<TraceParent> {
        let said = self.traceparent.filter(|_| self.traceparents == 1);
        said.and_then(TraceParent::read)
    }

    fn is_call(&self) -> bool {
        let path = self.path.unwrap_or_default();
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        self.method == Some(b"POST")
            && self.scheme.is_some()
            && path == SHOULD_RATE_LIMIT.as_bytes()
            && self.grpc
            && !self.encoded
    }

    /// None when the parts make no request.
    fn request(&self, fields: &Fields) -> Option<Request<()>> {
        let mut request = Request::new(());
        *request.version_mut() = http::Version::HTTP_2;
        *request.method_mut() = Method::from_bytes(self.method?).ok()?;
        let mut uri = http::uri::Parts::default();
        if let Some(authority) = self.authority {
            uri.authority = Some(Authority::try_from(authority).ok()?);
        }
        if request.method() != Method::CONNECT {
            let scheme = Scheme::try_from(self.scheme?).ok()?;
            uri.path_and_query = Some(PathAndQuery::try_from(self.path?).ok()?);
            uri.scheme = uri.authority.is_some().then_some(scheme);
        }
        *request.uri_mut() = Uri::from_parts(uri).ok()?;
        for (known, name, value) in fields.each() {
            let pseudo = matches!(
                known,
                Known::Method | Known::Scheme | Known::Path | Known::Authority
            );
            if !pseudo {
                put(request.headers_mut(), name, value)?;
            }
        }
        Some(request)
    }
}

fn put(headers: &mut HeaderMap, name: &[u8], value: &[u8]) -> Option<()> {
    let name = HeaderName::from_lowercase(name).ok()?;
    let value = HeaderValue::from_bytes(value).ok()?;
    headers.try_append(name, value).ok().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of these headers, to be remembered or not.
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

    fn asked(headers: &[(&str, &str)]) -> Asked {
        Heads::new(1_000, true).read(&block(headers, 0)).unwrap()
    }

    const CALL: [(&str, &str); 5] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", SHOULD_RATE_LIMIT),
        (":authority", "test"),
        ("content-type", "application/grpc"),
    ];

    fn call_and(more: &[(&'static str, &'static str)]) -> Asked {
        asked(&[&CALL[..], more].concat())
    }

    #[test]
    fn a_call_is_known_by_its_head() {
        let Asked::Call(call) = call_and(&[("grpc-timeout", "20m"), ("content-length", "7")])
        else {
            panic!("a call");
        };
        assert_eq!(call.timeout.unwrap().us, 20_000);
        assert_eq!(call.body_bytes, Some(7));
        let request = call.request();
        assert_eq!(request.uri().path(), SHOULD_RATE_LIMIT);
        assert_eq!(request.headers()["grpc-timeout"], "20m");
        for more in [
            ("grpc-encoding", "identity"),
            ("content-type", "text/plain"),
        ] {
            assert!(matches!(call_and(&[more]), Asked::Other(..)), "{more:?}");
        }
    }

    #[test]
    fn a_call_says_where_it_is_in_its_trace_to_who_wants_to_know() {
        const HERE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = |more: &[(&'static str, &'static str)], traces| {
            let block = block(&[&CALL[..], more].concat(), 0);
            let Asked::Call(call) = Heads::new(1_000, traces).read(&block).unwrap() else {
                panic!("a call");
            };
            // Whoever the call is handed on to hears the same.
            let handed = call.request().headers().get("traceparent").cloned();
            assert_eq!(handed.is_some(), call.parent.is_some());
            call.parent
        };
        let said = parent(&[("traceparent", HERE)], true).unwrap();
        assert_eq!(said.text(), HERE);
        assert_eq!(parent(&[("traceparent", HERE)], false), None);
        assert_eq!(parent(&[("traceparent", "00-x")], true), None);
        assert_eq!(
            parent(&[("traceparent", HERE), ("traceparent", HERE)], true),
            None
        );
    }

    #[test]
    fn what_is_no_request_is_malformed() {
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
            assert!(matches!(call_and(&[more]), Asked::Malformed), "{more:?}");
        }
        for missing in 0..3 {
            let mut headers = CALL.to_vec();
            headers.remove(missing);
            assert!(matches!(asked(&headers), Asked::Malformed), "{missing}");
        }
        // Whatever stands behind a header is no part of the request's line.
        let mut headers = CALL.to_vec();
        headers.rotate_left(1);
        assert!(matches!(asked(&headers), Asked::Malformed));
        let two = call_and(&[("content-length", "1"), ("content-length", "2")]);
        assert!(matches!(two, Asked::Malformed));
    }

    #[test]
    fn any_other_request_comes_whole() {
        let Asked::Other(request, _) = asked(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/a?b=c"),
            (":authority", "test:8081"),
            ("x", "1"),
            ("x", "2"),
        ]) else {
            panic!("another");
        };
        assert_eq!(request.uri(), "https://test:8081/a?b=c");
        assert_eq!(request.headers().get_all("x").iter().count(), 2);
        let connect = asked(&[(":method", "CONNECT"), (":authority", "test:1")]);
        assert!(matches!(connect, Asked::Other(..)));
    }

    #[test]
    fn the_same_bytes_mean_the_same_only_while_nothing_was_learnt() {
        let mut heads = Heads::new(1_000, true);
        // Remembered: index 62 is the last of them.
        let with_timeout = [&CALL[..], &[("grpc-timeout", "20m")]].concat();
        let is_call = |asked: Option<Asked>| matches!(asked, Some(Asked::Call(_)));
        assert!(is_call(heads.read(&block(&with_timeout, 0x40))));
        let by_index = [67, 66, 65, 63, 62].map(|index: u8| 0x80 | index);
        for _ in 0..3 {
            let Some(Asked::Call(call)) = heads.read(&by_index) else {
                panic!("a call");
            };
            assert_eq!(call.timeout.unwrap().us, 20_000);
        }
        assert_eq!(heads.last, by_index);
        // One more header is remembered, and all indices mean something else.
        heads.read_trailers(&block(&[("x", "y")], 0x40)).unwrap();
        assert!(matches!(heads.read(&by_index), Some(Asked::Malformed)));
    }

    #[test]
    fn a_list_beyond_its_bound_is_no_request() {
        let long = "x".repeat(100);
        let headers: Vec<_> = (0..10).map(|_| ("x", long.as_str())).collect();
        assert!(matches!(asked(&headers), Asked::TooLong { .. }));
    }

    #[test]
    fn trailers_may_say_less() {
        let mut heads = Heads::new(1_000, true);
        let mut read = |headers: &[(&str, &str)]| heads.read_trailers(&block(headers, 0)).unwrap();
        let Trailers::Good(trailers) = read(&[("x", "y")]) else {
            panic!("good");
        };
        assert_eq!(trailers["x"], "y");
        for header in [(":path", "/"), ("connection", "close")] {
            assert!(matches!(read(&[header]), Trailers::Malformed));
        }
    }
}
