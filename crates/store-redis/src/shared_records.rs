//! [`SharedRecords`] in Redis: a hash, and beside it the version as a text.
//!
//! The keys have the tag of rate leases, so one node of a cluster has both. A change is one script.
//! A read is a scan in small steps, because checks share the connection; another version after it
//! says that the records changed meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};

use super::key;
use super::rate_leases::Shared;
use tollgate_store::StoreFault;
use tollgate_store::shared::{Records, RecordsFuture, SharedRecords};

/// How long a call may take, with all its redirects.
const CALL_WAIT_MAX: Duration = Duration::from_secs(2);

/// How many records one step of a scan has, about.
const SCAN_COUNT: usize = 16;

const SET: &str = "\
if redis.call('HGET', KEYS[1], ARGV[1]) == false and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[4])
return 1";

const REMOVE: &str = "\
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found == false or (ARGV[2] ~= '' and found ~= ARGV[2]) then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[3])
return 1";

/// Records in one Redis.
pub(super) struct RedisSharedRecords {
    pub(super) shared: Arc<Shared>,
}

/// Names and records.
type Scanned = BTreeMap<Vec<u8>, Vec<u8>>;

/// A reply of this type.
fn read<T: FromRedisValue>(reply: Value) -> Result<T, StoreFault> {
    T::from_redis_value(reply).map_err(|_| StoreFault::UnexpectedReply)
}

/// A version that no other change has.
fn new_version() -> Result<String, StoreFault> {
    let mut version = [0; 8];
    getrandom::fill(&mut version).map_err(|_| StoreFault::NotConnected)?;
    Ok(format!("{:016x}", u64::from_le_bytes(version)))
}

// === impl RedisSharedRecords ===

impl RedisSharedRecords {
    async fn ask<T: FromRedisValue>(&self, command: Cmd) -> Result<T, StoreFault> {
        let asked = tokio::time::timeout(CALL_WAIT_MAX, self.shared.ask(&command)).await;
        read(asked.unwrap_or(Err(StoreFault::TimedOut))?)
    }

    async fn version(&self) -> Result<Vec<u8>, StoreFault> {
        let mut command = redis::cmd("GET");
        command.arg(key::records_version(&self.shared.prefix));
        let version: Option<Vec<u8>> = self.ask(command).await?;
        Ok(version.unwrap_or_default())
    }

    /// A script of one record and the version.
    fn script(&self, text: &str, name: Vec<u8>) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(2);
        command.arg(key::records(&self.shared.prefix));
        command.arg(key::records_version(&self.shared.prefix));
        command.arg(name);
        command
    }
}

impl SharedRecords for RedisSharedRecords {
    fn read<'r>(
        &'r self,
        known: Option<&'r [u8]>,
        max: usize,
    ) -> RecordsFuture<'r, Option<Records>> {
        Box::pin(async move {
            let version = self.version().await?;
            if Some(&*version) == known {
                return Ok(None);
            }
            // A scan may give a record twice.
            let mut records = Scanned::new();
            let mut cursor = b"0".to_vec();
            loop {
                let mut command = redis::cmd("HSCAN");
                command.arg(key::records(&self.shared.prefix));
                command.arg(&cursor).arg("COUNT").arg(SCAN_COUNT);
                let (next, some): (Vec<u8>, Scanned) = self.ask(command).await?;
                records.extend(some);
                cursor = next;
                if cursor == b"0" || records.len() >= max {
                    break;
                }
            }
            let is_one = self.version().await? == version;
            Ok(is_one.then(|| Records {
                version,
                records: records.into_iter().take(max).collect(),
            }))
        })
    }

    fn set(&self, name: Vec<u8>, record: Vec<u8>, max: usize) -> RecordsFuture<'_, bool> {
        Box::pin(async move {
            let mut command = self.script(SET, name);
            command.arg(record).arg(max).arg(new_version()?);
            self.ask(command).await
        })
    }

    fn remove(&self, name: Vec<u8>, only: Option<Vec<u8>>) -> RecordsFuture<'_, bool> {
        Box::pin(async move {
            let mut command = self.script(REMOVE, name);
            command.arg(only.unwrap_or_default()).arg(new_version()?);
            self.ask(command).await
        })
    }
}
