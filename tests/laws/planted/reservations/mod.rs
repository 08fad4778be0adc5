//! Bugs in the steps of reservations. The list is in `mod.rs`.
//!
//! How: the steps are written again, over a plain list and the takes, refunds, undos and charges of
//! `State::apply`, with one mistake or none. Without one, no property finds a difference.
//!
//! What it deliberately does not do: plant bugs in an algorithm.

mod rewritten;

use proptest::test_runner::TestError;
use tollgate_limiter::Algorithm;

use crate::properties::reservations::{Bucket, Property, algorithms};
use crate::properties::{BROKEN, repeatable_for};
use rewritten::{Bug, Rewritten};

/// A bug of few histories needs many.
const HISTORIES: u32 = 8_000;

/// Each property must find the bug in each of these algorithms.
fn must_be_found_in(
    algorithms: impl Iterator<Item = &'static dyn Algorithm>,
    bug: Bug,
    by: &[Property],
) {
    let algorithms: Vec<_> = algorithms.collect();
    assert!(!algorithms.is_empty());
    for algorithm in algorithms {
        for property in by {
            let bucket = || Box::new(Rewritten::new(bug)) as Box<dyn Bucket>;
            match property.challenge(&[algorithm], &bucket, repeatable_for(HISTORIES)) {
                Ok(()) => panic!("{property:?} did not find {bug:?} in {algorithm:?}"),
                Err(TestError::Fail(reason, _)) if reason.message().contains(BROKEN) => {}
                Err(other) => panic!("{property:?} stumbled on {bug:?}: {other}"),
            }
        }
    }
}

/// One test per bug: its name, its variant, and the properties that must find it.
macro_rules! planted {
    ($($name:ident $bug:ident $(if $refills:literal)? by $($property:ident)+;)+) => {$(
        #[test]
        fn $name() {
            let algorithms = algorithms().into_iter();
            $(let algorithms = algorithms.filter(|algorithm| algorithm.refills() == $refills);)?
            must_be_found_in(algorithms, Bug::$bug, &[$(Property::$property),+]);
        }
    )+};
}

planted! {
    a_repeated_commit_gives_back_again CommittedTwiceGivesBackTwice by Agreement Promise;
    a_repeated_commit_tells_its_own_amount RepeatTellsTheNewAmount by Agreement;
    a_settled_id_is_forgotten_at_once SettledIsForgottenAtOnce by Agreement;
    a_release_after_the_expiry_gives_back ReleasedAfterExpiryGivesBack by Agreement Promise;
    an_expired_reservation_is_still_open ExpiredIsStillOpen by Agreement;
    an_expiry_gives_nothing_back ExpiryGivesNothingBack by Agreement;
    an_expiry_comes_a_microsecond_late ExpiryComesAMicrosecondLate by Agreement;
    a_release_gives_nothing_back ReleaseGivesNothingBack by Agreement;
    an_excess_is_bounded_by_one_burst ExcessIsBoundedByOneBurst by Agreement Promise;
    an_excess_is_charged_only_if_it_fits ExcessIsTakenOnlyIfItFits by Agreement Promise;
    an_excess_is_the_whole_amount ExcessIsTheWholeAmount by Agreement;
    hits_go_back_to_a_later_window GivesBackToALaterWindow if false by Agreement Promise;
    the_refill_counts_as_given_back RefillHasComeBackAlready if true by Agreement;
    a_settled_id_is_extended ExtendsWhatIsSettled by Agreement;
    only_the_oldest_is_extended ExtendsTheOldestOnly by Agreement;
    a_full_ledger_drops_an_open_record FullLedgerDropsAnOpenRecord by Agreement;
    a_second_reserve_takes_nothing SecondReserveTakesNothing by Agreement Promise;
    a_commit_settles_the_newest SettlesTheNewest by Agreement;
    a_withdrawal_takes_the_oldest WithdrawsTheOldest by Agreement;
    an_ignored_refusal_is_charged IgnoredRefusalIsCharged by Agreement;
    a_refusal_is_never_used_up RefusalIsNeverUsedUp by Agreement;
    a_refused_reservation_counts RefusedCounts by Agreement;
    an_unknown_id_is_not_charged UnknownIsNotCharged by Agreement Promise;
    the_records_stay_when_the_clock_comes_back ClockTakesTheRecordsNotAlong by Agreement;
}

/// The same histories find nothing where there is no bug.
#[test]
fn nothing_is_found_in_steps_without_a_bug() {
    let bucket = || Box::new(Rewritten::new(Bug::None)) as Box<dyn Bucket>;
    for property in [Property::Agreement, Property::Promise] {
        let verdict = property.challenge(&algorithms(), &bucket, repeatable_for(HISTORIES));
        assert!(verdict.is_ok(), "{property:?}: {verdict:?}");
    }
}
