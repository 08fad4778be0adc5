//! The streams that a connection has had taken up, each polled in the connection's own task.
//!
//! Why: hyper would spawn each as a task of the runtime, where they stand in one line with other connections' calls: who opens
//! streams in crowds has everybody wait. Here a connection has its turn like any other, whatever it has opened. How:
//! [`Taken`] is hyper's executor, and keeps what it is given; the connection's task polls it. And since each stream is ours,
//! it can be given up ([`Stage`]): when its message does not come, or nobody makes room for its answer.
//!
//! What it deliberately does not do: look at messages. A request for reflection, which goes on as long as its client likes,
//! and an answer that is not written yet have no time.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream as _};
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::service::Service;
use tokio::time::{Sleep, sleep};
use tonic::body::Body as TonicBody;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use crate::grpc::connections::LATE_PER_TURN_MAX;
use crate::grpc::streaming::{ConnectionCalls, is_streaming};
use crate::metrics::Metrics;

/// Whose requests go on as long as the client likes.
const REFLECTION: &str = "/grpc.reflection.";

/// How many streams end in one turn before other connections have theirs.
const ENDS_PER_TURN_MAX: usize = 16;

/// How far a call has come. What changes is when its time begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Its message is to come.
    Arriving,
    /// It is for us to go on, or for nobody.
    Ours,
    /// So many pieces of its answer were made; the newest waits for room.
    Leaving(u32),
}

/// The same, for those who share it.
#[derive(Debug)]
struct Progress(AtomicU32);

/// What the parts of one connection share. One task has them all, so nobody ever waits for a lock.
#[derive(Default)]
struct Shared {
    /// The call that is being taken up, of which hyper makes a stream at once.
    call: Mutex<Option<Arc<Progress>>>,
    /// Streams that nobody has polled.
    fresh: Mutex<Vec<Stream>>,
}

/// Keeps hyper's streams instead of spawning them.
#[derive(Clone)]
pub(crate) struct Taken {
    shared: Arc<Shared>,
    wait: Option<Duration>,
    metrics: Arc<Metrics>,
}

/// The calls of a connection, for hyper.
pub(crate) struct Calls {
    routes: Routes,
    streaming: ConnectionCalls,
    shared: Arc<Shared>,
}

/// The streams that are open.
#[derive(Default)]
pub(crate) struct Streams {
    polled: FuturesUnordered<Stream>,
}

/// A stream that hyper made of a call.
struct Stream {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    progress: Option<Arc<Progress>>,
    wait: Option<Duration>,
    /// The stage that time runs for, and when it is over.
    timed: Option<(Stage, Pin<Box<Sleep>>)>,
    metrics: Arc<Metrics>,
}

/// How a stream came to its end.
struct Ended {
    is_late: bool,
}

/// A request's body, which tells when it is whole.
struct Arriving {
    body: Incoming,
    progress: Arc<Progress>,
}

/// An answer's body, which tells when a piece of it was made.
pub(crate) struct Leaving {
    body: TonicBody,
    progress: Arc<Progress>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of what hyper is given.
pub(crate) fn taking(
    routes: Routes,
    streaming: ConnectionCalls,
    wait: Option<Duration>,
    metrics: Arc<Metrics>,
) -> (Calls, Taken) {
    let shared = Arc::<Shared>::default();
    let calls = Calls {
        routes,
        streaming,
        shared: Arc::clone(&shared),
    };
    let taken = Taken {
        shared,
        wait,
        metrics,
    };
    (calls, taken)
}

// === impl Progress ===

impl Progress {
    const ARRIVING: u32 = 0;
    const OURS: u32 = 1;

    fn stage(&self) -> Stage {
        match self.0.load(Ordering::Relaxed) {
            Self::ARRIVING => Stage::Arriving,
            piece if piece % 2 == Self::OURS => Stage::Ours,
            piece => Stage::Leaving(piece),
        }
    }

    /// It is for us to go on.
    fn is_ours(&self) {
        self.0.fetch_or(Self::OURS, Ordering::Relaxed);
    }

    /// A piece of the answer was made.
    fn leaves(&self) {
        // Odd is ours; the next even number is another piece's.
        let stage = self.0.load(Ordering::Relaxed) | Self::OURS;
        self.0
            .store(stage.wrapping_add(1).max(2), Ordering::Relaxed);
    }
}

// === impl Calls ===

type Answering = Pin<Box<dyn Future<Output = Result<Response<Leaving>, Infallible>> + Send>>;

impl Service<Request<Incoming>> for Calls {
    type Response = Response<Leaving>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let progress = Arc::new(Progress(AtomicU32::new(Progress::ARRIVING)));
        if request.body().is_end_stream() || request.uri().path().starts_with(REFLECTION) {
            progress.is_ours();
        }
        *held(&self.shared.call) = Some(Arc::clone(&progress));
        let arriving = Arc::clone(&progress);
        let mut request = request.map(|body| {
            TonicBody::new(Arriving {
                body,
                progress: arriving,
            })
        });
        if is_streaming(request.uri().path()) {
            self.streaming.put_into(&mut request);
        }
        // Its routes are always ready.
        let answering = self.routes.clone().call(request);
        Box::pin(async move {
            let response = answering.await?;
            progress.is_ours();
            Ok(response.map(|body| Leaving { body, progress }))
        })
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let over = matches!(frame, Poll::Ready(None | Some(Err(_))));
        if over || self.body.is_end_stream() {
            self.progress.is_ours();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for Leaving {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(_)) => self.progress.leaves(),
            Poll::Ready(None) | Poll::Pending => self.progress.is_ours(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Taken ===

impl<F> Executor<F> for Taken
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let stream = Stream {
            future: Box::pin(future),
            progress: held(&self.shared.call).take(),
            wait: self.wait,
            timed: None,
            metrics: Arc::clone(&self.metrics),
        };
        held(&self.shared.fresh).push(stream);
    }
}

impl Taken {
    /// Polls what is open and can go on, until there is no such stream or others have waited long enough. How many have ended.
    pub(crate) fn poll(&self, open: &mut Streams, cx: &mut Context<'_>) -> usize {
        open.polled.extend(held(&self.shared.fresh).drain(..));
        let (mut ended, mut late) = (0_usize, 0_usize);
        while ended < ENDS_PER_TURN_MAX && late < LATE_PER_TURN_MAX {
            match Pin::new(&mut open.polled).poll_next(cx) {
                Poll::Ready(Some(Ended { is_late })) => {
                    ended = ended.saturating_add(1);
                    late = late.saturating_add(usize::from(is_late));
                }
                Poll::Ready(None) | Poll::Pending => return ended,
            }
        }
        ended
    }
}

// === impl Stream ===

impl Stream {
    /// Whether it has taken its client too long.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(wait), Some(progress)) = (self.wait, &self.progress) else {
            return false;
        };
        let stage = progress.stage();
        if stage == Stage::Ours {
            self.timed = None;
            return false;
        }
        let timed = self.timed.take_if(|(timed, _)| *timed == stage);
        let (_, over) = self
            .timed
            .insert(timed.unwrap_or_else(|| (stage, Box::pin(sleep(wait)))));
        if over.as_mut().poll(cx).is_pending() {
            return false;
        }
        match stage {
            Stage::Arriving => self.metrics.connections.calls_late.inc(),
            Stage::Leaving(_) | Stage::Ours => self.metrics.connections.answers_unread.inc(),
        }
        true
    }
}

impl Future for Stream {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let stream = self.get_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| stream.future.as_mut().poll(cx)));
        let is_late = match polled {
            Ok(Poll::Ready(())) => false,
            // Dropping it resets it.
            Ok(Poll::Pending) if stream.is_late(cx) => true,
            Ok(Poll::Pending) => return Poll::Pending,
            Err(_) => {
                tracing::error!("this is a defect in tollgate: a call's answer was lost");
                false
            }
        };
        Poll::Ready(Ended { is_late })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_of_an_answer_has_its_own_time() {
        let progress = Progress(AtomicU32::new(Progress::ARRIVING));
        assert_eq!(progress.stage(), Stage::Arriving);
        progress.is_ours();
        assert_eq!(progress.stage(), Stage::Ours);
        let mut stages = Vec::new();
        for _ in 0..3 {
            progress.leaves();
            stages.push(progress.stage());
        }
        assert!(
            stages
                .iter()
                .all(|stage| matches!(stage, Stage::Leaving(_)))
        );
        assert!(
            stages.windows(2).all(|pair| pair[0] != pair[1]),
            "{stages:?}"
        );
        progress.is_ours();
        assert_eq!(progress.stage(), Stage::Ours);
        progress.leaves();
        assert!(!stages.contains(&progress.stage()));
        // However long it goes on it never looks like a call that is to come.
        let long = Progress(AtomicU32::new(u32::MAX - 1));
        long.leaves();
        assert_eq!(long.stage(), Stage::Leaving(2));
    }
}
