//! What the fields of a request's header block say.

use crate::event::CapturedValue;
use crate::grpc::{CONTENT_TYPES, TIMEOUT_BYTES_MAX, timeout_us};
use crate::header_list::FieldKind;

/// What is kept of the headers of a call on the fast path.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CallHead {
    /// The method that it calls.
    pub(crate) path: &'static str,
    /// How long the client waits.
    pub(crate) timeout: Option<Timeout>,
    pub(crate) content_length: Option<u64>,
    pub(crate) captured: Option<CapturedValue>,
}

/// A valid `grpc-timeout`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Timeout {
    pub(crate) us: u64,
    text: [u8; TIMEOUT_BYTES_MAX],
    text_bytes: u8,
}

/// What has been found in the fields of a request.
#[derive(Default)]
pub(super) struct HeadFields<'f> {
    captured_header: Option<&'static str>,
    method: Option<&'f [u8]>,
    scheme: Option<&'f [u8]>,
    path: Option<&'f [u8]>,
    authority: Option<&'f [u8]>,
    /// Whether every content type is that of a gRPC call; None without one.
    grpc: Option<bool>,
    /// A compressed message or a malformed `grpc-timeout`, which are for the slow path.
    unusual: bool,
    pub(super) timeout: Option<Timeout>,
    pub(super) content_length: Option<u64>,
    /// Value of the captured header, and how often it occurred.
    captured: Option<&'f [u8]>,
    captured_count: usize,
    /// A field that is no pseudo-header has occurred.
    headers: bool,
}

// === impl Timeout ===

impl Timeout {
    /// None if it is invalid.
    fn read(value: &[u8]) -> Option<Self> {
        let us = timeout_us(value)?;
        let mut text = [0; TIMEOUT_BYTES_MAX];
        text.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self {
            us,
            text,
            text_bytes: u8::try_from(value.len()).ok()?,
        })
    }

    /// The header's value.
    pub(super) fn text(&self) -> &[u8] {
        self.text
            .get(..usize::from(self.text_bytes))
            .unwrap_or_default()
    }
}

// === impl HeadFields ===

impl<'f> HeadFields<'f> {
    /// No fields, of which one with this name is to be captured.
    pub(super) fn new(captured_header: Option<&'static str>) -> Self {
        Self {
            captured_header,
            ..Self::default()
        }
    }

    /// Adds a field. None if it must not be there.
    pub(super) fn add(&mut self, kind: FieldKind, name: &[u8], value: &'f [u8]) -> Option<()> {
        let pseudo_header = match kind {
            FieldKind::Method => &mut self.method,
            FieldKind::Scheme => &mut self.scheme,
            FieldKind::Path => &mut self.path,
            FieldKind::Authority => &mut self.authority,
            FieldKind::Malformed => return None,
            kind => return self.add_header(kind, name, value),
        };
        // Once each, and before all headers.
        (!self.headers && pseudo_header.replace(value).is_none()).then_some(())
    }

    fn add_header(&mut self, kind: FieldKind, name: &[u8], value: &'f [u8]) -> Option<()> {
        self.headers = true;
        match kind {
            FieldKind::ContentType => {
                self.grpc = Some(CONTENT_TYPES.contains(&value) && self.grpc != Some(false));
            }
            FieldKind::GrpcEncoding => self.unusual = true,
            // The first of several counts.
            FieldKind::GrpcTimeout if self.timeout.is_none() && !self.unusual => {
                self.timeout = Timeout::read(value);
                self.unusual = self.timeout.is_none();
            }
            FieldKind::ContentLength => {
                let digits = value.iter().all(u8::is_ascii_digit);
                let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
                let bytes = text.parse().ok()?;
                if self.content_length.is_some_and(|other| other != bytes) {
                    return None;
                }
                self.content_length = Some(bytes);
            }
            _ => {}
        }
        if self
            .captured_header
            .is_some_and(|captured| captured.as_bytes() == name)
        {
            self.captured = Some(value);
            self.captured_count = self.captured_count.saturating_add(1);
        }
        Some(())
    }

    /// Value of the captured header if it occurred once.
    pub(super) fn captured_once(&self) -> Option<&'f [u8]> {
        self.captured.filter(|_| self.captured_count == 1)
    }

    pub(super) fn is_grpc(&self) -> bool {
        self.grpc == Some(true)
    }

    /// Whether it has the pseudo-headers of a request (RFC 9113, sections 8.3.1 and 8.5).
    pub(super) fn is_request(&self) -> bool {
        match self.method {
            None => false,
            Some(b"CONNECT") => true,
            Some(_) => self.scheme.is_some() && self.path.is_some(),
        }
    }

    /// The one of these paths that it calls; none for a request that is no plain call of one.
    pub(super) fn call_path(&self, unary_paths: &[&'static str]) -> Option<&'static str> {
        let path = self.path.unwrap_or_default();
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let is_plain = self.method == Some(b"POST") && self.is_grpc() && !self.unusual;
        let mut paths = unary_paths.iter().filter(|_| is_plain);
        paths.find(|known| path == known.as_bytes()).copied()
    }
}
