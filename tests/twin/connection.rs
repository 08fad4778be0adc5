//! A connection to Redis, commands out and replies in, many at once; and calls of the script.
//!
//! The store's own connection is not used, so that a test of the script does not depend on it.

use std::collections::BTreeSet;

use redis::{ConnectionLike as _, Value};
use tollgate::store::Purpose;
use tollgate::store_redis::script::{self, CallArguments, CallBuckets, CheckTerms, ScriptResult};
use tollgate_limiter::{Check, Key, Timestamp};
use tollgate_test_support::redis_server::RedisServer;

pub(crate) struct Connection {
    redis: redis::Connection,
    /// Commands to send, and how many there are.
    commands: Vec<u8>,
    waiting: usize,
}

/// One call of the script.
#[derive(Default)]
pub(crate) struct Call {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) times: Vec<u8>,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// What the answers need of each check.
    pub(crate) terms: Vec<CheckTerms>,
    /// One key for each give-back and reset. A call of the store has them; a call without resets
    /// may do without.
    pub(crate) markers: Vec<Vec<u8>>,
    /// The buckets with the keys of whose reservations it is sent.
    pub(crate) ledgers: BTreeSet<Vec<u8>>,
}

// === impl Connection ===

impl Connection {
    pub(crate) fn open(server: &RedisServer) -> Self {
        Self {
            redis: server.connection(),
            commands: Vec::new(),
            waiting: 0,
        }
    }

    /// Adds a command to the next [`Connection::replies`].
    pub(crate) fn add(&mut self, words: &[&[u8]]) {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        self.commands.extend(command.get_packed_command());
        self.waiting += 1;
    }

    /// Adds a call of the script without keys, as a cluster's node gets it.
    pub(crate) fn add_spread_call(&mut self, sha1: &str, call: &Call) {
        assert!(call.markers.is_empty());
        let (mut arguments, mut buckets) = (CallArguments::default(), CallBuckets::default());
        let mut names = Vec::new();
        for (key, argument) in call.keys.iter().zip(&call.arguments) {
            arguments.push_packed(argument);
            let first = call.keys.iter().position(|other| other == key).unwrap();
            buckets.push(Key(first as u128));
            if buckets.places().ends_with(&[0]) {
                names.push(key.as_slice());
            }
        }
        let mut words = vec![b"EVALSHA".as_slice(), sha1.as_bytes(), b"0", &call.times];
        words.extend([arguments.order(), buckets.places()]);
        words.extend(names);
        words.extend(arguments.arguments());
        self.add(&words);
    }

    /// Adds a call of the script with this SHA-1.
    pub(crate) fn add_call(&mut self, sha1: &str, call: &Call) {
        let ledgers = call.ledgers.iter().flat_map(|key| {
            let keys = [":ids", ":r", ":c", ":x"].map(str::as_bytes);
            keys.map(|suffix| [key, suffix].concat())
        });
        let ledgers: Vec<_> = ledgers.collect();
        let count = (call.keys.len() + call.markers.len() + ledgers.len()).to_string();
        let mut words = vec![b"EVALSHA".as_slice(), sha1.as_bytes(), count.as_bytes()];
        words.extend(call.keys.iter().map(Vec::as_slice));
        words.extend(call.markers.iter().map(Vec::as_slice));
        words.extend(ledgers.iter().map(Vec::as_slice));
        words.push(&call.times);
        let mut arguments = CallArguments::default();
        for argument in &call.arguments {
            arguments.push_packed(argument);
        }
        words.push(arguments.order());
        words.extend(arguments.arguments());
        self.add(&words);
    }

    /// Sends what was added and returns one reply each.
    pub(crate) fn replies(&mut self) -> Vec<Value> {
        let (commands, count) = (
            std::mem::take(&mut self.commands),
            std::mem::take(&mut self.waiting),
        );
        let replies = self.redis.req_packed_commands(&commands, 0, count);
        replies.expect("a connection")
    }

    /// The reply to one command.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Value {
        self.add(words);
        self.replies().pop().unwrap()
    }

    /// The same for a command in words.
    pub(crate) fn say(&mut self, line: &str) -> Value {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        self.ask(&words)
    }

    /// The results of one call of the script.
    pub(crate) fn call(&mut self, call: &Call) -> Vec<ScriptResult> {
        self.add_call(script::sha1(), call);
        results(&self.replies()[0], &call.terms)
    }

    /// Loads a script. Returns its SHA-1.
    pub(crate) fn load(&mut self, text: &str) -> String {
        match self.ask(&[b"SCRIPT", b"LOAD", text.as_bytes()]) {
            Value::BulkString(sha1) => String::from_utf8(sha1).unwrap(),
            other => panic!("not loaded: {other:?}"),
        }
    }
}

// === impl Call ===

impl Call {
    /// Adds a check of this bucket. Without a time it is decided by Redis's own.
    pub(crate) fn add(&mut self, key: &[u8], check: &Check, now: Option<Timestamp>) {
        self.add_at(key, check, now.unwrap_or_default());
        script::time_argument(now, &mut self.times);
    }

    /// Adds a check by the caller's time, and no time of the call.
    pub(crate) fn add_at(&mut self, key: &[u8], check: &Check, near: Timestamp) {
        let mut argument = Vec::new();
        script::argument(check, Purpose::Decide, near, &mut argument);
        self.push(key, check, argument);
    }

    fn push(&mut self, key: &[u8], check: &Check, argument: Vec<u8>) {
        self.keys.push(key.to_vec());
        self.terms.push(CheckTerms::of(check));
        self.arguments.push(argument);
    }
}

impl Call {
    /// Adds a check or a reset of this bucket, with the keys of its marker and its reservations as
    /// the store sends them.
    pub(crate) fn add_marked(&mut self, key: &[u8], check: &Check, resets: bool, now: Timestamp) {
        let purpose = if resets {
            Purpose::Reset
        } else {
            Purpose::Decide
        };
        self.add_for(purpose, key, check, now);
    }

    /// Adds a check for this purpose.
    pub(crate) fn add_for(&mut self, purpose: Purpose, key: &[u8], check: &Check, now: Timestamp) {
        let mut argument = Vec::new();
        script::argument(check, purpose, now, &mut argument);
        if script::has_marker(check, purpose) {
            self.markers.push([key, b":reset"].concat());
        }
        script::time_argument(Some(now), &mut self.times);
        self.ledgers.insert(key.to_vec());
        self.push(key, check, argument);
    }
}

/// The script's results for these checks.
pub(crate) fn results(reply: &Value, asked: &[CheckTerms]) -> Vec<ScriptResult> {
    let Value::BulkString(text) = reply else {
        panic!("the script failed: {reply:?}");
    };
    decided(text, asked)
}

/// The same for the text of a reply to a call that has all keys.
pub(crate) fn decided(text: &[u8], asked: &[CheckTerms]) -> Vec<ScriptResult> {
    let mut answers = Vec::new();
    script::outcomes(text, asked.iter().copied(), &mut answers);
    let answers = answers.into_iter();
    answers.map(|answer| answer.expect("a decision")).collect()
}
