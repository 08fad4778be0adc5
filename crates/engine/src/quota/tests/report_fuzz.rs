//! Any bytes as reports of proxies, read as the quota service reads them. Tests and the fuzz target
//! `quota_reports` compile this file.
//!
//! What it deliberately does not do: drive the registry (`quota::registry::tests::fuzz_harness`),
//! or speak gRPC (`tests/service`).

use bytes::Bytes;

use crate::quota::registry::tests::fuzz_harness::{self, Outcome, ReadReport};
use crate::quota::waiting_report::WaitingReport;

fn read(message: &[u8]) -> Option<ReadReport> {
    let mut report = WaitingReport::read(Bytes::copy_from_slice(message)).ok()?;
    let usages = report.next_usages(usize::MAX).ok()?;
    Some((report.domain, usages))
}

/// Has a registry take what these bytes say.
///
/// # Errors
///
/// The invariant that was broken.
pub fn withstand_quota_reports(bytes: &[u8]) -> Result<Outcome, String> {
    fuzz_harness::withstand(bytes, read)
}

#[cfg(test)]
mod tests {
    use tollgate_test_support::corpus;
    use tollgate_test_support::seeded_rng::SeededRng;

    use super::*;

    /// Number of mutations of the corpus. They take some seconds.
    const MUTATIONS: u64 = 1_000;

    #[test]
    fn the_corpus_holds_every_invariant() {
        for (name, input) in corpus::files("quota_reports") {
            let outcome = withstand_quota_reports(&input).unwrap();
            let reports_nothing = name == "broken-message";
            assert_eq!(outcome.reports == 0, reports_nothing, "{name}: {outcome:?}");
            let assigns_nothing = reports_nothing || name == "foreign";
            assert_eq!(
                outcome.assignments == 0,
                assigns_nothing,
                "{name}: {outcome:?}"
            );
        }
    }

    #[test]
    fn random_actions_hold_every_invariant_and_meet_the_bound() {
        let mut random = SeededRng::of_seed(7);
        let mut too_many = 0;
        for number in 0..60 {
            let mut input = Vec::new();
            for _ in 0..2_000 {
                // Streams that open and end, reports, plans, time, reloads, and proxies that stop
                // reading. Long waits, in which everything expires, are rare.
                let wait = if random.once_in(100) { 12 } else { 11 };
                let action = random.pick(&[0, 0, 1, 3, 3, 3, 3, 3, 3, 3, 3, 8, 10, wait, 13, 14]);
                let arguments = match action {
                    3 => 2,
                    0 | 11..=13 => 1,
                    _ => 0,
                };
                let mut byte = |below| u8::try_from(random.below(below)).unwrap();
                input.push(byte(16) * 16 + action);
                input.extend((0..arguments).map(|_| byte(256)));
            }
            match withstand_quota_reports(&input) {
                Ok(outcome) => too_many += outcome.too_many,
                Err(broken) => panic!("{number}: {broken}: {input:?}"),
            }
        }
        assert!(too_many > 0, "the bound is met");
    }

    #[test]
    fn mutations_of_the_corpus_hold_every_invariant() {
        let files = corpus::files("quota_reports");
        let mut random = SeededRng::of_seed(24);
        let mut assigned = 0;
        for number in 0..MUTATIONS {
            let mut input = files[random.position(files.len())].1.clone();
            for _ in 0..=random.below(6) {
                let at = random.position(input.len() + 1);
                match random.below(4) {
                    0 if at < input.len() => input[at] = random.pick(&[0, 1, 8, 11, 12, 13, 255]),
                    1 if at < input.len() => input[at] ^= 1 << random.below(8),
                    2 => drop(input.drain(at..(at + random.position(8)).min(input.len()))),
                    _ => {
                        let other = &files[random.position(files.len())].1;
                        let from = random.position(other.len());
                        input.splice(at..at, other[from..].iter().take(200).copied());
                    }
                }
            }
            match withstand_quota_reports(&input) {
                Ok(outcome) => assigned += u64::from(outcome.assignments > 0),
                Err(broken) => panic!("{number}: {broken}: {input:?}"),
            }
        }
        assert!(
            assigned > MUTATIONS / 2,
            "{assigned} were assigned something"
        );
    }
}
