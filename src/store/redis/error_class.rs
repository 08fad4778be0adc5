//! Classifies errors of a server or of its connection.
//!
//! By code and not by the client library's kind: a server sends a code with every error, and the
//! library has kinds for some. Redis 7 passes the error of a command in a script on unchanged.
//! Redis 6.2 wraps it, and the code is then in the middle of the text.
//!
//! Errors about the server's state come before a script's first write: Redis checks `READONLY`,
//! `MISCONF` and `OOM` until a script has written and not after. So these errors, and those that
//! reject a whole script, mean that nothing was taken. An ACL denies each command of a script by
//! itself, with a text and no code of its own: what came before may have been written.

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

/// What a server says when an ACL denies a command of a script: before Redis 7.2, and since.
const DENIED_WITHIN_A_SCRIPT: [&str; 2] = [
    "The user executing the script can't",
    "ACL failure in script",
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
    if DENIED_WITHIN_A_SCRIPT
        .iter()
        .any(|words| detail.contains(words))
    {
        return ErrorClass::Fault(StoreFault::ScriptDenied);
    }
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
    fn a_command_that_an_acl_denies_within_a_script_is_no_state() {
        let denied = ErrorClass::Fault(StoreFault::ScriptDenied);
        for detail in [
            "Error running script (call to f_1): @user_script:9: @user_script: 9: The user executing the script \
             can't run this command or subcommand",
            "The user executing the script can't access at least one of the keys mentioned in the command arguments \
             script: f_1, on @user_script:9.",
            "ACL failure in script: User limits has no permissions to run the 'set' command script: f_1",
        ] {
            assert_eq!(of_code("ERR", detail), denied, "{detail}");
        }
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
