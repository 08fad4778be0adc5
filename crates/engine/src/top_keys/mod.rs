//! The heaviest keys of each rule over the last minute and hour, by hits asked for and refused.
//!
//! Each worker thread counts what it decides with a [`Recorder`] of its own, without a lock. A
//! reader sends a query to each thread ([`TopKeys::query`]) and merges the answers. Time is an
//! argument. All memory is bounded by `--top-keys-memory-max`.
//!
//! | file | contents |
//! | --- | --- |
//! | `summary` | the algorithm: heaviest keys of a stream, and the bound of its error |
//! | `history` | a minute and an hour of summaries |
//! | `recorder` | what one thread counts, by rule, and its texts |
//! | `text` | the descriptor of a key, as it is shown |
//! | `merge` | all threads together |
//! | `key_table` | a table that does not allocate; counted bytes |
//!
//! What it deliberately does not do: decide when to read (`admin`), or see requests (`pipeline`).

mod history;
mod key_table;
mod merge;
mod recorder;
mod summary;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tollgate_limiter::{Rule, RuleSet};

use self::merge::merge;
use self::text::AskedEntry;
use crate::value_hash::ShownValues;
use tollgate_admin_api::{
    Entry, RankBy, Top, TopKey, ValueMode, Window, instance_name, rule_name, time_text,
};
use tollgate_system::clock::Clock;
use tollgate_system::per_thread::PerThread;
use tollgate_telemetry::metrics::{Metrics, TopKeysMetrics};

pub use self::recorder::Recorder;
pub(crate) use self::summary::Hit;
pub use self::summary::OVERRIDE;
pub use self::text::Text;

/// The name of the rule of limits that came with requests.
pub const OVERRIDE_NAME: &str = "(override)";

/// The most keys in one answer.
pub const KEYS_MAX: usize = 1_000;

/// Queries that wait for a thread.
const QUERIES_MAX: usize = 64;

/// How long a query waits for the threads. One that does not answer is left out.
const WAIT: Duration = Duration::from_secs(1);

/// What a reader wants to know.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TopQuery {
    /// What the keys are sorted by.
    pub by: RankBy,
    /// The length of time.
    pub window: Window,
    /// How many keys, at most [`KEYS_MAX`].
    pub n: usize,
    /// Only this domain.
    pub domain: Option<String>,
    /// Only this rule, by its name in the answer.
    pub rule: Option<String>,
    /// Only keys with these entries. A value is as it was sent or as it is shown.
    pub descriptor: Vec<Entry>,
}

/// The heaviest keys of all threads.
pub struct TopKeys {
    values: ShownValues,
    clock: Arc<dyn Clock>,
    /// The bytes of each recorder.
    recorder_bytes_max: usize,
    /// The bytes of all recorders.
    bytes: Arc<AtomicU64>,
    metrics: TopKeysMetrics,
    threads: PerThread<mpsc::Sender<Ask>>,
}

/// A question to one thread.
pub type Ask = Box<dyn FnOnce(&mut Recorder) + Send>;

// === impl TopKeys ===

impl TopKeys {
    /// Top keys of `threads` threads, in `bytes_max` bytes together. In the mode `off` there is no
    /// recorder.
    pub fn new(
        values: ShownValues,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        threads: usize,
        bytes_max: usize,
    ) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&bytes);
        let metrics = &metrics.top_keys;
        metrics
            .memory_bytes
            .read_from(move || read.load(Ordering::Relaxed));
        Self {
            values,
            clock,
            recorder_bytes_max: bytes_max.checked_div(threads).unwrap_or_default(),
            bytes,
            metrics: metrics.clone(),
            threads: PerThread::default(),
        }
    }

    /// Top keys of one thread with the default settings and a known secret, for tests and
    /// measurements.
    #[doc(hidden)]
    pub fn of_one_thread(clock: &Arc<dyn Clock>, metrics: &Metrics) -> Arc<Self> {
        let values = ShownValues::derived_from(ValueMode::Hashed, b"of one thread");
        let clock = Arc::clone(clock);
        Arc::new(Self::new(values, clock, metrics, 1, 16 << 20))
    }

    /// How values are shown.
    pub fn values(&self) -> &ShownValues {
        &self.values
    }

    /// A recorder for one thread, and the questions that this thread answers. None in the mode
    /// `off`.
    pub fn recorder(&self) -> Option<(Recorder, mpsc::Receiver<Ask>)> {
        if self.values.mode() == ValueMode::Off {
            return None;
        }
        let recorder = Recorder::new(self.recorder_bytes_max, &self.bytes, self.metrics.clone());
        let (sender, questions) = mpsc::channel(QUERIES_MAX);
        self.threads.retain(|thread| !thread.is_closed());
        self.threads.add(sender);
        Some((recorder, questions))
    }

    /// The heaviest keys. `rules` are those in use; keys of other rules are left out.
    pub async fn query(&self, query: &TopQuery, rules: Option<&RuleSet>) -> Top {
        let (now, uptime_us) = (self.clock.now(), self.clock.uptime_us());
        let mut top = self.empty(query, uptime_us);
        top.at = time_text(now);
        let window = query.window;
        let pieces = self.ask(move |recorder| recorder.pieces(window, uptime_us));
        let pieces: Vec<_> = pieces.await.into_iter().flatten().collect();
        let entries = pieces.iter().flat_map(|piece| &piece.extract.entries);
        let used: HashSet<u64> = entries.map(|(_, counts)| counts.rule).collect();
        let rules = rules.map(RuleSet::rules).unwrap_or_default().iter();
        let used = rules.filter(|rule| used.contains(&rule.fingerprint));
        let text = |rule: &Rule| (rule.domain.to_string(), rule_name(rule));
        let names = Names(used.map(|rule| (rule.fingerprint, text(rule))).collect());
        let by_text = !query.descriptor.is_empty() || query.domain.is_some();
        let mut texts = HashMap::new();
        if by_text {
            texts = self.texts(None).await;
        }
        let asked = query.descriptor.iter();
        let asked: Vec<_> = asked
            .map(|entry| AskedEntry::new(entry, &self.values))
            .collect();
        let is_asked = |key: u128, rule: u64| {
            let text = texts.get(&key).map(Arc::as_ref);
            let Some((domain, name)) = names.of(rule, text) else {
                return false;
            };
            query
                .domain
                .as_deref()
                .is_none_or(|wanted| wanted == domain)
                && query.rule.as_deref().is_none_or(|wanted| wanted == name)
                && (asked.is_empty() || text.is_some_and(|text| text.has(&asked)))
        };
        let all = !by_text && query.rule.is_none();
        let mut merged = merge(&pieces, all, is_asked);
        merged.rank(query.by, query.n.min(KEYS_MAX));
        if !by_text {
            let keys = merged.keys.iter().map(|key| key.key).collect();
            texts = self.texts(Some(keys)).await;
        }
        [top.asked, top.refused, top.would_refuse] = merged.total;
        let time = |tenths: u32| {
            let at_us = u64::from(tenths.checked_sub(1)?).saturating_mul(100_000);
            let ago_us = uptime_us.saturating_sub(at_us);
            let at = now.as_us().saturating_sub(ago_us);
            Some(time_text(tollgate_limiter::Timestamp::from_us(at)))
        };
        for merged in &merged.keys {
            let text = texts.get(&merged.key).map(Arc::as_ref);
            let Some((domain, rule)) = names.of(merged.counts.rule, text) else {
                continue;
            };
            let [asked, refused] = merged.counts.hits;
            let would_refuse = merged.counts.would_refuse;
            let [since, last] = merged.counts.refused_at;
            top.keys.push(TopKey {
                domain: domain.to_owned(),
                rule: rule.to_owned(),
                descriptor: text.map(|text| text.entries.clone()).unwrap_or_default(),
                // Each is a lower bound of its own, and what was refused was asked for.
                asked: asked.max(refused.saturating_add(would_refuse)),
                refused,
                would_refuse,
                error: merged.error.into_iter().max().unwrap_or_default(),
                refused_since: time(since),
                refused_last: time(last),
            });
        }
        top
    }

    /// An answer without keys.
    fn empty(&self, query: &TopQuery, uptime_us: u64) -> Top {
        let covered_us = match query.window {
            Window::Minute => history::covered_us(uptime_us, history::TICK_US),
            Window::Hour => history::covered_us(uptime_us, history::SPAN_US),
        };
        Top {
            instance: instance_name(),
            at: String::new(),
            by: query.by,
            window: query.window,
            covered_seconds: covered_us / 1_000_000,
            values: self.values.mode(),
            asked: 0,
            refused: 0,
            would_refuse: 0,
            keys: Vec::new(),
        }
    }

    async fn texts(&self, of: Option<Arc<[u128]>>) -> HashMap<u128, Arc<Text>> {
        let texts = self.ask(move |recorder| recorder.texts(of.as_deref()));
        texts.await.into_iter().flatten().collect()
    }

    /// Asks all threads. One that does not answer in time is left out.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&mut Recorder) -> T + Clone + Send + 'static,
    ) -> Vec<T> {
        let mut answers = Vec::new();
        let mut due = Vec::new();
        for thread in self.threads.all() {
            let (answer, answered) = oneshot::channel();
            let question = question.clone();
            // A reader that has gone needs no answer.
            let ask: Ask = Box::new(move |recorder| drop(answer.send(question(recorder))));
            if thread.try_send(ask).is_ok() {
                due.push(answered);
            }
        }
        let all = async {
            for answered in due {
                answers.extend(answered.await);
            }
        };
        // What has come until then is used.
        let _ = timeout(WAIT, all).await;
        answers
    }
}

/// The names of rules by fingerprint.
struct Names(HashMap<u64, (String, String)>);

impl Names {
    /// The domain and the name of a rule; none if it is not in use.
    fn of<'n>(&'n self, rule: u64, text: Option<&'n Text>) -> Option<(&'n str, &'n str)> {
        if rule == OVERRIDE {
            let domain = text.and_then(|text| text.domain.as_deref());
            return Some((domain.unwrap_or_default(), OVERRIDE_NAME));
        }
        let (domain, name) = self.0.get(&rule)?;
        Some((domain, name))
    }
}
