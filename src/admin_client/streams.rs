//! Responses that are streams: of bytes, and of the server-sent events `history`, `state`,
//! `decision` and `skipped`.
//!
//! The parser of events follows the HTML standard as far as the service uses it: lines that end
//! with LF or CRLF, the fields `event` and `data`, comments, and an empty line at the end of each
//! event. Events with another name are ignored, so that a newer service can add some.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::admin_api::{DecisionRecord, HistoryEvent, SkippedEvent, StateEvent};
use crate::admin_client::AdminError;
use crate::grpc_client::error_chain;

/// Longest event, in bytes.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event of the service.
#[derive(Clone, Debug)]
pub enum Event {
    /// The last minute of the replica, before its first state.
    History(HistoryEvent),
    /// The state of the replica.
    State(Box<StateEvent>),
    /// A decision.
    Decision(Box<DecisionRecord>),
    /// How many decisions were not sent.
    Skipped(SkippedEvent),
}

/// The bytes of one response.
#[derive(Debug)]
pub struct ByteStream(pub(crate) Incoming);

/// The events of one response.
#[derive(Debug)]
pub struct EventStream {
    body: ByteStream,
    parser: EventParser,
}

/// Splits bytes into events.
#[derive(Debug, Default)]
struct EventParser {
    /// The line that has not ended yet.
    line: Vec<u8>,
    name: String,
    data: String,
    complete: VecDeque<(String, String)>,
}

// === impl ByteStream ===

impl ByteStream {
    /// The next bytes; none when the service has ended the response. Cancellation loses none.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, AdminError> {
        while let Some(frame) = self.0.frame().await {
            let frame = frame.map_err(|error| AdminError::ended(error_chain(&error)))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

// === impl EventStream ===

impl EventStream {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body: ByteStream(body),
            parser: EventParser::default(),
        }
    }

    /// The next event; an error when the stream ends, an event is invalid, or the stream is silent
    /// for longer than `silence_max`. Cancellation loses no event.
    pub(crate) async fn next(&mut self, silence_max: Duration) -> Result<Event, AdminError> {
        loop {
            while let Some((name, data)) = self.parser.complete.pop_front() {
                if let Some(event) = Event::parse(&name, &data)? {
                    return Ok(event);
                }
            }
            let bytes = tokio::time::timeout(silence_max, self.body.next()).await;
            let bytes = bytes.map_err(|_| AdminError::deadline("event", silence_max))??;
            let closed = || AdminError::ended("the service closed it");
            self.parser.push(&bytes.ok_or_else(closed)?)?;
        }
    }
}

// === impl EventParser ===

impl EventParser {
    fn push(&mut self, bytes: &[u8]) -> Result<(), AdminError> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                self.take_line(&String::from_utf8_lossy(line));
            } else {
                self.line.push(*byte);
            }
            if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
                return Err(AdminError::too_long(EVENT_BYTES_MAX));
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = std::mem::take(&mut self.data);
            if !data.is_empty() {
                self.complete.push_back((name, data));
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment has an empty field name. `id` and `retry` are for browsers.
            _ => {}
        }
    }
}

// === impl Event ===

impl Event {
    /// The event with this name; none if the name is unknown.
    fn parse(name: &str, data: &str) -> Result<Option<Self>, AdminError> {
        fn read<T: DeserializeOwned>(data: &str) -> Result<T, AdminError> {
            serde_json::from_str(data).map_err(AdminError::response)
        }
        Ok(match name {
            "history" => Some(Self::History(read(data)?)),
            "state" => Some(Self::State(Box::new(read(data)?))),
            "decision" => Some(Self::Decision(Box::new(read(data)?))),
            "skipped" => Some(Self::Skipped(read(data)?)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&str]) -> Vec<(String, String)> {
        let mut parser = EventParser::default();
        for chunk in chunks {
            parser.push(chunk.as_bytes()).unwrap();
        }
        parser.complete.into()
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn events_are_found_however_they_are_cut() {
        let text = ": hello\n\nevent: skipped\ndata: {\"skipped\":\ndata: 3}\n\nid: 7\r\nevent:state\r\ndata:x\r\n\r\nevent: cut\ndata: y\n";
        let expected = [pair("skipped", "{\"skipped\":\n3}"), pair("state", "x")];
        assert_eq!(events(&[text]), expected);
        for at in 1..text.len() {
            let (before, after) = text.split_at(at);
            assert_eq!(events(&[before, after]), expected, "cut at {at}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = EventParser::default();
        let long = vec![b'x'; EVENT_BYTES_MAX];
        assert!(parser.push(&long).is_ok());
        let error = parser.push(b"xx").unwrap_err().to_string();
        assert!(error.contains("longer than 16777216 bytes"), "{error}");
    }

    #[test]
    fn unknown_events_are_ignored_and_bad_data_is_an_error() {
        assert!(Event::parse("novelty", "x").unwrap().is_none());
        let event = Event::parse("skipped", "{\"skipped\":3}").unwrap();
        assert!(matches!(event, Some(Event::Skipped(it)) if it.skipped == 3));
        assert!(Event::parse("state", "{}").is_err());
    }
}
