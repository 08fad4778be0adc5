//! Classifies errors of a server or of its connection.
//!
//! By code and not by the client library's kind: a server sends a code with every error, and the
//! library has kinds for some. Redis 7 passes the error of a command in a script on unchanged.
//! Redis 6.2 wraps it, and the code is then in the middle of the text.
//!
//! Errors about the server's state come before a script's first write: Redis checks `READONLY`,
//! `MISCONF` and `OOM` until a script has written and not after. So these errors, and those that
//! reject a whole script, mean that nothing was taken.

use redis::{ErrorKind, RedisError, Value};

use crate::store::StoreFault;

/// The class of an error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ErrorClass {
    /// The server does not have the script. Nothing ran.
    NoScript,
    /// The server did not decide.
    Fault(StoreFault),
}

/// Error codes that name a state of the server.
const CODES: &[(&str, StoreFault)] = &[
    ("READONLY", StoreFault::ReadOnly),
    ("LOADING", StoreFault::Loading),
    ("MISCONF", StoreFault::CannotPersist),
    ("NOREPLICAS", StoreFault::CannotPersist),
    ("OOM", StoreFault::OutOfMemory),
    ("BUSY", StoreFault::Busy),
    ("CLUSTERDOWN", StoreFault::ClusterDown),
    ("MOVED", StoreFault::ClusterDown),
    ("ASK", StoreFault::ClusterDown),
    ("TRYAGAIN", StoreFault::ClusterDown),
    ("CROSSSLOT", StoreFault::ClusterDown),
    ("MASTERDOWN", StoreFault::ReadOnly),
    ("NOAUTH", StoreFault::AccessDenied),
    ("WRONGPASS", StoreFault::AccessDenied),
    ("NOPERM", StoreFault::AccessDenied),
];

/// The class of an error.
pub(crate) fn classify(error: &RedisError) -> ErrorClass {
    if let Some(code) = error.code() {
        return of_code(code, error.detail().unwrap_or_default());
    }
    ErrorClass::Fault(match error.kind() {
        ErrorKind::Io => StoreFault::ConnectionLost,
        ErrorKind::AuthenticationFailed => StoreFault::AccessDenied,
        _ => StoreFault::UnexpectedReply,
    })
}

/// The class of a server's error with this code.
fn of_code(code: &str, detail: &str) -> ErrorClass {
    if code == "NOSCRIPT" {
        return ErrorClass::NoScript;
    }
    let within_a_script = |known: &str| {
        let mut words = detail.split_ascii_whitespace();
        code == "ERR" && words.any(|word| word.strip_prefix('-') == Some(known))
    };
    let known = CODES
        .iter()
        .find(|(known, _)| code == *known || within_a_script(known));
    ErrorClass::Fault(known.map_or(StoreFault::UnexpectedReply, |(_, fault)| *fault))
}

/// Turns an error reply into an error.
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
    fn state_errors_are_classified_behind_any_wrapper() {
        let read_only = ErrorClass::Fault(StoreFault::ReadOnly);
        assert_eq!(of_code("READONLY", "You can't write"), read_only);
        let wrapped =
            "Error running script (call to f_1): @user_script:9: -READONLY You can't write";
        assert_eq!(of_code("ERR", wrapped), read_only);
        assert_eq!(
            of_code("NOSCRIPT", "No matching script."),
            ErrorClass::NoScript
        );
        let oom = of_code("OOM", "command not allowed when used memory > 'maxmemory'.");
        assert_eq!(oom, ErrorClass::Fault(StoreFault::OutOfMemory));
        let other = of_code("ERR", "value is not an integer, READONLY or not");
        assert_eq!(other, ErrorClass::Fault(StoreFault::UnexpectedReply));
    }

    #[test]
    fn a_script_rejected_before_it_ran_took_nothing() {
        for (_, fault) in CODES {
            assert!(!fault.outcome_unknown(), "{fault:?}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(
            classify(&broken),
            ErrorClass::Fault(StoreFault::ConnectionLost)
        );
    }
}
