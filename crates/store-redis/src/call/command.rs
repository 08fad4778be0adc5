//! The commands that a call sends: one run of the script, and loading the script.

use std::num::NonZeroU32;

use redis::Cmd;

use crate::{key, script};
use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{Check, Hits, Key, Limit, Operation, Timestamp, Unit};
use tollgate_store::Purpose;

/// A check that a call carries, and the purpose of its request.
pub(crate) type Sent<'c> = (&'c Check, Purpose);

/// The error text for a reply that the script cannot have sent.
pub(crate) const UNEXPECTED_REPLY: &str = "the reply is not one that the script sends";

/// The error text where a server lacks the script that it loaded a moment ago.
pub(crate) const LOST_SCRIPT: &str = "NOSCRIPT, although SCRIPT LOAD succeeded a moment ago";

/// A script run for these checks. `near` is the caller's time; Redis decides by its own.
/// `with_ledgers` declares the keys of all reservations, not only of the checks that need them in
/// any case.
pub(crate) fn step<'c, I: Iterator<Item = Sent<'c>>>(
    prefix: &str,
    near: Timestamp,
    with_ledgers: bool,
    checks: impl Fn() -> I,
) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    let marked = || checks().filter(|(check, purpose)| script::has_marker(check, *purpose));
    let ledgers = ledgers(with_ledgers, checks());
    let keys = checks().count().saturating_add(marked().count());
    let keys = keys.saturating_add(ledgers.len().saturating_mul(key::LEDGER.len()));
    command.arg(script::sha1()).arg(keys);
    let mut packed = Vec::new();
    for (check, _) in checks() {
        key::write(prefix, check, near, &mut packed);
        command.arg(packed.as_slice());
    }
    for (check, _) in marked() {
        key::write_marker(prefix, check.key, &mut packed);
        command.arg(packed.as_slice());
    }
    for bucket in ledgers {
        key::write_digest(prefix, bucket, &mut packed);
        let bucket_len = packed.len();
        for suffix in key::LEDGER {
            packed.truncate(bucket_len);
            packed.extend_from_slice(suffix);
            command.arg(packed.as_slice());
        }
    }
    packed.clear();
    // Redis takes its own time.
    script::time_argument(None, &mut packed);
    command.arg(packed.as_slice());
    let mut arguments = script::CallArguments::default();
    for (check, purpose) in checks() {
        arguments.push(check, purpose, near);
    }
    command.arg(arguments.order());
    for argument in arguments.arguments() {
        command.arg(argument);
    }
    command
}

/// The buckets whose reservations these checks may need, each once. Counters of Envoy's reference
/// service have none.
fn ledgers<'c>(all: bool, checks: impl Iterator<Item = Sent<'c>>) -> Vec<Key> {
    let may_need = |(check, purpose): &Sent<'c>| {
        (all || *purpose == Purpose::Reset || script::has_ledger(check))
            && check.bucket_name.is_none()
    };
    let mut buckets: Vec<Key> = checks
        .filter(may_need)
        .map(|(check, _)| check.key)
        .collect();
    buckets.sort_unstable_by_key(|bucket| bucket.0);
    buckets.dedup();
    buckets
}

/// A script run that decides a check of this bucket, which belongs to a probe.
pub(crate) fn probe(name: &str, near: Timestamp) -> Cmd {
    let check = Check {
        key: Key(0),
        // Every probe writes the bucket anew.
        limit: Limit::per(u32::MAX.into(), Unit::Second, NonZeroU32::MIN),
        algorithm: &FixedWindow,
        operation: Operation {
            hits: Hits::Take(1),
            holder: None,
        },
        fingerprint: 0,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: true,
        bucket_name: None,
    };
    let mut arguments = script::CallArguments::default();
    arguments.push(&check, Purpose::Decide, near);
    let mut command = redis::cmd("EVALSHA");
    command.arg(script::sha1()).arg(1).arg(name);
    command.arg("").arg(arguments.order());
    for argument in arguments.arguments() {
        command.arg(argument);
    }
    command
}

/// A script run on one node of a cluster for these checks, whatever their slots. Each bucket is
/// sent once. Each check must be one that [`script::can_spread`].
pub(crate) fn spread_step<'c, I: Iterator<Item = Sent<'c>>>(
    prefix: &str,
    near: Timestamp,
    checks: impl Fn() -> I,
) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script::sha1()).arg(0).arg("");
    let mut arguments = script::CallArguments::default();
    let mut buckets = script::CallBuckets::default();
    for (check, purpose) in checks() {
        arguments.push(check, purpose, near);
        buckets.push(check.key);
    }
    command.arg(arguments.order()).arg(buckets.places());
    let mut packed = Vec::new();
    let sent = checks().zip(buckets.places());
    for ((check, _), _) in sent.filter(|(_, first)| **first == 0) {
        key::write(prefix, check, near, &mut packed);
        command.arg(packed.as_slice());
    }
    for argument in arguments.arguments() {
        command.arg(argument);
    }
    command
}

/// Loads the script on a server.
pub(crate) fn load() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script::text());
    command
}
