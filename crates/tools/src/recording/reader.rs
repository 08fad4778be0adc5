//! Reads a recording, and puts its events in their order.
//!
//! The worker threads of a service write one after the other, so the items of a file are only
//! nearly in order. A watermark says that nothing earlier follows: until then events are held. So
//! the memory is that of the events between two watermarks, and at most [`EVENTS_HELD_MAX`] events.
//! Events after the last watermark are dropped and counted: others of their time may be missing.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufReader, ErrorKind, Read};
use std::sync::Arc;

use super::received::{add_skipped, decode_item, split_item};
use super::{EVENTS_HELD_MAX, Events, ReadError, VERSION};
use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate_wire::proto::tollgate::recording::v1::{
    Header, Refund, Request, Reset, Rules, Skipped,
};

/// What happened, with its place in the order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A request was decided.
    Request(Arc<Request>),
    /// Hits went back.
    Refund(Refund),
    /// Buckets were reset.
    Reset(Reset),
}

/// What a recording says about itself. It is complete when all events were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The generations of rules that decided, each named before its first request.
    pub generations: Vec<Rules>,
    /// What was not recorded.
    pub skipped: Skipped,
    /// Why the recording ended; none when the file is cut off.
    pub ended: Option<String>,
    /// Events that were dropped, because the recording is not complete at their time.
    pub incomplete: u64,
    /// Lines of a log that cannot be read.
    pub unread: u64,
    /// The first of them.
    pub first_unread: Vec<UnreadLine>,
}

/// A line of a log that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnreadLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// Reads the events of a recording in their order.
pub struct Reader<R: Read> {
    items: zstd::Decoder<'static, BufReader<R>>,
    header: Header,
    summary: Summary,
    /// How many items were read.
    item: u64,
    /// Events that wait for earlier ones, by their order and, for those of one order, their item.
    held: BTreeMap<(u64, u64), Event>,
    ready: VecDeque<Event>,
    /// What was read of the file, and how much of it was taken.
    buffer: Vec<u8>,
    read: usize,
    is_done: bool,
}

/// How many bytes are read at once.
const READ_BYTES: usize = 64 << 10;

// === impl Reader ===

impl<R: Read> Reader<R> {
    /// Opens a recording: reads its header.
    ///
    /// # Errors
    ///
    /// When it is no recording of this version.
    pub fn new(file: R) -> Result<Self, ReadError> {
        let mut reader = Self {
            items: zstd::Decoder::new(file)?,
            header: Header::default(),
            summary: Summary::default(),
            item: 0,
            held: BTreeMap::new(),
            ready: VecDeque::new(),
            buffer: Vec::new(),
            read: 0,
            is_done: false,
        };
        match reader.read_item() {
            Ok(Some(Kind::Header(header))) if header.version == VERSION => reader.header = header,
            Ok(Some(Kind::Header(header))) => return Err(ReadError::Version(header.version)),
            _ => return Err(ReadError::NoRecording),
        }
        Ok(reader)
    }

    fn take(&mut self, item: Kind) -> Result<(), ReadError> {
        match item {
            // Only the first is one.
            Kind::Header(_) => {}
            Kind::Rules(rules) => self.summary.generations.push(rules),
            Kind::Request(request) | Kind::Call(request) => {
                self.hold(request.order, Event::Request(Arc::new(request)))?;
            }
            Kind::Refund(refund) => self.hold(refund.order, Event::Refund(refund))?,
            Kind::Reset(reset) => self.hold(reset.order, Event::Reset(reset))?,
            Kind::Skipped(more) => add_skipped(&mut self.summary.skipped, &more),
            Kind::Watermark(watermark) => self.release(watermark.order),
            Kind::End(end) => {
                self.summary.ended = Some(end.reason);
                self.end();
            }
        }
        Ok(())
    }

    fn hold(&mut self, order: u64, event: Event) -> Result<(), ReadError> {
        let item = self.item;
        if self.held.len() >= EVENTS_HELD_MAX {
            self.is_done = true;
            return Err(ReadError::NoOrder { item });
        }
        self.held.insert((order, item), event);
        Ok(())
    }

    /// Makes the events with an order below this one ready.
    fn release(&mut self, below: u64) {
        while let Some(first) = self.held.first_entry()
            && first.key().0 < below
        {
            self.ready.push_back(first.remove());
        }
    }

    fn end(&mut self) {
        self.is_done = true;
        self.summary.incomplete = self.held.len() as u64;
        self.held.clear();
    }

    /// The next item; none at the end of the file, also where an item is cut off.
    fn read_item(&mut self) -> Result<Option<Kind>, ReadError> {
        loop {
            let left = self.buffer.get(self.read..).unwrap_or_default();
            let whole = split_item(left, self.item.saturating_add(1))?;
            let Some((item, rest)) = whole else {
                if !self.read_more()? {
                    return Ok(None);
                }
                continue;
            };
            self.read = self.buffer.len().saturating_sub(rest.len());
            self.item = self.item.saturating_add(1);
            let message = decode_item(item, self.item)?;
            // A later version may have other items.
            if let Some(kind) = message.item {
                return Ok(Some(kind));
            }
        }
    }

    /// Reads more of the file. False at its end, also where a frame is cut off.
    fn read_more(&mut self) -> Result<bool, ReadError> {
        self.buffer.drain(..self.read);
        self.read = 0;
        let before = self.buffer.len();
        self.buffer.resize(before.saturating_add(READ_BYTES), 0);
        let free = self.buffer.get_mut(before..).unwrap_or_default();
        let read = match self.items.read(free) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        self.buffer.truncate(before.saturating_add(read));
        Ok(read > 0)
    }
}

impl<R: Read> Events for Reader<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.is_done {
                return Ok(None);
            }
            let item = self.read_item().inspect_err(|_| self.is_done = true);
            match item? {
                None => self.end(),
                Some(item) => self.take(item)?,
            }
        }
    }
}
