//! State of one connection, and how it begins and ends.
//!
//! | file | content |
//! | --- | --- |
//! | `receive` | frames from the client, and what control frames do |
//! | `header_frames` | header blocks: requests and trailers begin here |
//! | `data` | request bodies and the windows that they use |
//! | `send` | responses, as far as windows allow, and control frames |
//! | `shutdown` | GOAWAY, keepalive pings, the end |
//! | `stalled` | streams that make no progress |
//! | `stream` | state of one stream |
//! | `stream_map` | the open streams by identifier |

mod data;
#[cfg(any(test, feature = "fuzz-harness"))]
pub mod fuzz_harness;
mod header_frames;
mod receive;
mod send;
mod shutdown;
mod stalled;
mod stream;
mod stream_map;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

pub use self::stalled::Stalled;
use self::stream::Stream;
use self::stream_map::StreamMap;
use self::windows::{DEFAULT_WINDOW_BYTES, WINDOW_BYTES, WINDOW_RETURNED_BYTES_MIN};
use crate::body_budget::BodyAccount;
use crate::flood_limits::FloodLimits;
use crate::frame;
use crate::head::HeadReader;
use crate::hpack::Encoder;
use crate::{BufferPool, ByteBudget, Config};

/// How many bytes of output may wait before nothing more is read.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// How many bytes of responses may wait for a client in all, in output and in streams. A response
/// beyond that is dropped.
const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many streams that were reset here are remembered, so that frames which their client had
/// already sent draw no second RST_STREAM.
const RESET_STREAMS_REMEMBERED_MAX: usize = 1_024;

/// A server's side of one HTTP/2 connection.
///
/// It reads no socket: see the [crate's documentation](crate) for what an embedding program does.
/// It does not pass between threads, and one thread's connections share a [`BufferPool`].
pub struct ServerConnection {
    config: Config,
    streams: StreamMap<Stream>,
    /// The newest stream that the client has opened.
    last_stream: u32,
    // Input.
    head_reader: HeadReader,
    handshake: Handshake,
    /// A header block whose end has not arrived.
    header_block: Option<HeaderBlock>,
    /// Frames read since a request was complete or others had a chance to run.
    frames_read: usize,
    receive_window: u32,
    /// How much of that window was used and is not yet returned.
    receive_window_owed: u32,
    /// What the incomplete bodies of this connection hold of the budget.
    bodies: BodyAccount,
    /// Streams whose incomplete bodies need more of the budget; settled at the end of a turn.
    unsettled: Vec<u32>,
    /// Streams that were reset here, the newest last.
    reset_streams: VecDeque<u32>,
    flood_limits: FloodLimits,
    // Output.
    encoder: Encoder,
    output: Vec<u8>,
    /// How much of the output the socket has taken.
    output_sent: usize,
    /// How many bytes of responses wait in streams for a window.
    waiting_bytes: usize,
    counts: LimitCounts,
    buffers: Rc<BufferPool>,
    send_window: i64,
    /// The same when the client last widened it.
    send_window_granted: i64,
    /// Send window of a new stream.
    initial_send_window: i64,
    /// The client's SETTINGS_MAX_FRAME_SIZE.
    send_payload_bytes_max: usize,
    // The end.
    goaway: Goaway,
    aborted: bool,
    client_leaves: bool,
    keepalive_acknowledged: bool,
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

/// Progress of a graceful shutdown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Goaway {
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

/// A header block whose end has not arrived.
struct HeaderBlock {
    stream: u32,
    end_stream: bool,
    /// What has arrived; empty while it is skipped.
    bytes: Vec<u8>,
    /// It is too long to be kept: it is read for the changes of the dynamic table alone.
    skipped: bool,
    received_bytes: usize,
    frames: usize,
}

// === impl ServerConnection ===

impl ServerConnection {
    /// A new connection. Its SETTINGS are ready in [`ServerConnection::output`].
    #[must_use]
    pub fn new(config: Config, buffers: Rc<BufferPool>, bodies: Arc<ByteBudget>) -> Self {
        let mut connection = Self {
            config,
            streams: StreamMap::default(),
            last_stream: 0,
            head_reader: HeadReader::new(&config),
            handshake: Handshake::AwaitsPreface,
            header_block: None,
            frames_read: 0,
            receive_window: WINDOW_BYTES,
            receive_window_owed: 0,
            bodies: BodyAccount::new(bodies),
            unsettled: Vec::new(),
            reset_streams: VecDeque::new(),
            flood_limits: FloodLimits::new(
                config.resets_per_second_max,
                config.control_frames_per_second_max,
            ),
            encoder: Encoder::default(),
            output: Vec::new(),
            output_sent: 0,
            waiting_bytes: 0,
            counts: LimitCounts::default(),
            buffers,
            send_window: i64::from(DEFAULT_WINDOW_BYTES),
            send_window_granted: i64::from(DEFAULT_WINDOW_BYTES),
            initial_send_window: i64::from(DEFAULT_WINDOW_BYTES),
            send_payload_bytes_max: frame::PAYLOAD_BYTES_MAX,
            goaway: Goaway::NotSent,
            aborted: false,
            client_leaves: false,
            keepalive_acknowledged: true,
            driver: Driver::default(),
        };
        connection.write_settings();
        connection
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
            .field("goaway", &self.goaway)
            .field("last_stream", &self.last_stream)
            .field("open_streams", &self.streams.open())
            .field("output_bytes", &self.output().len())
            .finish_non_exhaustive()
    }
}
