//! Plans every bucket twice a second, and follows the rules.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate_limiter::Key;

use super::{
    BucketPairs, Outgoing, ProxyAction, QuotaRegistry, ShareId, State, StreamId, action_of,
};
use crate::pipeline::find_quota;
use crate::quota::bucket::Action;

/// Parts of buckets that are planned before the lock is given back, for streams that open or end:
/// some 100 µs.
pub(super) const SHARES_PER_TURN: usize = 1_024;

/// Ended leases that wait to be given back. The others end by themselves.
const GIVEN_BACK_MAX: usize = 10_000;

/// Actions wait this long for others of their stream: one message costs more than its actions.
const GATHERED_MS_MAX: u64 = 250;

/// Streams that get a message before the lock is given back.
const STREAMS_PER_TURN: usize = 128;

/// The time between two plans of a bucket.
pub const PLAN_INTERVAL: Duration = Duration::from_millis(500);

/// What a plan is to send, by stream.
#[derive(Default)]
struct Gathered {
    actions: HashMap<StreamId, Vec<(ShareId, Outgoing)>>,
    /// When the first was decided.
    since_ms: u64,
}

/// The figures of rules are read after one plan in so many: every two seconds.
const PLANS_PER_SURVEY: u64 = 4;

/// Ends a turn: other threads of this CPU core run first, and then other tasks of this thread. A
/// lower priority alone does not give way: a thread runs until its time slice ends, some
/// milliseconds.
pub async fn give_way() {
    // Unit tests have thousands of turns and nobody to give way to. On a busy core each turn would
    // cost them a time slice of another process.
    if !cfg!(test) {
        std::thread::yield_now();
    }
    tokio::task::yield_now().await;
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// Plans twice a second, for ever.
    pub async fn run(self: Arc<Self>) {
        let mut turns = tokio::time::interval(PLAN_INTERVAL);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for turn in 0_u64.. {
            turns.tick().await;
            self.plan().await;
            if turn.is_multiple_of(PLANS_PER_SURVEY) {
                self.publish_sums().await;
            }
        }
    }

    /// Plans every bucket once, some at a time.
    pub(crate) async fn plan(&self) {
        let keys: Vec<Key> = {
            let mut state = self.state();
            self.follow_rules(&mut state);
            state.buckets.keys().copied().collect()
        };
        let mut left = keys.as_slice();
        let mut gathered = Gathered::default();
        while !left.is_empty() {
            let planned = self.plan_some(left, &mut gathered);
            left = left.get(planned..).unwrap_or_default();
            give_way().await;
            if self.now_ms().saturating_sub(gathered.since_ms) >= GATHERED_MS_MAX {
                self.send_gathered(&mut gathered).await;
            }
        }
        self.send_gathered(&mut gathered).await;
        let state = self.state();
        self.gauge(&state);
    }

    /// Plans the first of these buckets; how many.
    fn plan_some(&self, keys: &[Key], gathered: &mut Gathered) -> usize {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let state = &mut *state;
        if gathered.actions.is_empty() {
            gathered.since_ms = now_ms;
        }
        let mut actions = Vec::new();
        let mut ended = Vec::new();
        let (mut planned, mut shares) = (0, 0);
        for key in keys {
            if shares >= SHARES_PER_TURN {
                break;
            }
            planned += 1;
            shares += 1;
            let Some(tracked) = state.buckets.get_mut(key) else {
                continue;
            };
            actions.clear();
            if tracked
                .bucket
                .plan(now_ms, &self.times, &mut state.scratch, &mut actions)
            {
                shares += tracked.bucket.members();
            }
            if let Some(took_ms) = tracked.bucket.converged_at(now_ms) {
                self.metrics.quotas.observe_convergence(took_ms);
            }
            for &(share, action) in &actions {
                let Some(of) = state.shares.get(&share) else {
                    continue;
                };
                let id = Arc::clone(&of.id);
                match action {
                    Action::Assign(_) => {
                        self.metrics.quotas.assigned.inc();
                        let action = action_of(action, tracked.shadow);
                        let of_stream = gathered.actions.entry(of.stream).or_default();
                        of_stream.push((share, Outgoing { id, action }));
                    }
                    // At once: a new part of the same bucket may be assigned before the others.
                    Action::Abandon => ended.push((share, of.stream, id)),
                }
            }
            // Silent ones, which nothing else ends.
            let removed = std::mem::take(&mut state.scratch.removed);
            state.members = state.members.saturating_sub(removed.len());
            for share in removed {
                state.end_share(share);
            }
            if let Some(tracked) = state.buckets.get(key)
                && tracked.bucket.is_empty()
            {
                if tracked.asked_ms.is_some() && state.given_back.len() < GIVEN_BACK_MAX {
                    state.given_back.push(*key);
                }
                state.buckets.remove(key);
            }
        }
        self.abandon(state, ended, now_ms);
        planned
    }

    /// Ends parts, and tells their proxies that the buckets are abandoned.
    fn abandon(
        &self,
        state: &mut State,
        parts: Vec<(ShareId, StreamId, BucketPairs)>,
        now_ms: u64,
    ) {
        let mut messages: BTreeMap<StreamId, Vec<Outgoing>> = BTreeMap::new();
        for (share, stream, id) in parts {
            self.metrics.quotas.abandoned.inc();
            state.end_share(share);
            let action = ProxyAction::Abandon;
            let message = messages.entry(stream).or_default();
            message.push(Outgoing { id, action });
        }
        for (stream, actions) in messages {
            self.send(state, stream, actions, now_ms);
        }
    }

    /// Sends what was gathered, some streams at a time.
    async fn send_gathered(&self, gathered: &mut Gathered) {
        let mut streams = std::mem::take(&mut gathered.actions).into_iter();
        while streams.len() > 0 {
            {
                let mut state = self.state();
                for (stream, actions) in streams.by_ref().take(STREAMS_PER_TURN) {
                    // A part may have ended since.
                    let actions = actions
                        .into_iter()
                        .filter(|(share, _)| state.shares.contains_key(share))
                        .map(|(_, outgoing)| outgoing);
                    let actions = actions.collect();
                    self.send(&mut state, stream, actions, gathered.since_ms);
                }
            }
            give_way().await;
        }
    }

    /// Follows the rules in use before the next plan or report.
    pub(crate) fn follow_current_rules(&self) {
        self.follow_rules(&mut self.state());
    }

    /// Follows the rules in use: limits change, and buckets without a rule are abandoned.
    pub(super) fn follow_rules(&self, state: &mut State) {
        let current = self.generations.current();
        let same = match (&current, &state.generation) {
            (Some(current), Some(known)) => Arc::ptr_eq(current, known),
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        let mut gone = HashSet::new();
        for (key, tracked) in &mut state.buckets {
            let found = current
                .as_ref()
                .and_then(|rules| find_quota(rules, &tracked.domain, &tracked.id, &self.hash));
            match found.filter(|found| found.key == *key) {
                Some(found) => {
                    tracked.bucket.set_limit(found.rate);
                    tracked.rule = found.rule;
                    tracked.shadow = found.shadow;
                }
                None => {
                    gone.insert(*key);
                }
            }
        }
        state.generation = current;
        let shares = state.shares.iter();
        let shares = shares.filter(|(_, share)| gone.contains(&share.bucket));
        let shares: Vec<_> = shares
            .map(|(id, share)| (*id, share.stream, Arc::clone(&share.id)))
            .collect();
        self.abandon(state, shares, self.now_ms());
    }
}
