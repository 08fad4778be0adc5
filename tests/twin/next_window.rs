//! Hits that leases take from the next fixed window, or what the present one has left: the script
//! and a naive model, which has a count for each window.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use tollgate::store::Purpose;
use tollgate::store_redis::script;
use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{Check, CountRefused, Hits, Limit, Outcome, Timestamp, Unit};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;

use super::check_of;
use super::connection::{Call, Connection, results};

const STEPS: usize = 4_000;
const KEY: &[u8] = b"bucket";
const REQUESTS: u64 = 20;

/// The hits of each window, by its beginning.
#[derive(Default)]
struct Model {
    counts: BTreeMap<Timestamp, u64>,
    /// What was taken until then does not go back.
    reset_at: Option<Timestamp>,
}

impl Model {
    /// Whether hits are granted, and what was used of their window before and is left of it.
    fn decide(&mut self, check: &Check, purpose: Purpose, now: Timestamp) -> (bool, u64, u64) {
        let window = check.limit.window_at(now);
        let of_next = self.counts.get(&window.end).copied();
        let start = match purpose {
            Purpose::TakeAhead => window.end,
            _ => window.start,
        };
        let used = self.counts.get(&start).copied().unwrap_or(0);
        let left = REQUESTS - used;
        if purpose == Purpose::Reset {
            self.counts.clear();
            let reset_at = of_next.map_or(now, |_| window.end);
            self.reset_at = self.reset_at.max(Some(reset_at));
            return (true, used.max(of_next.map_or(0, |_| 1)), left);
        }
        let after = match check.operation.hits {
            Hits::Take(hits) if purpose == Purpose::TakeAhead => used + hits.min(left / 4),
            Hits::Take(hits) if purpose == Purpose::TakeUpTo => used + hits.min(left),
            Hits::Take(hits) if hits <= left => used + hits,
            Hits::Take(_) => used,
            Hits::Undo { hits, taken_at } => {
                let is_void = self.reset_at.is_some_and(|reset_at| taken_at <= reset_at);
                if !is_void && let Some(taken) = self.counts.get_mut(&taken_at_window(taken_at)) {
                    *taken = taken.saturating_sub(hits);
                }
                let used_now = self.counts.get(&start).copied().unwrap_or(0);
                return (true, used, REQUESTS - used_now);
            }
            _ => unreachable!(),
        };
        if after > used {
            self.counts.insert(start, after);
        }
        (after > used, used, REQUESTS - after)
    }
}

fn limit() -> Limit {
    let limit = Limit::per(REQUESTS, Unit::Minute, NonZeroU32::MIN);
    limit.with_count_refused(CountRefused::None)
}

/// The beginning of the window of which hits were taken then. Those of a next window have the time
/// of its beginning.
fn taken_at_window(taken_at: Timestamp) -> Timestamp {
    limit().window_at(taken_at).start
}

/// An error where the script and the model differ.
pub(crate) fn compare(text: &str) -> Result<(), String> {
    let server = RedisServer::start(&[]);
    let mut connection = Connection::open(&server);
    let sha1 = connection.load(text);
    let mut chance = SeededRng::of_seed(44);
    let (mut model, mut now) = (Model::default(), Timestamp::from_seconds(1_800_000_000));
    let mut taken: Vec<(Timestamp, u64)> = Vec::new();
    let mut granted = [0; 2];
    for step in 0..STEPS {
        now = now.plus_us(chance.pick(&[0, 0, 0, 1, 5_000_000, 20_000_000, 60_000_000]));
        let (purpose, hits) = match chance.below(16) {
            0 => (Purpose::Reset, Hits::PEEK),
            1..6 => (Purpose::TakeAhead, Hits::Take(chance.between(1, 8))),
            6..9 if !taken.is_empty() => {
                let newest = taken.len().saturating_sub(4);
                let (taken_at, hits) = taken.remove(newest + chance.position(taken.len() - newest));
                (Purpose::Decide, Hits::Undo { hits, taken_at })
            }
            9..12 => (Purpose::TakeUpTo, Hits::Take(chance.between(1, 8))),
            _ => (Purpose::Decide, Hits::Take(chance.between(1, 8))),
        };
        let check = check_of(1, limit(), &FixedWindow, hits);
        let mut call = Call::default();
        call.add_for(purpose, KEY, &check, now);
        connection.add_call(&sha1, &call);
        let reply = connection.replies().pop().unwrap();
        let outcome = results(&reply, &call.terms).remove(0);
        let outcome = outcome.map_err(|error| error.to_string())?;
        let Outcome {
            allowed,
            used_before,
            remaining,
            ..
        } = outcome;
        let meant = model.decide(&check, purpose, now);
        let is_alike = match purpose {
            Purpose::Reset => (meant.1 > 0) == (used_before > 0),
            _ => meant == (allowed, used_before, remaining),
        };
        if !is_alike {
            return Err(format!("step {step}: {hits:?}, {meant:?}, not {outcome:?}"));
        }
        let window = limit().window_at(now);
        let is_ahead = purpose == Purpose::TakeAhead;
        if let Hits::Take(asked) = hits
            && purpose != Purpose::Reset
            && allowed
        {
            let hits = REQUESTS - used_before - remaining;
            assert!(purpose != Purpose::Decide || hits == asked);
            granted[usize::from(is_ahead)] += 1;
            taken.push((if is_ahead { window.end } else { now }, hits));
            let ends = if is_ahead {
                window.end.plus_us(60_000_000)
            } else {
                window.end
            };
            assert_eq!(outcome.reset_us, ends.since_us(now), "step {step}");
        }
    }
    assert!(granted.iter().all(|takes| *takes > 200), "{granted:?}");
    Ok(())
}

#[test]
fn each_window_has_its_limit_whenever_its_hits_are_taken() {
    compare(script::text()).unwrap();
}
