//! HTTP/2 (RFC 9113) as far as a server of short calls needs it: bytes in, calls out; answers in, bytes out.
//!
//! Why our own: a check costs a fraction of a microsecond, and of what it cost to serve one over the `h2` crate two thirds
//! were the crate's: a frame, a header map and four queues for each stream. Here a call's head is most often not even
//! decoded ([`head`]), its body is read where the socket put it, and its answer is written once, into the bytes that the
//! socket is given. And each way to wear a server down has a bound and a counter of its own ([`floods`]).
//!
//! | file | what |
//! | --- | --- |
//! | `frame` | frames, byte by byte |
//! | `hpack` | headers, byte by byte |
//! | `head` | what a request's headers ask for |
//! | `streams` | the streams that are open |
//! | `floods` | what a client may do so often a second |
//! | `receive` | what comes: frames, and what they do to the connection |
//! | `calls` | the calls in them |
//! | `data` | request bodies: frames of data and the windows that they use |
//! | `bodies` | memory for request bodies that are still arriving |
//! | `passing` | the same bounds where hyper speaks HTTP/2 |
//! | `send` | what goes: answers, as much as the client has room for |
//!
//! It holds no socket and no clock and knows nobody who answers: a connection's task turns it (`connection`), and who
//! answers writes into it (`respond`, `forward`).
//!
//! What it deliberately does not do: push, priorities, trailers that anybody reads but tonic.

#[path = "../body_budget.rs"]
mod bodies;
#[path = "header_frames.rs"]
mod calls;
mod data;
#[path = "../flood_limits.rs"]
mod floods;
#[path = "../frame.rs"]
mod frame;
#[path = "../head.rs"]
mod head;
#[path = "../hpack/mod.rs"]
mod hpack;
#[path = "../passing.rs"]
mod passing;
mod receive;
mod send;
#[path = "stream_map.rs"]
mod streams;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use http::{HeaderMap, Request};
use tokio::sync::mpsc;

use self::bodies::BodyAccount;
pub(in crate::service) use self::bodies::BodyBudget;
use self::calls::block_bounds;
use self::data::GRPC_HEAD_BYTES;
use self::floods::Floods;
pub(super) use self::frame::{FRAME_BYTES_MAX, HEAD_BYTES, PREFACE, Reason};
use self::head::{Call, Heads};
use self::hpack::Encoder;
pub(in crate::service) use self::passing::Passing;
pub(super) use self::receive::Event;
use self::streams::Streams;
use super::buffers::Buffers;

/// How much a client may send ahead, on a stream and on the connection: as tonic's door has it, by hyper.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// How much a client may have sent before it is told that there is room again.
const WINDOW_OWED_BYTES_MAX: u32 = WINDOW_BYTES / 2;

/// What clients and servers begin with.
const USUAL_WINDOW_BYTES: u32 = 65_535;

/// How many bytes may wait for a client that does not read, before we read no more of it.
const OUT_BYTES_MAX: usize = 256 * 1024;

/// How many bytes of answers may wait for a client in all, in their streams or behind them. An answer beyond that is dropped.
const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many streams that were reset here are remembered, so that frames which their client had
/// already sent draw no second RST_STREAM.
const RESET_STREAMS_REMEMBERED_MAX: usize = 1_024;

/// What a ping says that goes with a goodbye, and one that asks whether anybody is there.
const GOODBYE_PING: [u8; 8] = *b"goodbye!";
const KEEPALIVE_PING: [u8; 8] = *b"hello? !";

/// What a connection may do.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names)] // each is a bound, and says so
pub(super) struct Limits {
    /// Streams open at the same time.
    pub(super) streams_max: usize,
    /// How long a list of headers may be.
    pub(super) header_list_bytes_max: usize,
    /// How long a message may be. A longer one is refused when its length is known, so it is
    /// never reserved in full.
    pub(super) message_bytes_max: u32,
    /// Streams opened and reset in a second.
    pub(super) resets_per_second_max: u32,
    /// Frames a second that bring no call on.
    pub(super) control_frames_per_second_max: u32,
    /// No bound: whether calls are looked at for what their callers say of their traces.
    pub(super) traces: bool,
}

/// What to do with a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Order {
    /// Serve.
    #[default]
    Serve,
    /// Say GOAWAY and finish what is under way.
    GoAway,
    /// Close at once.
    Close,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{why} ({reason:?})")]
pub(in crate::service) struct Broken {
    pub(super) reason: Reason,
    pub(super) why: &'static str,
}

/// One connection's state.
pub(super) struct Http2 {
    limits: Limits,
    streams: Streams<Stream>,
    /// The newest stream that the client has opened.
    newest: u32,
    // What comes.
    heads: Heads,
    greeted: Greeted,
    /// Headers whose end has not come.
    block: Option<Block>,
    receive_room: u32,
    /// How much of what was received the client was not yet told it may send again.
    receive_owed: u32,
    /// What unfinished bodies of this connection hold of the process's budget.
    bodies: BodyAccount,
    /// Streams whose unfinished bodies need more of the budget; settled at the end of a turn.
    unsettled: Vec<u32>,
    /// Streams that were reset here, the newest last.
    reset_streams: VecDeque<u32>,
    floods: Floods,
    // What goes.
    encoder: Encoder,
    out: Vec<u8>,
    /// How much of that the socket has taken.
    sent: usize,
    /// How much waits in streams for room.
    kept_bytes: usize,
    /// Bounds that were met since they were last counted.
    met: BoundsMet,
    buffers: Rc<Buffers>,
    send_room: i64,
    /// That room when the client last widened it.
    send_room_told: i64,
    /// What a new stream begins with.
    stream_send_room: i64,
    frame_bytes_max: usize,
    // How it ends.
    order: Order,
    goodbye: Goodbye,
    client_leaves: bool,
    ping_answered: bool,
    // Who is told.
    task: Option<Waker>,
    /// The task was told, and has not run since; or runs.
    awake: bool,
}

/// How much of the greeting has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Greeted {
    Nothing,
    Preface,
    Settings,
}

/// How far a goodbye has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Goodbye {
    None,
    /// The client was told; what it sent before it knew is still taken.
    Said,
    /// Later streams than this are not looked at.
    Final(u32),
}

/// A stream that is open.
struct Stream {
    stage: Stage,
    send_room: i64,
    /// The client has said all it had to say.
    received: bool,
    /// How much of its body is to come, if it said how much there is.
    body_left: Option<u64>,
    /// Set while the request's body has not arrived in full, unless it may go on for ever.
    unfinished: Option<Unfinished>,
    /// Since when it is known that its answer waits for room that the client does not give.
    unread_since_us: Option<u64>,
}

/// What was reset because its client took too long.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Late {
    /// Calls that did not come whole.
    pub(super) calls: usize,
    /// Answers for which there was no room.
    pub(super) answers: usize,
    /// There may be more of them.
    pub(super) more: bool,
}

/// A request whose body has not arrived in full.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    since_us: u64,
    received_bytes: u32,
    /// How long the body will be, by its gRPC frame or its content-length; 0 while unknown.
    declared_bytes: u32,
    /// The body's first bytes, as far as they have come.
    head: [u8; GRPC_HEAD_BYTES],
    /// How much of the budget it holds.
    held_bytes: u32,
    /// Its stream is in `Http2::unsettled`.
    unsettled: bool,
}

/// How often bounds were met.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct BoundsMet {
    /// Answers dropped because too much waits for the client.
    pub(super) answers_unread: u64,
    /// Requests refused because their header lists were too long.
    pub(super) header_lists: u64,
}

enum Stage {
    /// A call whose body is still to come, or to end, and how many bytes of padding came with it.
    Call {
        call: Call,
        body: Vec<u8>,
        padding: u32,
    },
    /// A call that somebody is about to answer.
    Asked(Call),
    /// A good answer that waits for room.
    Answered(Box<Answered>),
    /// Whatever tonic does with it.
    Forwarded(Box<Forwarded>),
}

struct Answered {
    frame: Vec<u8>,
    sent: usize,
}

/// A stream that tonic answers.
struct Forwarded {
    parts: mpsc::UnboundedSender<Part>,
    receive_room: u32,
    receive_owed: u32,
    /// What was handed on and not yet taken; its stream has no window for as much.
    uneaten: u32,
    /// How much of that the connection has no window for either.
    withheld: u32,
    /// What is to be sent has no room.
    starved: bool,
    /// Who waits for room, or for the stream's end.
    task: Option<Waker>,
}

/// What comes of a body.
pub(super) enum Part {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
    End,
}

/// A request for tonic. Its body's parts are bounded by what the client may send ahead.
pub(super) struct Handed {
    pub(super) stream: u32,
    pub(super) request: Request<()>,
    pub(super) parts: mpsc::UnboundedReceiver<Part>,
}

/// Headers whose end has not come.
struct Block {
    stream: u32,
    end_stream: bool,
    /// What has come of it; nothing while it is dropped.
    bytes: Vec<u8>,
    /// It is longer than what is kept: it is read for the compression's state alone.
    dropped: bool,
    received_bytes: usize,
    frames: usize,
}

// === impl Broken ===

impl Broken {
    /// What its reason is called in a metric.
    pub(in crate::service) fn label(&self) -> &'static str {
        self.reason.label()
    }
}

// === impl Http2 ===

impl Http2 {
    /// A new connection: what we say first is ready to be sent.
    pub(super) fn new(limits: Limits, buffers: Rc<Buffers>, bodies: Arc<BodyBudget>) -> Self {
        let mut http2 = Self {
            limits,
            streams: Streams::default(),
            newest: 0,
            heads: Heads::new(limits.header_list_bytes_max, limits.traces),
            greeted: Greeted::Nothing,
            block: None,
            receive_room: WINDOW_BYTES,
            receive_owed: 0,
            bodies: BodyAccount::new(bodies),
            unsettled: Vec::new(),
            reset_streams: VecDeque::new(),
            floods: Floods::new(
                limits.resets_per_second_max,
                limits.control_frames_per_second_max,
            ),
            encoder: Encoder::default(),
            out: Vec::new(),
            sent: 0,
            kept_bytes: 0,
            met: BoundsMet::default(),
            buffers,
            send_room: i64::from(USUAL_WINDOW_BYTES),
            send_room_told: i64::from(USUAL_WINDOW_BYTES),
            stream_send_room: i64::from(USUAL_WINDOW_BYTES),
            frame_bytes_max: FRAME_BYTES_MAX,
            order: Order::Serve,
            goodbye: Goodbye::None,
            client_leaves: false,
            ping_answered: true,
            task: None,
            awake: false,
        };
        http2.say_hello();
        http2
    }

    /// The connection's task begins a turn: until it ends, nobody need wake it.
    pub(super) fn begin_turn(&mut self, task: &Waker) {
        self.awake = true;
        if !self
            .task
            .as_ref()
            .is_some_and(|known| known.will_wake(task))
        {
            self.task = Some(task.clone());
        }
    }

    /// The turn is over: whoever has something to send from now on wakes the task.
    pub(super) fn end_turn(&mut self) {
        self.awake = false;
    }

    /// What the connection was told to do.
    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// Tells it; what was told before counts for more if it was more.
    pub(super) fn give(&mut self, order: Order) {
        if order > self.order {
            self.order = order;
            self.wake();
        }
    }

    /// Whether the client has greeted.
    pub(super) fn is_greeted(&self) -> bool {
        self.greeted == Greeted::Settings
    }

    /// The client has closed its side: requests that are still incomplete will never be complete.
    pub(super) fn client_closed(&mut self) {
        self.client_leaves = true;
        self.block = None;
        let incomplete: Vec<u32> = self
            .streams
            .each_mut()
            .filter(|(_, stream)| !stream.received)
            .map(|(id, _)| id)
            .collect();
        for id in incomplete {
            self.remove(id);
        }
    }

    /// Bounds that were met since this was last called.
    pub(super) fn take_met(&mut self) -> BoundsMet {
        std::mem::take(&mut self.met)
    }

    /// Whether all has been said on both sides.
    pub(super) fn is_over(&self) -> bool {
        let leaving = matches!(self.goodbye, Goodbye::Final(_)) || self.client_leaves;
        leaving && self.streams.open() == 0 && self.block.is_none()
    }

    /// The connection is gone: nobody waits for answers any more.
    pub(super) fn end(&mut self) {
        for (_, stream) in std::mem::take(&mut self.streams).each_mut() {
            if let Stage::Forwarded(forwarded) = &mut stream.stage {
                forwarded.wake();
            }
            if let Some(unfinished) = stream.unfinished.take() {
                self.bodies.give_back(unfinished.held_bytes);
            }
        }
        self.buffers.give_back(std::mem::take(&mut self.out));
        self.task = None;
    }

    fn wake(&mut self) {
        if !self.awake
            && let Some(task) = &self.task
        {
            self.awake = true;
            task.wake_by_ref();
        }
    }
}

// === impl Forwarded ===

impl Forwarded {
    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_harness.rs"]
pub mod withstand;
