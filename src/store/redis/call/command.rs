//! The commands that a call sends: one run of the script, and loading the script.

use redis::Cmd;

use crate::store::redis::{key, script};
use tollgate_limiter::{Check, Timestamp};

/// ErrorClass of a reply that is none of the script's.
pub(crate) const UNEXPECTED_REPLY: &str = "the script's reply has another form than it should";

/// One step of the script for these checks, packed. `near` is the caller's own time; Redis's decides.
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
    // Redis's own time.
    script::time_argument(None, &mut packed);
    command.arg(packed.as_slice());
    for check in checks() {
        packed.clear();
        script::argument(check, near, &mut packed);
        command.arg(packed.as_slice());
    }
    command
}

/// Has a server keep the script.
pub(crate) fn load() -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(script::text());
    command
}
