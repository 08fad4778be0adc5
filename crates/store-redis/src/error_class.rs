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

use redis::{ErrorKind, RedisError};

use tollgate_store::StoreFault;

/// Why a server did not decide.
#[derive(Clone, Debug)]
pub(crate) struct ServerError {
    pub(crate) fault: StoreFault,
    /// The error text of the server or of the system, word for word.
    pub(crate) text: String,
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

/// The fault that an error means; none when the server does not have the script: it ran nothing.
pub(crate) fn fault_of(error: &RedisError) -> Option<StoreFault> {
    if let Some(code) = error.code() {
        return fault_of_code(code, error.detail().unwrap_or_default());
    }
    Some(match error.kind() {
        ErrorKind::Io => StoreFault::ConnectionLost,
        ErrorKind::AuthenticationFailed => StoreFault::AccessDenied,
        _ => StoreFault::UnexpectedReply,
    })
}

/// The fault that a server's error with this code means.
fn fault_of_code(code: &str, detail: &str) -> Option<StoreFault> {
    if code == "NOSCRIPT" {
        return None;
    }
    let is_denied = |text: &&str| detail.contains(text);
    if DENIED_WITHIN_A_SCRIPT.iter().any(is_denied) {
        return Some(StoreFault::ScriptDenied);
    }
    let within_a_script = |known: &str| {
        let mut words = detail.split_ascii_whitespace();
        code == "ERR" && words.any(|word| word.strip_prefix('-') == Some(known))
    };
    let mut codes = CODES.iter();
    let known = codes.find(|(known, _)| code == *known || within_a_script(known));
    Some(known.map_or(StoreFault::UnexpectedReply, |(_, fault)| *fault))
}

// === impl ServerError ===

impl ServerError {
    pub(crate) fn new(fault: StoreFault, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { fault, text }
    }
}

impl From<RedisError> for ServerError {
    /// The error of a probe, which counts nothing.
    fn from(error: RedisError) -> Self {
        let fault = match fault_of(&error) {
            Some(StoreFault::ScriptDenied) => StoreFault::AccessDenied,
            Some(fault) => fault,
            None => StoreFault::Sharded,
        };
        Self::new(fault, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_errors_are_classified_behind_any_wrapper() {
        let read_only = Some(StoreFault::ReadOnly);
        assert_eq!(fault_of_code("READONLY", "You can't write"), read_only);
        let wrapped =
            "Error running script (call to f_1): @user_script:9: -READONLY You can't write";
        assert_eq!(fault_of_code("ERR", wrapped), read_only);
        assert_eq!(fault_of_code("NOSCRIPT", "No matching script."), None);
        let oom = fault_of_code("OOM", "command not allowed when used memory > 'maxmemory'.");
        assert_eq!(oom, Some(StoreFault::OutOfMemory));
        let other = fault_of_code("ERR", "value is not an integer, READONLY or not");
        assert_eq!(other, Some(StoreFault::UnexpectedReply));
    }

    #[test]
    fn a_command_that_an_acl_denies_within_a_script_is_no_state() {
        let denied = Some(StoreFault::ScriptDenied);
        for detail in [
            "Error running script (call to f_1): @user_script:9: @user_script: 9: The user executing the script \
             can't run this command or subcommand",
            "The user executing the script can't access at least one of the keys mentioned in the command arguments \
             script: f_1, on @user_script:9.",
            "ACL failure in script: User limits has no permissions to run the 'set' command script: f_1",
        ] {
            assert_eq!(fault_of_code("ERR", detail), denied, "{detail}");
        }
    }

    #[test]
    fn a_script_rejected_before_it_ran_took_nothing() {
        for (_, fault) in CODES {
            assert!(!fault.outcome_unknown(), "{fault:?}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(fault_of(&broken), Some(StoreFault::ConnectionLost));
    }
}
