//! Warnings of `serve` about environment variables that have no effect.

use tollgate::settings::REDIS_VARIABLES;
use tollgate::settings::reference_variables::{self, UNREAD_VARIABLES};
use tollgate_test_support::banned_phrases;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::process::commands::RULES;

/// Warnings are log lines, and no value of a variable is in them.
#[test]
fn unknown_variables_are_reported_with_the_nearest_setting_and_without_values() {
    let secret = "s3cret-value";
    let running = Tollgate::start_with(
        RULES,
        &[],
        &[
            ("TOLLGATE_MEMROY_MAX", secret),
            ("REDIS_AUHT", secret),
            ("LOG_LEVLE", secret),
            ("TOLLGATE_BREAKFAST", secret),
            ("TOLLGATE_PORT_8081_TCP_ADDR", secret),
            ("TOLLGATE_SERVICE_HOST", secret),
            ("REDIS_SERVICE_PORT", secret),
        ],
    );
    let log = running.said();
    for expected in [
        "TOLLGATE_MEMROY_MAX is not a setting and has no effect; did you mean TOLLGATE_MEMORY_MAX?",
        "REDIS_AUHT is not a setting and has no effect; did you mean REDIS_AUTH?",
        "LOG_LEVLE is not a setting and has no effect; did you mean LOG_LEVEL?",
        "TOLLGATE_BREAKFAST is not a setting and has no effect; `tollgate serve --help` lists",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert_eq!(log.matches("is not a setting").count(), 4, "{log}");
    assert!(!log.contains(secret), "{log}");
}

#[test]
fn no_warning_about_a_variable_has_a_banned_phrase() {
    let unread = || UNREAD_VARIABLES.iter().map(|(name, _)| *name);
    let all = || unread().chain(REDIS_VARIABLES.iter().copied());
    // Also with each of the variables that make others ineffective.
    for left_out in ["", "TOLLGATE_STORE", "REDIS_URL", "REDIS_PERSECOND"] {
        let set = all()
            .chain(["TOLLGATE_STORE"])
            .filter(|name| *name != left_out);
        let warnings = reference_variables::warnings(set);
        assert!(warnings.len() > 20, "{warnings:?}");
        for warning in warnings {
            let found = banned_phrases::find(&warning);
            assert!(found.is_empty(), "{warning}: {}", found[0]);
        }
    }
}
