//! Sends calls that the fast path does not support to tonic's routes.
//!
//! How: a task a request. What was read of the body already goes in front of what is still to come; the response's frames
//! go out as the client has room for them; a client that resets its stream ends the task.
//!
//! What it deliberately does not do: look at what goes by.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tonic::body::Body as TonicBody;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::http2::{Handed, Http2, Part, Reason};

/// The body of a request: what comes of it.
struct Incoming {
    parts: mpsc::UnboundedReceiver<Part>,
    /// Told how many bytes were taken. What comes is bounded by what the client may send, and so is this.
    eaten: mpsc::UnboundedSender<usize>,
    over: bool,
}

/// Resets a stream that was left without an end: by a panic, which is a defect and costs nobody else.
struct Ends {
    http2: Rc<RefCell<Http2>>,
    stream: u32,
}

/// The client has reset the stream, or its connection has ended.
#[derive(Debug, thiserror::Error)]
#[error("the client has gone")]
struct Gone;

/// Has `routes` answer a request.
pub(super) async fn forward(mut routes: Routes, handed: Handed, http2: Rc<RefCell<Http2>>) {
    let Handed {
        stream,
        request,
        parts,
    } = handed;
    let _ends = Ends {
        http2: Rc::clone(&http2),
        stream,
    };
    let (sender, mut eaten) = mpsc::unbounded_channel();
    let request = request.map(|()| {
        TonicBody::new(Incoming {
            parts,
            eaten: sender,
            over: false,
        })
    });
    let making_room = async {
        while let Some(bytes) = eaten.recv().await {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            http2.borrow_mut().eaten(stream, bytes);
        }
        // The body is gone; the answer may go on.
        std::future::pending::<()>().await;
    };
    let answering = async {
        let response = match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = response.into_parts();
        if body.is_end_stream() {
            let mut http2 = http2.borrow_mut();
            http2.refuse(stream, parts.status, &parts.headers);
        } else {
            http2
                .borrow_mut()
                .begin(stream, parts.status, &parts.headers);
            send(body, stream, &http2).await;
        }
    };
    tokio::select! {
        () = answering => {}
        () = making_room => {}
        () = poll_fn(|cx| http2.borrow_mut().poll_gone(stream, cx)) => {}
    }
}

/// Sends a body, as far as somebody reads it.
async fn send(mut body: TonicBody, stream: u32, http2: &RefCell<Http2>) {
    loop {
        match body.frame().await.map(|frame| frame.map(Frame::into_data)) {
            None => return http2.borrow_mut().end_answer(stream, None),
            Some(Err(_)) => return http2.borrow_mut().reset(stream, Reason::Internal),
            Some(Ok(Ok(mut data))) => {
                while !data.is_empty() {
                    let room = poll_fn(|cx| http2.borrow_mut().poll_room(stream, cx)).await;
                    let Some(room) = room else {
                        return;
                    };
                    let part = data.split_to(room.min(data.len()));
                    http2.borrow_mut().data_out(stream, &part);
                }
            }
            Some(Ok(Err(frame))) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return http2.borrow_mut().end_answer(stream, Some(&trailers));
                }
            }
        }
    }
}

// === impl Ends ===

impl Drop for Ends {
    fn drop(&mut self) {
        if let Ok(mut http2) = self.http2.try_borrow_mut()
            && !http2.is_gone(self.stream)
        {
            http2.reset(self.stream, Reason::Internal);
        }
    }
}

// === impl Incoming ===

impl Body for Incoming {
    type Data = Bytes;
    type Error = Gone;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Gone>>> {
        if self.over {
            return Poll::Ready(None);
        }
        self.parts.poll_recv(cx).map(|part| {
            self.over = !matches!(part, Some(Part::Data(_)));
            match part {
                None => Some(Err(Gone)),
                Some(Part::Data(data)) => {
                    // Nobody is there to be told when the connection has gone.
                    let _ = self.eaten.send(data.len());
                    Some(Ok(Frame::data(data)))
                }
                Some(Part::Trailers(trailers)) => Some(Ok(Frame::trailers(*trailers))),
                Some(Part::End) => None,
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
