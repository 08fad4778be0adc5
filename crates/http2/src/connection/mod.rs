//! State of one connection, and how it begins and ends.
//!
//! | file | content |
//! | --- | --- |
//! | `receive` | frames from the client, and what control frames do |
//! | `header_frames` | header blocks: requests and trailers begin here |
//! | `data` | request bodies and the windows that they use |
//! | `send` | responses, as far as windows allow |
//! | `shutdown` | GOAWAY, keepalive pings, stalled streams, the end |
//! | `flow` | the connection's windows |
//! | `outbox` | output, as frames are written into it |
//! | `stream` | state of one stream |
//! | `stream_map` | the open streams by identifier |

mod data;
mod flow;
#[cfg(any(test, feature = "fuzz-harness"))]
pub mod fuzz_harness;
mod header_frames;
mod outbox;
mod receive;
mod send;
mod shutdown;
mod stream;
mod stream_map;
#[cfg(test)]
mod tests;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use self::flow::Flow;
pub use self::outbox::BufferPool;
use self::outbox::Outbox;
pub use self::shutdown::Stalled;
use self::stream::Stream;
use self::stream_map::StreamMap;
use crate::body_budget::BodyAccount;
use crate::flood_limits::FloodLimits;
use crate::head::HeaderDecoder;
use crate::{ByteBudget, Config};

/// How many bytes of responses may wait for a client in all, in output and in streams. A response
/// beyond that is dropped.
const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A server's side of one HTTP/2 connection.
///
/// It reads no socket: see the [crate's documentation](crate) for what an embedding program does.
/// It does not pass between threads, and one thread's connections share a [`BufferPool`].
pub struct ServerConnection {
    config: Config,
    handshake: Handshake,
    streams: StreamMap<Stream>,
    /// The newest stream that the client has opened.
    last_stream: u32,
    headers: HeaderDecoder,
    flow: Flow,
    /// What the incomplete bodies of this connection hold of the budget.
    bodies: BodyAccount,
    flood_limits: FloodLimits,
    /// Frames read since a request was complete or others had a chance to run.
    frames_read: usize,
    outbox: Outbox,
    /// How many bytes of responses wait in streams for a window.
    waiting_bytes: usize,
    counts: LimitCounts,
    ending: Ending,
    driver: Driver,
}

/// The task that drives the connection.
#[derive(Default)]
struct Driver {
    waker: Option<Waker>,
    /// It was woken and has not run since, or it runs.
    awake: bool,
}

/// Progress of the connection preface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Handshake {
    AwaitsPreface,
    AwaitsSettings,
    Complete,
}

/// How far a connection is on its way to its end.
#[derive(Default)]
struct Ending {
    goaway: Goaway,
    aborted: bool,
    client_leaves: bool,
    /// A keepalive ping was sent that the client has not acknowledged.
    awaits_keepalive: bool,
}

/// Progress of a graceful shutdown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Goaway {
    #[default]
    NotSent,
    /// GOAWAY was sent; streams that the client opened before it read that are served.
    Sent,
    /// Streams later than this are ignored.
    Final(u32),
}

/// How often limits were exceeded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LimitCounts {
    /// Responses dropped because too many bytes wait for the client.
    pub responses_dropped: u64,
    /// Requests refused because their header lists were too long.
    pub header_lists_refused: u64,
}

// === impl ServerConnection ===

impl ServerConnection {
    /// A new connection. Its SETTINGS are ready in [`ServerConnection::output`].
    #[must_use]
    pub fn new(config: Config, buffers: Rc<BufferPool>, bodies: Arc<ByteBudget>) -> Self {
        let (resets_max, control_frames_max) = (
            config.resets_per_second_max,
            config.control_frames_per_second_max,
        );
        Self {
            config,
            handshake: Handshake::AwaitsPreface,
            streams: StreamMap::default(),
            last_stream: 0,
            headers: HeaderDecoder::new(&config),
            flow: Flow::new(),
            bodies: BodyAccount::new(bodies),
            flood_limits: FloodLimits::new(resets_max, control_frames_max),
            frames_read: 0,
            outbox: Outbox::new(&config, buffers),
            waiting_bytes: 0,
            counts: LimitCounts::default(),
            ending: Ending::default(),
            driver: Driver::default(),
        }
    }

    /// Begins a turn of the task that drives the connection: until the turn ends it is not woken.
    pub fn begin_turn(&mut self, waker: &Waker) {
        let driver = &mut self.driver;
        driver.awake = true;
        let known = driver.waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(waker)) {
            driver.waker = Some(waker.clone());
        }
    }

    /// Ends the turn: from now on new output wakes the task, once.
    pub fn end_turn(&mut self) {
        self.driver.awake = false;
    }

    /// Whether the client's preface and SETTINGS have arrived.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.handshake == Handshake::Complete
    }

    /// Whether a stream has ended: nothing that is sent on it has an effect.
    #[must_use]
    #[inline]
    pub fn is_closed(&self, stream: u32) -> bool {
        !self.streams.is_open(stream)
    }

    /// Returns how often limits were exceeded since this was last called.
    pub fn take_limit_counts(&mut self) -> LimitCounts {
        std::mem::take(&mut self.counts)
    }

    /// Wakes the task that drives the connection, unless it runs or was woken.
    #[inline]
    fn wake(&mut self) {
        if !self.driver.awake
            && let Some(waker) = &self.driver.waker
        {
            self.driver.awake = true;
            waker.wake_by_ref();
        }
    }
}

impl fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnection")
            .field("handshake", &self.handshake)
            .field("goaway", &self.ending.goaway)
            .field("last_stream", &self.last_stream)
            .field("open_streams", &self.streams.open())
            .field("output_bytes", &self.output().len())
            .finish_non_exhaustive()
    }
}
