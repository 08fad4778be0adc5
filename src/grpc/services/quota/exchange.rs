//! One stream's exchange: takes its reports, and encodes the messages to it. It runs on the thread
//! of quotas.
//!
//! Messages come before reports, so that a proxy that does not read its messages cannot fill the
//! queue with answers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::{Status, Streaming};

use super::assignments::{EncodedMessage, too_slow};
use super::codec::encode;
use super::waiting_report::{MalformedReport, WaitingReport};
use crate::quota::registry::{OutgoingMessage, QuotaRegistry, StreamEnd, StreamId, give_way};

/// The most usages of a report that are taken before others have a turn: some 200 µs.
const USAGES_PER_TURN_MAX: usize = 128;

/// One stream.
pub(super) struct Exchange {
    pub(super) registry: Arc<QuotaRegistry>,
    pub(super) stream: StreamId,
    pub(super) reports: Streaming<Bytes>,
    /// What is left of the last report.
    pub(super) rest: Option<WaitingReport>,
    pub(super) messages: mpsc::Receiver<OutgoingMessage>,
    pub(super) encoded: mpsc::Sender<EncodedMessage>,
    /// What the proxy is answered at the end, if not success.
    pub(super) last_status: Arc<OnceLock<Status>>,
}

/// How a stream ends: with an error, or with success, or with nobody left to be answered.
type Ending = Option<Status>;

fn malformed(_: MalformedReport) -> Status {
    Status::invalid_argument("a message of the stream is not a RateLimitQuotaUsageReports")
}

// === impl Exchange ===

impl Exchange {
    /// Runs until the stream ends.
    pub(super) async fn run(mut self) {
        if let Some(status) = self.exchange().await {
            let _ = self.last_status.set(status);
        }
        self.registry.close(self.stream);
    }

    async fn exchange(&mut self) -> Ending {
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => {
                    let Some(message) = message else {
                        return Some(self.closed());
                    };
                    if let Err(ending) = self.hand_over(message).await {
                        return ending;
                    }
                }
                () = self.encoded.closed() => return None,
                has_more = read(&mut self.reports, &mut self.rest, &self.registry) => {
                    if let Err(ending) = has_more {
                        return ending;
                    }
                    if let Err(status) = self.take_some() {
                        return Some(status);
                    }
                    give_way().await;
                }
            }
        }
    }

    /// Encodes a message, and waits until the connection takes the one before.
    async fn hand_over(&self, message: OutgoingMessage) -> Result<(), Ending> {
        let times = self.registry.times();
        let encoded = EncodedMessage {
            bytes: encode(&message.actions, times.ttl_seconds),
            queued_ms: message.queued_ms,
        };
        let longest = Duration::from_millis(times.delivery_ms_max);
        let Ok(sent) = timeout(longest, self.encoded.send(encoded)).await else {
            self.registry.count_slow();
            return Err(Some(too_slow()));
        };
        sent.map_err(|_| None)
    }

    /// Takes a part of the report.
    fn take_some(&mut self) -> Result<(), Status> {
        let Some(rest) = &mut self.rest else {
            return Ok(());
        };
        let usages = rest.next_usages(USAGES_PER_TURN_MAX).map_err(malformed)?;
        let taken = self.registry.report(self.stream, &rest.domain, usages);
        if rest.is_over() {
            self.rest = None;
        }
        taken.map_err(|end| match end {
            StreamEnd::Closed => self.closed(),
            StreamEnd::ChangedDomain => Status::invalid_argument(
                "a stream has one domain; open another stream for another domain",
            ),
        })
    }

    /// Why the registry has closed the stream.
    fn closed(&self) -> Status {
        if self.registry.is_stopping() {
            Status::unavailable("the service stops; open the stream again on another connection")
        } else {
            too_slow()
        }
    }
}

/// Reads the next report, unless there is more of the last one. It loses nothing when it is
/// dropped before it is ready.
async fn read(
    reports: &mut Streaming<Bytes>,
    rest: &mut Option<WaitingReport>,
    registry: &QuotaRegistry,
) -> Result<(), Ending> {
    if rest.is_some() {
        return Ok(());
    }
    match reports.next().await {
        None => Err(None),
        Some(Err(status)) => Err(Some(status)),
        Some(Ok(report)) => {
            registry.count_report();
            let report = WaitingReport::read(report);
            *rest = Some(report.map_err(|error| Some(malformed(error)))?);
            Ok(())
        }
    }
}
