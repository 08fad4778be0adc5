//! The Redis protocol: `CL.THROTTLE` of redis-cell, and `TG.CHECK` for the rules.
//!
//! Commands that have come together are decided side by side, and answered in their order.
//!
//! What it deliberately does not do: keep values. Every other command of Redis is an error.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use tollgate_limiter::{Limit, Unit};

use super::resp_command::{COMMAND_BYTES_MAX, read};
use super::{CheckError, Checked, Checks};
use crate::net::{Connection, ShutdownSignal};
use crate::pipeline::RequestError;

/// Most commands that are decided side by side; then those are answered first.
const COMMANDS_PER_TURN_MAX: usize = 256;

/// Room for one read: some hundred commands, so that those that are sent together are decided side
/// by side.
const READ_BYTES: usize = 8 << 10;

/// How long the rest of a command, or a client that reads answers, may take.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The domain of `CL.THROTTLE`. Its limits come with the calls, so no rules need it.
const THROTTLE_DOMAIN: &[u8] = b"cl.throttle";

/// What one connection knows of its client.
struct Session {
    checks: Arc<Checks>,
    password: Option<Arc<[u8]>>,
    is_authenticated: bool,
    /// Whether the client speaks RESP3.
    is_resp3: bool,
    is_closing: bool,
}

/// The answer to a command.
enum Reply {
    Now(Vec<u8>),
    Later(JoinHandle<Vec<u8>>),
}

/// Serves one connection.
pub(super) async fn serve(
    checks: Arc<Checks>,
    password: Option<Arc<[u8]>>,
    mut connection: Connection,
    mut stopping: ShutdownSignal,
) {
    let mut session = Session {
        is_authenticated: password.is_none(),
        checks,
        password,
        is_resp3: false,
        is_closing: false,
    };
    let mut input = Vec::new();
    while !session.is_closing {
        let is_partial = !input.is_empty();
        input.reserve(READ_BYTES);
        let received = tokio::select! {
            () = stopping.wait() => return,
            // A command that has begun ends soon; until then the client may be silent.
            received = connection.read_buf(&mut input) => received,
            () = tokio::time::sleep(WAIT_MAX), if is_partial => return,
        };
        if !matches!(received, Ok(1..)) {
            return;
        }
        loop {
            let (replies, used) = session.take_commands(&input);
            let is_all = replies.len() < COMMANDS_PER_TURN_MAX;
            input.drain(..used);
            let mut output = Vec::new();
            for reply in replies {
                match reply {
                    Reply::Now(bytes) => output.extend(bytes),
                    // A defect lost the answer.
                    Reply::Later(task) => output.extend(
                        task.await
                            .unwrap_or_else(|_| error("the check has no answer")),
                    ),
                }
            }
            let written = timeout(WAIT_MAX, connection.write_all(&output)).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
            if is_all || session.is_closing {
                break;
            }
        }
        if input.is_empty() && input.capacity() > COMMAND_BYTES_MAX {
            input = Vec::new();
        }
    }
}

// === impl Session ===

impl Session {
    /// Begins the whole commands that have come; how many bytes they have.
    fn take_commands(&mut self, input: &[u8]) -> (Vec<Reply>, usize) {
        let (mut replies, mut used) = (Vec::new(), 0);
        while replies.len() < COMMANDS_PER_TURN_MAX && !self.is_closing {
            let rest = input.get(used..).unwrap_or_default();
            match read(rest) {
                Ok(Some((arguments, bytes))) => {
                    used = used.saturating_add(bytes);
                    if let Some((name, arguments)) = arguments.split_first() {
                        replies.push(self.command(name, arguments));
                    }
                }
                Ok(None) => break,
                Err(why) => {
                    self.checks.invalid.inc();
                    self.is_closing = true;
                    replies.push(Reply::Now(error(&format!("Protocol error: {why}"))));
                }
            }
        }
        (replies, used)
    }

    fn command(&mut self, name: &[u8], arguments: &[&[u8]]) -> Reply {
        let upper = name.to_ascii_uppercase();
        let reply = match (&*upper, arguments) {
            (b"QUIT", _) => {
                self.is_closing = true;
                simple("OK")
            }
            (b"AUTH", [password] | [_, password]) => self.authenticate(password),
            (b"HELLO", arguments) => self.hello(arguments),
            _ if !self.is_authenticated => b"-NOAUTH Authentication required.\r\n".to_vec(),
            (b"PING", []) => simple("PONG"),
            (b"PING" | b"ECHO", [text]) => bulk(text),
            (b"SELECT", [b"0"]) => simple("OK"),
            (b"SELECT", [_]) => error("DB index is out of range; there is only 0"),
            (b"RESET", []) => simple("RESET"),
            (b"INFO", _) => bulk(b"redis_version:7.2.0\r\nredis_mode:standalone\r\nloading:0\r\n"),
            (b"COMMAND", [what]) if what.eq_ignore_ascii_case(b"COUNT") => number(2),
            (b"COMMAND", [_]) if self.is_resp3 => b"%0\r\n".to_vec(),
            (b"COMMAND", _) => b"*0\r\n".to_vec(),
            (b"CLIENT", [what, ..]) => self.client(what),
            (b"CL.THROTTLE", arguments) => match throttle(arguments) {
                Ok((limit, hits)) => {
                    let key = arguments.first().copied().unwrap_or_default();
                    return self.check(THROTTLE_DOMAIN, vec![(b"key", key)], hits, Some(limit));
                }
                Err(why) => error(&why),
            },
            (b"TG.CHECK", [domain, hits, entries @ ..])
                if !entries.is_empty() && entries.len().is_multiple_of(2) =>
            {
                let Some(hits) = integer(hits, 0) else {
                    return Reply::Now(error("HITS is not a whole number of at least 0"));
                };
                let (pairs, _) = entries.as_chunks::<2>();
                let pairs = pairs.iter().map(|[key, value]| (*key, *value)).collect();
                return self.check(domain, pairs, hits, None);
            }
            (b"TG.CHECK", _) => {
                error("wrong arguments; use TG.CHECK DOMAIN HITS key value [key value ...]")
            }
            _ => {
                let name = String::from_utf8_lossy(name.get(..64).unwrap_or(name)).into_owned();
                let name = name.replace(|c: char| c.is_control(), "?");
                error(&format!("unknown command '{name}'"))
            }
        };
        Reply::Now(reply)
    }

    fn authenticate(&mut self, given: &[u8]) -> Vec<u8> {
        let Some(password) = &self.password else {
            return error("AUTH called without any password configured; set --resp-password-file");
        };
        if !bool::from(password.ct_eq(given)) {
            self.checks.invalid.inc();
            return b"-WRONGPASS invalid username-password pair.\r\n".to_vec();
        }
        self.is_authenticated = true;
        simple("OK")
    }

    fn hello(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        let is_resp3 = match arguments.first().copied() {
            None => self.is_resp3,
            Some(b"2") => false,
            Some(b"3") => true,
            Some(_) => return b"-NOPROTO unsupported protocol version\r\n".to_vec(),
        };
        let mut rest = arguments.get(1..).unwrap_or_default();
        while let Some((option, after)) = rest.split_first() {
            rest = match (&*option.to_ascii_uppercase(), after) {
                (b"AUTH", [_, password, after @ ..]) => {
                    let answer = self.authenticate(password);
                    if answer.first() == Some(&b'-') {
                        return answer;
                    }
                    after
                }
                (b"SETNAME", [_, after @ ..]) => after,
                _ => return error("syntax error in HELLO"),
            };
        }
        if !self.is_authenticated {
            return b"-NOAUTH HELLO must be called with the client already authenticated.\r\n"
                .to_vec();
        }
        self.is_resp3 = is_resp3;
        let mut reply = if is_resp3 { "%7\r\n" } else { "*14\r\n" }
            .as_bytes()
            .to_vec();
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        for (name, value) in [
            ("server", bulk(b"tollgate")),
            ("version", bulk(version)),
            ("proto", number(if is_resp3 { 3 } else { 2 })),
            ("id", number(1)),
            ("mode", bulk(b"standalone")),
            ("role", bulk(b"master")),
            ("modules", b"*0\r\n".to_vec()),
        ] {
            reply.extend(bulk(name.as_bytes()));
            reply.extend(value);
        }
        reply
    }

    fn client(&self, what: &[u8]) -> Vec<u8> {
        match &*what.to_ascii_uppercase() {
            b"SETINFO" | b"SETNAME" | b"NO-EVICT" | b"NO-TOUCH" => simple("OK"),
            b"ID" => number(1),
            b"GETNAME" if self.is_resp3 => b"_\r\n".to_vec(),
            b"GETNAME" => b"$-1\r\n".to_vec(),
            _ => error("unknown subcommand of CLIENT"),
        }
    }

    /// Begins a check.
    fn check(
        &self,
        domain: &[u8],
        entries: Vec<(&[u8], &[u8])>,
        hits: u64,
        limit: Option<Limit>,
    ) -> Reply {
        let checks = Arc::clone(&self.checks);
        let domain = domain.to_vec();
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect();
        Reply::Later(spawn_local(async move {
            let entries = entries.iter().map(|(key, value)| (&**key, &**value));
            match checks.check(&domain, entries, hits, limit).await {
                Ok(checked) => {
                    let burst = limit.map(|limit| limit.burst().cast_signed());
                    integers(&checked, burst)
                }
                Err(
                    CheckError::Request(RequestError::Store(_) | RequestError::NoRules)
                    | CheckError::Shed,
                ) => error("the check has no decision; try again later"),
                Err(why) => error(&why.to_string()),
            }
        }))
    }
}

/// The five integers of redis-cell; -1 where there is none.
fn integers(checked: &Checked, burst: Option<i64>) -> Vec<u8> {
    let retry = checked.retry_seconds.filter(|_| !checked.allowed);
    let limit = burst.or(checked.limit);
    let numbers = [limit, checked.remaining, retry, checked.reset_seconds];
    let mut reply = b"*5\r\n".to_vec();
    reply.extend(number(i64::from(!checked.allowed)));
    for one in numbers {
        reply.extend(number(one.unwrap_or(-1)));
    }
    reply
}

/// The limit and the hits of `CL.THROTTLE`.
fn throttle(arguments: &[&[u8]]) -> Result<(Limit, u64), String> {
    let (key, numbers) = match arguments {
        [key, numbers @ ..] if (3..=4).contains(&numbers.len()) => (key, numbers),
        _ => {
            let usage = "CL.THROTTLE key max_burst count_per_period period [quantity]";
            return Err(format!("wrong number of arguments; use {usage}"));
        }
    };
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    let names = ["max_burst", "count_per_period", "period", "quantity"];
    let mut parsed = [0, 0, 0, 1];
    for (((place, name), text), least) in
        parsed.iter_mut().zip(names).zip(numbers).zip([0, 1, 1, 0])
    {
        let number = integer(text, least).filter(|number| *number < u64::from(u32::MAX));
        let most = u32::MAX - 1;
        *place = number.ok_or(format!(
            "{name} is not a whole number from {least} to {most}"
        ))?;
    }
    let [burst, count, period, quantity] = parsed;
    let period = u32::try_from(period).ok().and_then(NonZeroU32::new);
    let period = period.unwrap_or(NonZeroU32::MIN);
    let burst = Some(burst.saturating_add(1));
    let limit = Limit::new(count, Unit::Second, period, burst);
    Ok((limit.map_err(|error| error.to_string())?, quantity))
}

/// A whole number of at least `least`.
fn integer(text: &[u8], least: u64) -> Option<u64> {
    let number: u64 = str::from_utf8(text).ok()?.parse().ok()?;
    Some(number).filter(|number| *number >= least)
}

fn simple(text: &str) -> Vec<u8> {
    format!("+{text}\r\n").into_bytes()
}

fn error(why: &str) -> Vec<u8> {
    format!("-ERR {}\r\n", why.replace(['\r', '\n'], " ")).into_bytes()
}

fn number(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

fn bulk(text: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", text.len()).into_bytes();
    reply.extend(text);
    reply.extend(b"\r\n");
    reply
}
