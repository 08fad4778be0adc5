//! The results as the Test Anything Protocol, version 14.

use super::cases::{CaseOutcome, cases};
use super::session::Session;

/// The document.
pub(super) fn report(session: &Session) -> String {
    let cases = cases(session);
    let mut lines = vec!["TAP version 14".to_owned(), format!("1..{}", cases.len())];
    for (position, case) in cases.iter().enumerate() {
        let number = position.saturating_add(1);
        let name = escaped(&format!("{}: {}", case.file, case.name));
        let (CaseOutcome::Failed(why) | CaseOutcome::Error(why)) = &case.outcome else {
            lines.push(format!("ok {number} - {name}"));
            continue;
        };
        lines.push(format!("not ok {number} - {name}"));
        lines.push("  ---".to_owned());
        lines.push("  message:".to_owned());
        // A JSON string is a YAML string.
        let why = why
            .iter()
            .map(|line| serde_json::Value::from(line.as_str()));
        lines.extend(why.map(|line| format!("    - {line}")));
        lines.push("  ...".to_owned());
    }
    lines.join("\n")
}

/// A description on one line, in which `#` begins no directive.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' | '#' => escaped.extend(['\\', char]),
            char if char.is_control() => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
