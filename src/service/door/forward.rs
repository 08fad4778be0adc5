//! What the quick door does not take goes to tonic's routes, as it came.
//!
//! How: a task a request. What was read of the body already goes in front of what is still to come; the response's frames
//! go out as the client has room for them; a client that resets its stream ends the task.
//!
//! What it deliberately does not do: look at what goes by.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tonic::body::Body as TonicBody;
use tonic::codegen::Service as _;
use tonic::service::Routes;

/// The body of a request: what was read, and then what comes.
struct Incoming {
    read: Option<Bytes>,
    rest: RecvStream,
    /// Nothing but trailers is left.
    data_over: bool,
}

/// Has `routes` answer a request of which `read` was taken from its body already.
pub(super) async fn forward(
    mut routes: Routes,
    request: Request<RecvStream>,
    read: Option<Bytes>,
    mut respond: SendResponse<Bytes>,
) {
    let request = request.map(|rest| {
        TonicBody::new(Incoming {
            read,
            rest,
            data_over: false,
        })
    });
    let answering = async {
        match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    let response = tokio::select! {
        response = answering => response,
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
    };
    let (parts, body) = response.into_parts();
    let response = Response::from_parts(parts, ());
    // An error here means that the client has gone.
    let Ok(stream) = respond.send_response(response, body.is_end_stream()) else {
        return;
    };
    if !body.is_end_stream() {
        let _ = send(body, stream).await;
    }
}

/// Sends a body. None when the client has gone.
async fn send(mut body: TonicBody, mut stream: SendStream<Bytes>) -> Option<()> {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return None,
        };
        let Some(Ok(frame)) = frame else {
            // An error of the body resets the stream; its end was said by trailers, or is said now.
            if frame.is_some() {
                stream.send_reset(h2::Reason::INTERNAL_ERROR);
            } else {
                let _ = stream.send_data(Bytes::new(), true);
            }
            return None;
        };
        match frame.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    stream.reserve_capacity(data.len());
                    let room = poll_fn(|cx| stream.poll_capacity(cx)).await?.ok()?;
                    let part = data.split_to(room.min(data.len()));
                    stream.send_data(part, false).ok()?;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    stream.send_trailers(trailers).ok()?;
                    return Some(());
                }
            }
        }
    }
}

// === impl Incoming ===

impl Body for Incoming {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(read) = self.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if !self.data_over {
            match self.rest.poll_data(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(data))) => {
                    // What was read makes room for more.
                    let _ = self.rest.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.data_over = true,
            }
        }
        match self.rest.poll_trailers(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(trailers)) => Poll::Ready(trailers.map(|map| Ok(Frame::trailers(map)))),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
