//! Bodies that are sent piece by piece, so that a client that does not read holds little memory and
//! is given up after a while.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::http::Client;

/// How long a client may take to read the next piece.
const READ_WAIT_MAX: Duration = Duration::from_secs(30);

/// Size of a piece of a long body.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Sends the pieces of one body.
pub(super) struct BodySender {
    pieces: mpsc::Sender<Result<Bytes, Infallible>>,
    client: Client,
}

// === impl BodySender ===

impl BodySender {
    /// A body, and the sender of its pieces. The body ends when the sender is dropped.
    pub(super) fn pair(client: Client) -> (Self, Body) {
        // One piece waits here; the connection has its own buffer.
        let (pieces, receiver) = mpsc::channel(1);
        let body = Body::from_stream(ReceiverStream::new(receiver));
        (Self { pieces, client }, body)
    }

    /// Sends a piece. False if the client has gone or does not read.
    pub(super) async fn send(&self, piece: Bytes) -> bool {
        if let Ok(sent) = timeout(READ_WAIT_MAX, self.pieces.send(Ok(piece))).await {
            return sent.is_ok();
        }
        self.client.close();
        false
    }

    /// Waits until the client has gone.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

/// The same body in pieces; the permit is free when the last piece is sent.
pub(super) fn in_pieces(mut body: Bytes, client: Client, permit: impl Send + 'static) -> Body {
    if body.len() <= PIECE_BYTES {
        return body.into();
    }
    let (sender, streamed) = BodySender::pair(client);
    tokio::spawn(async move {
        while !body.is_empty() {
            // A copy: a piece of the same memory would keep all of it until it is sent.
            let piece = Bytes::copy_from_slice(&body.split_to(body.len().min(PIECE_BYTES)));
            if !sender.send(piece).await {
                break;
            }
        }
        drop(permit);
    });
    streamed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn the_last_piece_keeps_no_other_in_memory() {
        let whole: Arc<[u8]> = vec![1; 3 * PIECE_BYTES].into();
        let (memory, permit) = (Arc::downgrade(&whole), Arc::new(()));
        let held = Arc::downgrade(&permit);
        let mut body = in_pieces(Bytes::from_owner(whole), Client::default(), permit);
        let mut last = Bytes::new();
        while let Some(piece) = body.frame().await {
            last = piece.unwrap().into_data().unwrap();
        }
        assert_eq!(last.len(), PIECE_BYTES);
        assert!(held.upgrade().is_none(), "the permit is free");
        assert!(memory.upgrade().is_none());
    }
}
