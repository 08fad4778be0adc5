//! Reads a recording, and puts its events in their order.
//!
//! The worker threads of a service write one after the other, so the items of a file are only
//! nearly in order. A watermark says that nothing earlier follows: until then events are held. So
//! the memory is that of the events between two watermarks, and at most [`EVENTS_HELD_MAX`] events.
//! Events after the last watermark are dropped and counted: others of their time may be missing.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufReader, ErrorKind, Read};
use std::sync::Arc;

use prost::Message as _;

use super::{EVENTS_HELD_MAX, Events, ITEM_BYTES_MAX, ReadError, VERSION};
use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate_wire::proto::tollgate::recording::v1::{
    Header, Item, Refund, Request, Reset, Rules, Skipped,
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
    buffer: Vec<u8>,
    is_done: bool,
}

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
            let Some(bytes) = self.read_length()? else {
                return Ok(None);
            };
            self.item = self.item.saturating_add(1);
            let item = self.item;
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            if length > ITEM_BYTES_MAX {
                return Err(ReadError::TooLong { item, bytes });
            }
            self.buffer.resize(length, 0);
            if let Err(error) = self.items.read_exact(&mut self.buffer) {
                return cut_off(error).map(|()| None);
            }
            let message = Item::decode(&*self.buffer).map_err(|error| ReadError::Damaged {
                item,
                why: error.to_string(),
            })?;
            // A later version may have other items.
            if let Some(kind) = message.item {
                return Ok(Some(kind));
            }
        }
    }

    /// The length of the next item, a varint; none at the end.
    fn read_length(&mut self) -> Result<Option<u64>, ReadError> {
        let mut length = 0_u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            if let Err(error) = self.items.read_exact(&mut byte) {
                return cut_off(error).map(|()| None);
            }
            let [byte] = byte;
            length |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(Some(length));
            }
        }
        Err(ReadError::Damaged {
            item: self.item.saturating_add(1),
            why: "its length is no number".to_owned(),
        })
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

/// Adds counts of what was not recorded.
pub(super) fn add_skipped(sum: &mut Skipped, more: &Skipped) {
    for (sum, more) in [
        (&mut sum.rate, more.rate),
        (&mut sum.slow_reader, more.slow_reader),
        (&mut sum.without_entry, more.without_entry),
        (&mut sum.too_long, more.too_long),
        (&mut sum.caller_left, more.caller_left),
    ] {
        *sum = sum.saturating_add(more);
    }
}

/// Nothing when the file ends here; else why it cannot be read.
fn cut_off(error: io::Error) -> Result<(), ReadError> {
    match error.kind() {
        ErrorKind::UnexpectedEof => Ok(()),
        _ => Err(ReadError::File(error)),
    }
}
