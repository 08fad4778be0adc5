//! Environment variables that look like settings and are not, each with the nearest setting.
//!
//! A misspelt variable has no effect, and nothing else would report it. A name is reported if it
//! starts with `TOLLGATE_` or `REDIS_`, or if it differs from a setting in one or two characters.
//! Kubernetes sets variables for each service, such as `REDIS_SERVICE_HOST` and `REDIS_PORT`; these
//! names are exempt.
//!
//! What it deliberately does not do: read a value. Some of them are secrets.

use strsim::damerau_levenshtein;

use crate::settings::reference_variables::UNREAD_VARIABLES;
use crate::settings::{OTEL_VARIABLES, REDIS_VARIABLES};

/// Maximum warnings. One more line tells how many variables are not listed.
const WARNINGS_MAX: usize = 20;

/// Longest name that is compared with the settings, in bytes. No setting is as long.
const NAME_BYTES_MAX: usize = 64;

/// The shortest setting that a name of another prefix is compared with. Shorter ones, such as
/// `HOST`, are too near to variables of other programs.
const SETTING_BYTES_MIN: usize = 8;

/// Prefixes of names that can only be meant for this program.
const PREFIXES: [&str; 2] = ["TOLLGATE_", "REDIS_"];

/// Warnings about the variables in `set`, of which `settings` are known.
pub fn warnings(set: &[&str], settings: &[&str]) -> Vec<String> {
    let mut known: Vec<&str> = settings.to_vec();
    known.extend(UNREAD_VARIABLES.iter().map(|(name, _)| *name));
    known.extend(REDIS_VARIABLES);
    known.extend(OTEL_VARIABLES);
    let mut unknown: Vec<String> = set
        .iter()
        .filter(|name| !known.contains(name) && !set_by_kubernetes(name))
        .filter_map(|name| warning(name, &known))
        .collect();
    unknown.sort_unstable();
    let more = unknown.len().saturating_sub(WARNINGS_MAX);
    if more > 0 {
        unknown.truncate(WARNINGS_MAX);
        unknown.push(format!(
            "{more} more environment variables are not settings"
        ));
    }
    unknown
}

/// A name that Kubernetes gives to the addresses of a service.
fn set_by_kubernetes(name: &str) -> bool {
    name.contains("_SERVICE_") || name.contains("_PORT")
}

fn warning(name: &str, known: &[&str]) -> Option<String> {
    let own = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    match nearest(name, known, own) {
        Some(setting) => Some(format!(
            "the environment variable {name} is not a setting and has no effect; did you mean {setting}?"
        )),
        None if own.is_some() => {
            let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
            let shown = shown.escape_debug();
            Some(format!(
                "the environment variable {shown} is not a setting and has no effect; `tollgate serve --help` lists the settings"
            ))
        }
        None => None,
    }
}

/// The setting that a name most likely stands for. `own` is what follows a prefix of ours.
fn nearest<'k>(name: &str, known: &[&'k str], own: Option<&str>) -> Option<&'k str> {
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let upper = name.to_ascii_uppercase();
    // The prefix in front of a setting that has none, and the reverse.
    let without = upper.strip_prefix("TOLLGATE_");
    let with = format!("TOLLGATE_{upper}");
    let exact = |setting: &&&str| {
        let named = **setting;
        without == Some(named)
            || (named.len() >= SETTING_BYTES_MIN && (named == upper || named == with))
    };
    if let Some(setting) = known.iter().find(exact) {
        return Some(setting);
    }
    if upper.starts_with("OTEL_") {
        // OpenTelemetry defines more variables than tollgate reads.
        return None;
    }
    // A prefix of ours makes the meaning certain, so more of the rest may differ.
    let far = own.map_or(2, |rest| (rest.len() / 3).max(2));
    let candidates = known.iter().filter(|setting| {
        setting.len().abs_diff(upper.len()) <= far
            && (own.is_some() || setting.len() >= SETTING_BYTES_MIN)
    });
    let measured = candidates.map(|setting| (damerau_levenshtein(&upper, setting), *setting));
    let nearest = measured.filter(|(distance, _)| *distance <= far).min();
    nearest.map(|(_, setting)| setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: [&str; 6] = [
        "TOLLGATE_MEMORY_MAX",
        "TOLLGATE_STORE",
        "LOG_LEVEL",
        "HOST",
        "GRPC_UDS",
        "REDIS_TLS_CACERT",
    ];

    fn warned(name: &str) -> String {
        warnings(&[name], &SETTINGS).concat()
    }

    #[test]
    fn a_misspelt_name_is_reported_with_the_nearest_setting() {
        for (name, setting) in [
            ("TOLLGATE_MEMROY_MAX", "TOLLGATE_MEMORY_MAX"),
            ("TOLLGATE_LOG_LEVEL", "LOG_LEVEL"),
            ("TOLLGATE_HOST", "HOST"),
            ("tollgate_store", "TOLLGATE_STORE"),
            ("REDIS_ATH", "REDIS_AUTH"),
            ("LOG_LEVLE", "LOG_LEVEL"),
            ("LOGLEVEL", "LOG_LEVEL"),
            ("MEMORY_MAX", "TOLLGATE_MEMORY_MAX"),
            ("GRPC_UD", "GRPC_UDS"),
        ] {
            let warning = warned(name);
            assert!(
                warning.contains(&format!(" {name} is not")),
                "{name}: {warning}"
            );
            assert!(
                warning.ends_with(&format!("did you mean {setting}?")),
                "{name}: {warning}"
            );
        }
    }

    #[test]
    fn an_unknown_name_of_ours_is_reported_without_a_guess() {
        for name in ["TOLLGATE_BREAKFAST", "REDIS_COFFEE_BREAKS"] {
            assert!(warned(name).contains("--help"), "{name}");
        }
        let long = format!("TOLLGATE_{}", "X".repeat(5_000));
        assert!(warned(&long).len() < 300);
        assert!(!warned("TOLLGATE_\u{1b}[31m").contains('\u{1b}'));
    }

    #[test]
    fn settings_and_names_of_other_programs_are_not_reported() {
        for name in [
            "TOLLGATE_STORE",
            "REDIS_URL",
            "REDIS_POOL_SIZE",
            "OTEL_BLRP_SCHEDULE_DELAY",
            // Envoy Gateway sets it, and the reference does not read it.
            "GRPC_SERVER_TLS_CA_CERT",
            "HOSTNAME",
            "HOME",
            "POST",
            "PATH",
            "REDIS_SERVICE_HOST",
            "REDIS_PORT_6379_TCP_ADDR",
            "TOLLGATE_PORT",
            "TOLLGATE_SERVICE_PORT_GRPC",
        ] {
            assert_eq!(warned(name), "", "{name}");
        }
    }

    #[test]
    fn the_number_of_warnings_is_bounded() {
        let names: Vec<String> = (0..500).map(|at| format!("TOLLGATE_X{at:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let warnings = warnings(&names, &SETTINGS);
        assert_eq!(warnings.len(), WARNINGS_MAX + 1);
        assert_eq!(
            warnings[WARNINGS_MAX],
            "480 more environment variables are not settings"
        );
    }
}
