//! The figures of rules, buckets and streams, for metrics and for readers.
//!
//! Why sums are kept: `/metrics` and `/limits` read those of the last survey, so that they never
//! wait for the lock of reports.
//!
//! What it deliberately does not do: show values of ids (`admin::quotas`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tollgate_limiter::Key;

use super::plan::{SHARES_PER_TURN, give_way};
use super::{BucketPairs, KeptSums, QuotaRegistry, RuleQuotas, State, StreamId, Tracked};
use crate::quota::bucket::Scratch;
use crate::quota::bucket::figures::{BucketFigures, Convergence, ShareFigures};
use tollgate_system::per_thread::lock;

/// The buckets that a reader asks for.
pub struct QuotaQuery<'q> {
    /// Whether a bucket of this domain, rule and id is one of them.
    pub matches: &'q (dyn Fn(&[u8], &str, &BucketPairs) -> bool + Sync),
    /// Most buckets: those with the largest demand.
    pub buckets_max: usize,
    /// Most streams of all these buckets.
    pub streams_max: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct QuotaSurvey {
    /// Sums of the rules with buckets that match, in the order of their names.
    pub rules: Vec<RuleQuotas>,
    /// The buckets, the one with the largest demand first.
    pub buckets: Vec<SurveyedBucket>,
    /// How many buckets are left out.
    pub omitted: u64,
}

/// One bucket.
#[derive(Debug)]
pub struct SurveyedBucket {
    key: Key,
    pub domain: Bytes,
    pub rule: Arc<str>,
    /// The id, as the first stream reported it.
    pub id: BucketPairs,
    /// Whether everything passes.
    pub shadow: bool,
    pub figures: BucketFigures,
    pub convergence: Convergence,
    /// Its first streams, if the query asks for streams.
    pub streams: Vec<(StreamId, ShareFigures)>,
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// How long nothing more is assigned, after a start or since the shared store lost its data; 0
    /// afterwards. In milliseconds.
    pub fn learning_ms(&self) -> u64 {
        let now_ms = self.now_ms();
        match &self.leases {
            Some(_) => self.state().era.settles_in_ms(now_ms, &self.times),
            None => self.learning_until_ms.saturating_sub(now_ms),
        }
    }

    /// The sums of the last survey of all buckets, some seconds ago at most.
    pub fn sums(&self) -> KeptSums {
        Arc::clone(&lock(&self.sums))
    }

    /// Surveys all buckets for the metrics of rules and for [`sums`](Self::sums).
    pub(super) async fn publish_sums(&self) {
        let all = QuotaQuery {
            matches: &|_, _, _| true,
            buckets_max: 0,
            streams_max: 0,
        };
        let rules: KeptSums = self.survey(&all).await.rules.into();
        let rates = rules.iter().map(RuleQuotas::rates);
        self.metrics.quotas.set_rules(rates);
        *lock(&self.sums) = rules;
    }

    /// The buckets of a query. The lock is held for some buckets at a time.
    pub async fn survey(&self, query: &QuotaQuery<'_>) -> QuotaSurvey {
        let keys: Vec<Key> = self.state().buckets.keys().copied().collect();
        let mut found = Found::default();
        let mut left = keys.as_slice();
        while !left.is_empty() {
            let surveyed = self.survey_some(left, query, &mut found);
            left = left.get(surveyed..).unwrap_or_default();
            give_way().await;
        }
        let mut survey = QuotaSurvey {
            rules: found.rules.into_values().collect(),
            omitted: found.matching - found.largest.len() as u64,
            buckets: found.largest.into_values().rev().collect(),
        };
        let mut streams_left = query.streams_max;
        for bucket in &mut survey.buckets {
            if streams_left == 0 {
                break;
            }
            bucket.streams = self.streams_of(bucket.key, streams_left);
            streams_left -= bucket.streams.len();
            give_way().await;
        }
        survey
    }

    /// Surveys the first of these buckets; how many.
    fn survey_some(&self, keys: &[Key], query: &QuotaQuery<'_>, found: &mut Found) -> usize {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let (mut surveyed, mut shares) = (0, 0);
        for key in keys {
            if shares >= SHARES_PER_TURN {
                break;
            }
            surveyed += 1;
            let Some(tracked) = state.buckets.get_mut(key) else {
                continue;
            };
            shares += 1 + tracked.bucket.members();
            if (query.matches)(&tracked.domain, &tracked.rule, &tracked.id) {
                found.add(*key, tracked, now_ms, query.buckets_max);
            }
        }
        surveyed
    }

    /// The first open streams of a bucket.
    fn streams_of(&self, key: Key, count_max: usize) -> Vec<(StreamId, ShareFigures)> {
        let now_ms = self.now_ms();
        let state = self.state();
        let State {
            buckets, shares, ..
        } = &*state;
        let Some(tracked) = buckets.get(&key) else {
            return Vec::new();
        };
        let mut scratch = Scratch::default();
        let figures = tracked
            .bucket
            .share_figures(now_ms, &self.times, count_max, &mut scratch);
        let of_streams = figures.into_iter().filter_map(|figures| {
            let stream = shares.get(&figures.share)?.stream;
            Some((stream, figures))
        });
        of_streams.collect()
    }
}

/// What a survey has found so far.
#[derive(Default)]
struct Found {
    rules: BTreeMap<(Bytes, Arc<str>), RuleQuotas>,
    /// By demand.
    largest: BTreeMap<(u64, u64), SurveyedBucket>,
    matching: u64,
}

// === impl Found ===

impl Found {
    fn add(&mut self, key: Key, tracked: &mut Tracked, now_ms: u64, buckets_max: usize) {
        let figures = tracked.bucket.figures(now_ms);
        let convergence = tracked.bucket.convergence(now_ms);
        let name = (tracked.domain.clone(), Arc::clone(&tracked.rule));
        let sums = self.rules.entry(name).or_insert_with(|| RuleQuotas {
            domain: tracked.domain.clone(),
            rule: Arc::clone(&tracked.rule),
            buckets: 0,
            converging: 0,
            figures: BucketFigures::default(),
            convergence: Convergence::default(),
        });
        sums.buckets += 1;
        sums.converging += u64::from(convergence.converging_ms.is_some());
        sums.figures.add(&figures);
        let longest = &mut sums.convergence;
        longest.converging_ms = longest.converging_ms.max(convergence.converging_ms);
        longest.last_ms = longest.last_ms.max(convergence.last_ms);
        self.matching += 1;
        let order = (figures.demand, u64::MAX - self.matching);
        let is_full = self.largest.len() >= buckets_max;
        let smallest = self.largest.keys().next();
        if is_full && smallest.is_none_or(|smallest| *smallest > order) {
            return;
        }
        if is_full {
            self.largest.pop_first();
        }
        let bucket = SurveyedBucket {
            key,
            domain: tracked.domain.clone(),
            rule: Arc::clone(&tracked.rule),
            id: Arc::clone(&tracked.id),
            shadow: tracked.shadow,
            figures,
            convergence,
            streams: Vec::new(),
        };
        self.largest.insert(order, bucket);
    }
}
