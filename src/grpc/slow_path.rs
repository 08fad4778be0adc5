//! Sends calls that the fast path does not support to tonic's routes.
//!
//! Each request runs in a task. The part of the body that has arrived goes first and the rest
//! follows through a channel. Response frames are sent as flow control permits. A stream that the
//! client resets ends the task.
//!
//! What it deliberately does not do: decode messages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tollgate_http2::{HeaderList, Reason, RequestHead, ServerConnection};
use tonic::body::Body as TonicBody;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use crate::answer_memory::{AnswerPermit, ConnectionAnswers};
use crate::metrics::Counter;

/// Parts of responses up to this length are sent without counting them: probes of health are
/// answered, too, while others hold the memory.
const SMALL_BODY_BYTES: usize = 1 << 10;

/// Channels to the request bodies that tonic reads, by stream.
#[derive(Clone, Default)]
pub(crate) struct RequestBodies(Rc<RefCell<BTreeMap<u32, mpsc::UnboundedSender<Part>>>>);

/// A request for tonic. Flow control bounds the parts of its body that wait in the channel.
pub(crate) struct Forwarded {
    stream: u32,
    request: Request<()>,
    parts: mpsc::UnboundedReceiver<Part>,
    bodies: RequestBodies,
}

/// A part of a request's body.
enum Part {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
    End,
}

/// The body of a request, read from a channel.
struct RequestBody {
    parts: mpsc::UnboundedReceiver<Part>,
    /// Reports the bytes that were consumed. Flow control bounds this channel as well.
    consumed: mpsc::UnboundedSender<usize>,
    ended: bool,
}

/// Resets the stream if the task ends without a response. Only a panic does, which is a defect and
/// affects no other call.
struct ResetOnDrop {
    http2: Rc<RefCell<ServerConnection>>,
    bodies: RequestBodies,
    stream: u32,
}

/// The client has reset the stream, or its connection has ended.
#[derive(Debug, thiserror::Error)]
#[error("the client closed the call")]
struct ClientGone;

/// The memory that bodies of responses hold until they are sent.
pub(crate) struct UnsentBodies {
    pub(crate) connection: Arc<ConnectionAnswers>,
    /// Counts responses that are reset because there is none.
    pub(crate) unread: Counter,
}

/// The head as a request. None if a part of it is invalid.
///
/// An invalid authority is left out, since no method depends on it. gRPC's C core sends one for a
/// target with several addresses: `127.0.0.1:1,127.0.0.1:2`.
pub(crate) fn http_request(head: &RequestHead) -> Option<Request<()>> {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = Method::from_bytes(head.method()).ok()?;
    let mut uri = http::uri::Parts::default();
    if let Some(authority) = head.authority() {
        uri.authority = Authority::try_from(authority).ok();
    }
    if request.method() != Method::CONNECT {
        let scheme = head.scheme().map(Scheme::try_from).transpose().ok()?;
        uri.path_and_query = Some(PathAndQuery::try_from(head.path()?).ok()?);
        uri.scheme = scheme.filter(|_| uri.authority.is_some());
    }
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.headers_mut() = header_map(head.headers())?;
    Some(request)
}

/// The list as a map. None if it has too many headers or an invalid one.
pub(crate) fn header_map(list: &HeaderList) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in list.iter() {
        let name = HeaderName::from_lowercase(name).ok()?;
        let value = HeaderValue::from_bytes(value).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

/// The name and the value of each header.
pub(crate) fn fields(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Answers a request with `routes`.
pub(crate) async fn forward(
    mut routes: Routes,
    forwarded: Forwarded,
    http2: Rc<RefCell<ServerConnection>>,
    unsent: UnsentBodies,
) {
    let Forwarded {
        stream,
        mut request,
        parts,
        bodies,
    } = forwarded;
    request
        .extensions_mut()
        .insert(Arc::clone(&unsent.connection));
    let _reset = ResetOnDrop {
        http2: Rc::clone(&http2),
        bodies,
        stream,
    };
    let (sender, mut consumed) = mpsc::unbounded_channel();
    let request = request.map(|()| {
        TonicBody::new(RequestBody {
            parts,
            consumed: sender,
            ended: false,
        })
    });
    let release_capacity = async {
        while let Some(bytes) = consumed.recv().await {
            http2.borrow_mut().release_capacity(stream, bytes);
        }
        // The body has been dropped; the response continues.
        std::future::pending::<()>().await;
    };
    let respond = async {
        let response = match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (mut parts, body) = response.into_parts();
        // A service that counts its answers says so.
        let counted: Option<Arc<AnswerPermit>> = parts.extensions.remove();
        let end_stream = body.is_end_stream();
        http2.borrow_mut().send_response(
            stream,
            parts.status.as_u16(),
            fields(&parts.headers),
            end_stream,
        );
        if !end_stream {
            send(body, stream, &http2, counted.is_none().then_some(&unsent)).await;
        }
        drop(counted);
    };
    tokio::select! {
        () = respond => {}
        () = release_capacity => {}
        () = poll_fn(|cx| http2.borrow_mut().poll_closed(stream, cx)) => {}
    }
}

/// Sends a body until it ends or the stream closes. A part for which there is no memory resets the
/// stream, as on the fast path.
async fn send(
    mut body: TonicBody,
    stream: u32,
    http2: &RefCell<ServerConnection>,
    unsent: Option<&UnsentBodies>,
) {
    loop {
        match body.frame().await.map(|frame| frame.map(Frame::into_data)) {
            None => return http2.borrow_mut().send_data(stream, &[], true),
            Some(Err(_)) => return http2.borrow_mut().send_reset(stream, Reason::Internal),
            Some(Ok(Ok(mut data))) => {
                let counted = unsent.filter(|_| data.len() > SMALL_BODY_BYTES);
                let held = counted.map(|unsent| unsent.connection.take(data.len() as u64));
                if let (Some(unsent), Some(None)) = (counted, &held) {
                    unsent.unread.inc();
                    return http2.borrow_mut().send_reset(stream, Reason::Cancel);
                }
                while !data.is_empty() {
                    let capacity = poll_fn(|cx| http2.borrow_mut().poll_capacity(stream, cx)).await;
                    let Some(capacity) = capacity else {
                        return;
                    };
                    let part = data.split_to(capacity.min(data.len()));
                    http2.borrow_mut().send_data(stream, &part, false);
                }
            }
            Some(Ok(Err(frame))) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return http2.borrow_mut().send_trailers(stream, fields(&trailers));
                }
            }
        }
    }
}

// === impl RequestBodies ===

impl RequestBodies {
    /// Registers a request whose body starts with `body`.
    pub(crate) fn open(
        &self,
        stream: u32,
        request: Request<()>,
        body: &[u8],
        end_stream: bool,
    ) -> Forwarded {
        let (sender, parts) = mpsc::unbounded_channel();
        self.0.borrow_mut().insert(stream, sender);
        self.data(stream, body, end_stream);
        Forwarded {
            stream,
            request,
            parts,
            bodies: self.clone(),
        }
    }

    /// Sends a part of a body to its reader.
    pub(crate) fn data(&self, stream: u32, bytes: &[u8], end_stream: bool) {
        if !bytes.is_empty() {
            self.send(stream, Part::Data(Bytes::copy_from_slice(bytes)));
        }
        if end_stream {
            self.send(stream, Part::End);
            self.close(stream);
        }
    }

    /// Sends trailers to the reader of a body. They end it.
    pub(crate) fn trailers(&self, stream: u32, trailers: HeaderMap) {
        self.send(stream, Part::Trailers(Box::new(trailers)));
        self.close(stream);
    }

    /// Closes a body. Reading one that has not ended fails.
    pub(crate) fn close(&self, stream: u32) {
        self.0.borrow_mut().remove(&stream);
    }

    fn send(&self, stream: u32, part: Part) {
        if let Some(parts) = self.0.borrow().get(&stream) {
            // The handler may have dropped the body.
            let _ = parts.send(part);
        }
    }
}

// === impl ResetOnDrop ===

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        self.bodies.close(self.stream);
        if let Ok(mut http2) = self.http2.try_borrow_mut() {
            http2.send_reset(self.stream, Reason::Internal);
        }
    }
}

// === impl RequestBody ===

impl Body for RequestBody {
    type Data = Bytes;
    type Error = ClientGone;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientGone>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.parts.poll_recv(cx).map(|part| {
            self.ended = !matches!(part, Some(Part::Data(_)));
            match part {
                None => Some(Err(ClientGone)),
                Some(Part::Data(data)) => {
                    // The receiver is gone once the connection has ended.
                    let _ = self.consumed.send(data.len());
                    Some(Ok(Frame::data(data)))
                }
                Some(Part::Trailers(trailers)) => Some(Ok(Frame::trailers(*trailers))),
                Some(Part::End) => None,
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
