//! What a server's error, or the connection's, comes to.
//!
//! Why by code and not by kind: the client has kinds for some errors, a server sends a code with all. Redis 7 hands the error
//! of a command within a script on as it was; 6.2 wraps it into one of its own, and the code stands in the middle of the
//! sentence.
//!
//! Refusals for the server's state come before a script's first write: `READONLY`, `MISCONF` and `OOM` are looked at until a
//! script has written and never after. So they, and what refuses a whole script, mean that nothing was taken.
//!
//! What it deliberately does not do: try again.

use redis::{ErrorKind, RedisError, Value};

use crate::store::Trouble;

/// What became of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// The server does not know the script; nothing ran.
    NoScript,
    /// It did not decide.
    Trouble(Trouble),
}

/// Codes of refusals for a state of the server, which pass.
const CODES: &[(&str, Trouble)] = &[
    ("READONLY", Trouble::ReadOnly),
    ("LOADING", Trouble::Loading),
    ("MISCONF", Trouble::CannotPersist),
    ("NOREPLICAS", Trouble::CannotPersist),
    ("OOM", Trouble::OutOfMemory),
    ("BUSY", Trouble::Busy),
    ("CLUSTERDOWN", Trouble::ClusterDown),
    ("MOVED", Trouble::ClusterDown),
    ("ASK", Trouble::ClusterDown),
    ("TRYAGAIN", Trouble::ClusterDown),
    ("CROSSSLOT", Trouble::ClusterDown),
    ("MASTERDOWN", Trouble::ReadOnly),
    ("NOAUTH", Trouble::Refused),
    ("WRONGPASS", Trouble::Refused),
    ("NOPERM", Trouble::Refused),
];

/// What an error comes to.
pub(crate) fn said(error: &RedisError) -> Said {
    if let Some(code) = error.code() {
        return of_code(code, error.detail().unwrap_or_default());
    }
    Said::Trouble(match error.kind() {
        ErrorKind::Io => Trouble::Lost,
        ErrorKind::AuthenticationFailed => Trouble::Refused,
        _ => Trouble::NotUnderstood,
    })
}

/// What a server's error of this code comes to.
fn of_code(code: &str, detail: &str) -> Said {
    if code == "NOSCRIPT" {
        return Said::NoScript;
    }
    let within_a_script = |known: &str| {
        let mut words = detail.split_ascii_whitespace();
        code == "ERR" && words.any(|word| word.strip_prefix('-') == Some(known))
    };
    let known = CODES
        .iter()
        .find(|(known, _)| code == *known || within_a_script(known));
    Said::Trouble(known.map_or(Trouble::NotUnderstood, |(_, trouble)| *trouble))
}

/// A reply, of which an error is one.
pub(crate) fn value(reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_for_a_state_are_told_apart_whoever_wraps_them() {
        let read_only = Said::Trouble(Trouble::ReadOnly);
        assert_eq!(of_code("READONLY", "You can't write"), read_only);
        let wrapped =
            "Error running script (call to f_1): @user_script:9: -READONLY You can't write";
        assert_eq!(of_code("ERR", wrapped), read_only);
        assert_eq!(of_code("NOSCRIPT", "No matching script."), Said::NoScript);
        let oom = of_code("OOM", "command not allowed when used memory > 'maxmemory'.");
        assert_eq!(oom, Said::Trouble(Trouble::OutOfMemory));
        let other = of_code("ERR", "value is not an integer, READONLY or not");
        assert_eq!(other, Said::Trouble(Trouble::NotUnderstood));
    }

    #[test]
    fn what_was_refused_before_it_ran_has_taken_nothing() {
        for (_, trouble) in CODES {
            assert!(!trouble.may_have_taken(), "{trouble:?}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(said(&broken), Said::Trouble(Trouble::Lost));
    }
}
