//! `POST /record`: streams requests as the service decides them (`tollgate record`).
//!
//! The body of the request is empty, its content type is `application/json` like that of every
//! POST. The response is a sequence of `Item` messages of
//! `proto/tollgate/recording/v1/recording.proto`, each after its length, in chunks.
//!
//! | parameter | what | default |
//! | --- | --- | --- |
//! | `for_seconds` | how long it lasts, 1 to 86400 | 60 |
//! | `count_max` | it ends at the 50 ms in which this number of requests is reached | none |
//! | `bytes_max` | the same for bytes, not compressed | none |
//! | `requests_per_second_max` | further requests in a second are skipped | none |
//! | `sample_by`, `sample` | only 1 in `sample` values of the entry `sample_by` | all |
//! | `hash` | `true`: values are hashed, except those that rules compare | false |
//! | `hash_refuse_compared` | `true`: no recording if rules compare values | false |
//!
//! There is one recording at a time: a second request gets 409. The response begins with a header
//! and the rules in use. What follows is complete up to the last watermark. It ends with an `End`,
//! or without one if the client does not read for 30 seconds.
//!
//! What it deliberately does not do: open files.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::StatusCode;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use tokio::time::{MissedTickBehavior, Sleep, interval, sleep};

use super::AdminState;
use super::changes::Change;
use super::http::{BodySender, Client};
use super::query::{ApiFailure, Query, uncached};
use super::state::StateWatcher;
use crate::capture::{
    ComparedKeys, Recording, RecordingOptions, Sampling, Window, encode_item, hash_values,
};
use crate::metrics::Counted;
use crate::pipeline::Generation;
use crate::proto::tollgate::recording::v1 as format;
use crate::proto::tollgate::recording::v1::item::Item as Kind;
use crate::settings::RecordingValues;
use crate::value_hash::ShownValues;

/// How often what was captured is sent.
const TICK: Duration = Duration::from_millis(50);

/// Smaller pieces are joined: a write costs more than a copy.
const JOINED_BYTES_MAX: usize = 16 << 10;

/// How many generations' compared keys are kept: requests of older ones have long ended.
const GENERATIONS_MAX: usize = 8;

const SECONDS_MAX: u64 = 86_400;
const SECONDS_DEFAULT: u64 = 60;

const PARAMETERS: &[&str] = &[
    "for_seconds",
    "count_max",
    "bytes_max",
    "requests_per_second_max",
    "sample_by",
    "sample",
    "hash",
    "hash_refuse_compared",
];

/// What a recording may have, and what its header says of the service.
#[derive(Clone, Debug)]
pub struct RecordingSetup {
    /// What it may have of values.
    pub values: RecordingValues,
    /// The settings that verdicts depend on, as flags.
    pub flags: Vec<String>,
}

/// What a request asks for.
pub(super) struct RecordQuery {
    pub(super) lasts: Duration,
    pub(super) count_max: u64,
    pub(super) bytes_max: u64,
    pub(super) options: RecordingOptions,
    pub(super) is_hashed: bool,
    pub(super) refuses_compared: bool,
}

pub(super) async fn record(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let change = Change {
        name: "record",
        client: &client,
        what: "requests".to_owned(),
    };
    let outcome = start(&state, query.as_deref());
    change.record(&state, &outcome, |(asked, _)| asked.words());
    let (asked, recording) = outcome?;
    client.set_streaming();
    let (sender, body) = BodySender::pair(Arc::clone(&client));
    let stream = RecordStream {
        stopping: state.states.watch(false),
        ends: Box::pin(sleep(asked.lasts)),
        _running: Counted::new(&state.parts.engine.metrics.recordings.running),
        state,
        asked,
        recording,
        sender,
        reason: None,
        generations: Vec::new(),
        requests: 0,
        bytes: 0,
    };
    tokio::spawn(stream.run());
    Ok((StatusCode::OK, uncached("application/octet-stream"), body).into_response())
}

/// Starts a recording.
fn start(state: &AdminState, query: Option<&str>) -> Result<(RecordQuery, Recording), ApiFailure> {
    if state.parts.recordings.values == RecordingValues::Off {
        let why = "recordings are off; set --recordings plain or hashed";
        return Err(ApiFailure::new(StatusCode::FORBIDDEN, why));
    }
    let asked = RecordQuery::parse(query, state)?;
    if asked.refuses_compared
        && let Some(generation) = state.parts.engine.generations.current()
        && let Some(key) = ComparedKeys::of(&generation.rules).keys().first()
    {
        let why = format!(
            "rules compare values of {} keys, the first is {:?} of {:?}; their values would stay plain; \
             record without hash_refuse_compared",
            ComparedKeys::of(&generation.rules).keys().len(),
            key.key,
            key.domain
        );
        return Err(ApiFailure::new(StatusCode::CONFLICT, why));
    }
    let capture = state.parts.engine.decisions.capture();
    let recording = capture
        .record(asked.options.clone())
        .map_err(|error| ApiFailure::new(StatusCode::CONFLICT, error.to_string()))?;
    Ok((asked, recording))
}

/// One recording on its way to its client.
struct RecordStream {
    state: AdminState,
    asked: RecordQuery,
    recording: Recording,
    sender: BodySender,
    stopping: StateWatcher,
    ends: Pin<Box<Sleep>>,
    /// Why the recording ends, once it does.
    reason: Option<&'static str>,
    /// The compared keys of the last generations, the newest last.
    generations: Vec<(i64, ComparedKeys)>,
    requests: u64,
    bytes: u64,
    /// Dropped last.
    _running: Counted,
}

// === impl RecordStream ===

impl RecordStream {
    /// Sends until the end, or until the client has gone.
    async fn run(mut self) {
        let header = self.header();
        if !self.send(header.into()).await {
            return;
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.sender.closed() => return,
                _ = self.stopping.next(), if self.reason.is_none() => self.end("drained"),
                () = &mut self.ends, if self.reason.is_none() => self.end("time"),
                _ = ticks.tick() => {}
            }
            let rules = self.new_rules();
            let window = self.recording.window();
            let is_last = window.is_last;
            if !self.send_window(rules, window).await {
                return;
            }
            if is_last {
                let reason = self.reason.unwrap_or("stopped");
                let end = Kind::End(format::End {
                    reason: reason.to_owned(),
                    requests: self.requests,
                });
                self.send(encode_item(end).into()).await;
                return;
            }
            if self.requests >= self.asked.count_max {
                self.end("count");
            } else if self.bytes >= self.asked.bytes_max {
                self.end("size");
            }
        }
    }

    /// Ends the recording at the checks that are decided next.
    fn end(&mut self, reason: &'static str) {
        self.reason.get_or_insert(reason);
        self.recording.cut();
    }

    /// Sends what was captured. False if the client has gone.
    async fn send_window(&mut self, mut joined: Vec<u8>, window: Window) -> bool {
        let summary = window.summary();
        let state = Arc::clone(&self.state);
        let metrics = &state.parts.engine.metrics.recordings;
        metrics.skipped(window.skipped);
        for buffer in window.buffers {
            self.requests = self.requests.saturating_add(buffer.requests);
            metrics.requests.inc_by(buffer.requests);
            let piece = if self.asked.is_hashed {
                Bytes::from(self.hash(buffer.bytes()))
            } else if buffer.bytes().len() < JOINED_BYTES_MAX {
                joined.extend_from_slice(buffer.bytes());
                continue;
            } else {
                buffer.into_bytes()
            };
            // Rules come before the requests that were decided by them.
            let before = std::mem::take(&mut joined);
            if !before.is_empty() && !self.send(before.into()).await {
                return false;
            }
            if !self.send(piece).await {
                return false;
            }
        }
        joined.extend_from_slice(&summary);
        self.send(joined.into()).await
    }

    /// Sends a piece. The recording ends in time also while the client does not read.
    async fn send(&mut self, piece: Bytes) -> bool {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        let mut sending = std::pin::pin!(self.sender.send(piece));
        tokio::select! {
            sent = &mut sending => return sent,
            () = &mut self.ends, if self.reason.is_none() => {
                self.reason = Some("time");
                self.recording.cut();
            }
        }
        sending.await
    }

    fn hash(&self, items: &[u8]) -> Vec<u8> {
        let values = &self.state.values;
        hash_values(items, values, |generation| {
            let known = self.generations.iter();
            // A reset has no generation.
            let mut known = known
                .rev()
                .filter(|(number, _)| generation == 0 || *number == generation);
            known.next().map(|(_, compared)| compared)
        })
    }

    /// The header and the rules in use, encoded.
    fn header(&mut self) -> Vec<u8> {
        let state = &self.state;
        let inspection = state.parts.engine.store.inspect();
        let partitions = inspection.partitions.iter();
        let buckets = partitions.map(|levels| levels.buckets.load(Ordering::Relaxed) as u64);
        let sampling = self.asked.options.sampling.as_ref();
        let header = format::Header {
            version: 1,
            tollgate: env!("CARGO_PKG_VERSION").to_owned(),
            began_us: state.parts.engine.clock.now().as_us(),
            store: inspection.kind.to_owned(),
            leased: inspection.is_leased,
            buckets_at_start: buckets.sum(),
            partitions: u32::try_from(inspection.partitions.len()).unwrap_or(u32::MAX),
            settings: state.parts.recordings.flags.clone(),
            sampling: sampling.map(|sampling| format::Sampling {
                key: sampling.key.clone(),
                one_in: sampling.one_in.get(),
            }),
            hashed: self.asked.is_hashed,
            plain_keys: match state.parts.engine.generations.current() {
                Some(rules) if self.asked.is_hashed => plain_keys(&ComparedKeys::of(&rules.rules)),
                _ => Vec::new(),
            },
            imported_from: String::new(),
        };
        let mut bytes = encode_item(Kind::Header(header));
        bytes.extend_from_slice(&self.new_rules());
        bytes
    }

    /// The rules in use, encoded, if they were not sent yet.
    fn new_rules(&mut self) -> Vec<u8> {
        let Some(current) = self.state.parts.engine.generations.current() else {
            return Vec::new();
        };
        let known = self.generations.last();
        if known.is_some_and(|(number, _)| *number == current.number) {
            return Vec::new();
        }
        let compared = if self.asked.is_hashed {
            ComparedKeys::of(&current.rules)
        } else {
            ComparedKeys::default()
        };
        let rules = encode_item(Kind::Rules(rules_item(&current, &compared)));
        if self.asked.refuses_compared && !compared.keys().is_empty() {
            self.end("compared");
            // Values of the new generation are hashed, also where rules compare them.
            self.generations
                .push((current.number, ComparedKeys::default()));
        } else {
            self.generations.push((current.number, compared));
        }
        if self.generations.len() > GENERATIONS_MAX {
            self.generations.remove(0);
        }
        rules
    }
}

fn rules_item(generation: &Generation, compared: &ComparedKeys) -> format::Rules {
    let rules = generation.rules.rules().iter().zip(&*generation.names);
    let names = rules.map(|(rule, name)| format::RuleName {
        domain: rule.domain.to_string(),
        name: name.to_string(),
    });
    format::Rules {
        generation: generation.number,
        hash: generation.hash,
        names: names.collect(),
        plain_keys: plain_keys(compared),
    }
}

fn plain_keys(compared: &ComparedKeys) -> Vec<format::PlainKey> {
    let keys = compared.keys().into_iter().map(|key| format::PlainKey {
        domain: key.domain.into_bytes(),
        key: key.key.into_bytes(),
        which: if key.all { "all" } else { "values" }.to_owned(),
    });
    keys.collect()
}

// === impl RecordQuery ===

impl RecordQuery {
    pub(super) fn parse(query: Option<&str>, state: &AdminState) -> Result<Self, ApiFailure> {
        let query = &Query::parse(query, PARAMETERS)?;
        let seconds = query.number("for_seconds", SECONDS_MAX)?;
        let seconds = seconds.unwrap_or(SECONDS_DEFAULT);
        if seconds == 0 {
            return Err(ApiFailure::invalid(
                "for_seconds=0 is invalid; use a whole number from 1 to 86400",
            ));
        }
        let rate = query.number("requests_per_second_max", u64::from(u32::MAX))?;
        let rate = rate.and_then(|rate| u32::try_from(rate).ok());
        let refuses_compared = query.flag("hash_refuse_compared")?.unwrap_or(false);
        let must_hash = state.parts.recordings.values == RecordingValues::Hashed;
        Ok(Self {
            lasts: Duration::from_secs(seconds),
            count_max: query.number("count_max", u64::MAX)?.unwrap_or(u64::MAX),
            bytes_max: query.number("bytes_max", u64::MAX)?.unwrap_or(u64::MAX),
            options: RecordingOptions {
                sampling: sampling(query, state.values)?,
                per_second_max: rate.and_then(NonZeroU32::new),
            },
            is_hashed: must_hash || refuses_compared || query.flag("hash")?.unwrap_or(false),
            refuses_compared,
        })
    }

    /// What was asked for, for the audit.
    pub(super) fn words(&self) -> String {
        let values = if self.is_hashed { "hashed" } else { "plain" };
        let seconds = self.lasts.as_secs();
        format!("a recording of at most {seconds} s has begun, values are {values}")
    }
}

fn sampling(query: &Query, values: ShownValues) -> Result<Option<Sampling>, ApiFailure> {
    let one_in = query.number("sample", u64::from(u32::MAX))?;
    let one_in = one_in.and_then(|one_in| NonZeroU32::new(u32::try_from(one_in).ok()?));
    match (query.text("sample_by"), one_in) {
        (None, None) => Ok(None),
        (Some(key), one_in) => Ok(Some(Sampling {
            key: key.as_bytes().to_vec(),
            one_in: one_in.unwrap_or(NonZeroU32::MIN),
            values,
        })),
        (None, Some(_)) => Err(ApiFailure::invalid(
            "sample needs sample_by; say the key of the entry whose values are sampled",
        )),
    }
}
