//! Merges what all threads counted into one list.
//!
//! A count is the sum of the counts of all pieces. It can be too small by the sum of their errors,
//! and where a piece left the key out, by the largest count that was left out there.

use std::collections::HashMap;

use super::recorder::Piece;
use super::summary::{Counts, Pair, Totals, plus};
use tollgate_admin_api::RankBy;

/// One key, merged.
#[derive(Debug)]
pub(super) struct MergedKey {
    pub(super) key: u128,
    pub(super) counts: Counts,
    /// By how much a count can be too small.
    pub(super) error: Pair,
}

/// All keys, and all hits.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) keys: Vec<MergedKey>,
    pub(super) total: Totals,
}

/// Merges the pieces of all threads.
///
/// `is_asked` says whether a key of a rule is asked for; `all` that it is true for every key, so
/// that the totals are those of the pieces.
pub(super) fn merge(pieces: &[Piece], all: bool, is_asked: impl Fn(u128, u64) -> bool) -> Merged {
    let mut found: HashMap<u128, (Counts, Pair)> = HashMap::new();
    // What can be missing of a key that is in no piece of its rule.
    let mut missing: HashMap<Option<u64>, Pair> = HashMap::new();
    let mut total = [0; 3];
    for Piece { rule, extract } in pieces {
        let entry = missing.entry(*rule).or_default();
        *entry = plus(*entry, plus(extract.error, extract.left_out));
        if all {
            total = plus(total, extract.total);
        }
        for (key, counts) in &extract.entries {
            let known = found.entry(*key);
            let (sum, not_missing) = known.or_insert_with(|| {
                let none = Counts {
                    rule: counts.rule,
                    ..Counts::default()
                };
                (none, [0; 2])
            });
            sum.add(counts);
            *not_missing = plus(*not_missing, extract.left_out);
        }
    }
    let of = |rule| missing.get(&rule).copied().unwrap_or_default();
    let asked = found
        .into_iter()
        .filter(|(key, (counts, _))| is_asked(*key, counts.rule));
    let keys: Vec<_> = asked
        .map(|(key, (counts, not_missing))| {
            let [asked, refused] = plus(of(Some(counts.rule)), of(None));
            let [not_asked, not_refused] = not_missing;
            let error = [
                asked.saturating_sub(not_asked),
                refused.saturating_sub(not_refused),
            ];
            MergedKey { key, counts, error }
        })
        .collect();
    if !all {
        total = keys
            .iter()
            .fold([0; 3], |sum, key| plus(sum, key.counts.totals()));
    }
    Merged { keys, total }
}

// === impl Merged ===

impl Merged {
    /// Keeps the heaviest `n` keys, heaviest first; keys without a hit of that kind are left out.
    pub(super) fn rank(&mut self, by: RankBy, n: usize) {
        let weight = |key: &MergedKey| {
            let [asked, refused] = key.counts.hits;
            match by {
                RankBy::Asked => (asked, refused),
                RankBy::Refused => (refused, asked),
            }
        };
        self.keys.retain(|key| weight(key).0 > 0);
        // Equal ones in a fixed order, so that a page does not change where nothing does.
        let order = |one: &MergedKey, two: &MergedKey| {
            weight(two).cmp(&weight(one)).then(one.key.cmp(&two.key))
        };
        self.keys.sort_unstable_by(order);
        self.keys.truncate(n);
    }
}
