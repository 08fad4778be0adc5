//! The commands that a call sends: one run of the script, and loading the script.

use redis::Cmd;

use crate::store::redis::{key, script};
use tollgate_limiter::{Check, Timestamp};

/// The error text for a reply that the script cannot have sent.
pub(crate) const UNEXPECTED_REPLY: &str = "the reply is not one that the script sends";

/// A script run for these checks. `near` is the caller's time; Redis decides by its own.
pub(crate) fn step<'c, I: Iterator<Item = &'c Check>>(
    prefix: &str,
    near: Timestamp,
    checks: impl Fn() -> I,
) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script::sha1()).arg(checks().count());
    let mut packed = Vec::new();
    for check in checks() {
        key::write(prefix, check, near, &mut packed);
        command.arg(packed.as_slice());
    }
    packed.clear();
    // Redis takes its own time.
    script::time_argument(None, &mut packed);
    command.arg(packed.as_slice());
    for check in checks() {
        packed.clear();
        script::argument(check, near, &mut packed);
        command.arg(packed.as_slice());
    }
    command
}

/// Loads the script on a server.
pub(crate) fn load() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script::text());
    command
}
