//! The script of an exchange, its arguments and its reply.
//!
//! `tests/redis/rate_leases` compares it with a model. Numbers are packed in 8 bytes, because Lua
//! would print large ones with 14 digits.
//!
//! It does not send anything (`call`).

use std::sync::LazyLock;

use bytes::Bytes;
use redis::{Cmd, RedisError, Value};

use crate::error_class::fault_of;
use crate::key;
use crate::script::sha1_of;
use tollgate_store::StoreFault;
use tollgate_store::shared::{
    DEMAND_BYTES_MAX, LeaseEra, OtherLease, RateLease, RateLeaseRequest, RateLeaseResult,
};

/// How many leases a bucket may have. More are not the leases of replicas.
pub(super) const LEASES_MAX: usize = 4_096;

/// The largest number that a double has exactly, with all smaller ones.
const NUMBER_MAX: u64 = 1 << 53;

/// How long a bucket is kept after its last write, in milliseconds.
const KEPT_MS: u64 = 86_400_000;

/// Length of a lease without its demand.
const HEAD_LEN: usize = 16;

/// The text of the script.
pub(super) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        include_str!("exchange.lua")
            .replace("TWO_53", &NUMBER_MAX.to_string())
            .replace("LEASES_MAX", &LEASES_MAX.to_string())
            .replace("KEPT_MS", &KEPT_MS.to_string())
    });
    &TEXT
}

fn sha1() -> &'static str {
    static SHA1: LazyLock<String> = LazyLock::new(|| sha1_of(text()));
    &SHA1
}

/// Loads the script on a server.
pub(super) fn load() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(text());
    command
}

/// Whether the script can carry out this request: numbers, demand and ended leases are within their
/// bounds.
pub(super) fn is_within_bounds(request: &RateLeaseRequest) -> bool {
    let RateLeaseRequest {
        version,
        keeps,
        wants,
        limit,
        ..
    } = request;
    let numbers = [version, keeps, wants, limit];
    numbers.iter().all(|number| **number <= NUMBER_MAX)
        && request.demand.len() <= DEMAND_BYTES_MAX
        && request.ended.len() <= LEASES_MAX
}

/// One run of the script.
pub(super) fn exchange(prefix: &str, request: &RateLeaseRequest) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    let RateLeaseRequest {
        bucket,
        version,
        keeps,
        wants,
        limit,
        ..
    } = request;
    command.arg(sha1()).arg(2);
    command.arg(key::rate_lease(prefix, *bucket));
    command.arg(key::rate_lease_era(prefix));
    command.arg(format!("{:016x}", request.replica));
    let numbers = [version, keeps, wants, limit].map(|number| number.to_be_bytes());
    command.arg(numbers.as_flattened());
    command.arg(request.demand.as_ref());
    let mut ended = Vec::with_capacity(request.ended.len().saturating_mul(24));
    for (replica, version) in &request.ended {
        ended.extend_from_slice(format!("{replica:016x}").as_bytes());
        ended.extend_from_slice(&version.to_be_bytes());
    }
    command.arg(ended);
    command.arg(format!("{:016x}", request.new_era));
    if request.settled_era == 0 {
        command.arg("");
    } else {
        command.arg(format!("{:016x}", request.settled_era));
    }
    command
}

/// Reads the reply to a run.
pub(super) fn lease(reply: Value) -> RateLeaseResult {
    read(reply).ok_or(StoreFault::UnexpectedReply)
}

fn read(reply: Value) -> Option<RateLease> {
    let Value::Array(values) = reply else {
        return None;
    };
    if values.len() > LEASES_MAX.saturating_mul(2).saturating_add(3) {
        return None;
    }
    let mut values = values.into_iter();
    let Value::Int(holds) = values.next()? else {
        return None;
    };
    let Value::BulkString(previous) = values.next()? else {
        return None;
    };
    let Value::BulkString(era) = values.next()? else {
        return None;
    };
    let (id, settled) = era.split_first_chunk::<16>()?;
    let mut others = Vec::with_capacity(values.len() / 2);
    while let Some(replica) = values.next() {
        others.push(other(&replica, values.next()?)?);
    }
    others.sort_unstable_by_key(|other| other.replica);
    Some(RateLease {
        era: LeaseEra {
            id: hexadecimal(id)?,
            settled: !settled.is_empty(),
        },
        previous: u64::from_be_bytes(previous.try_into().ok()?),
        holds: u64::try_from(holds).ok()?,
        others,
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn other(replica: &Value, lease: Value) -> Option<OtherLease> {
    let (Value::BulkString(replica), Value::BulkString(lease)) = (replica, lease) else {
        return None;
    };
    let lease = Bytes::from(lease);
    let (version, rest) = lease.split_first_chunk::<8>()?;
    let (holds, _) = rest.split_first_chunk::<8>()?;
    Some(OtherLease {
        replica: hexadecimal(replica)?,
        version: u64::from_be_bytes(*version),
        holds: u64::from_be_bytes(*holds),
        demand: lease.slice(HEAD_LEN..),
    })
}

/// What an error of the server means for the run; none when it does not have the script, and so ran
/// nothing.
pub(super) fn exchange_fault_of(error: &RedisError) -> Option<StoreFault> {
    let detail = error.detail().unwrap_or_default();
    // Redis 6.2 has the code of a command's error in the middle of the text.
    if matches!(error.code(), Some("WRONGTYPE" | "INVALIDLEASE")) || detail.contains("-WRONGTYPE") {
        return Some(StoreFault::InvalidBucket);
    }
    fault_of(error)
}
