//! The results as JUnit's XML: one suite a file.

use std::fmt::Write as _;

use super::cases::{Case, CaseOutcome, cases};
use super::session::Session;

/// The document.
pub(super) fn report(session: &Session) -> String {
    let cases = cases(session);
    let (failures, errors) = counts(&cases);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // A String takes everything that is written to it.
    let _ = writeln!(
        xml,
        "<testsuites name=\"tollgate test\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\">",
        cases.len()
    );
    for suite in cases.chunk_by(|one, next| one.file == next.file) {
        let (failures, errors) = counts(suite);
        let name = suite.first().map_or("", |case| case.file.as_str());
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\">",
            escaped(name),
            suite.len()
        );
        for case in suite {
            write_case(&mut xml, case);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>");
    xml
}

/// How many cases failed, and how many could not run.
fn counts(cases: &[Case]) -> (usize, usize) {
    let failures = cases
        .iter()
        .filter(|case| matches!(case.outcome, CaseOutcome::Failed(_)));
    let errors = cases
        .iter()
        .filter(|case| matches!(case.outcome, CaseOutcome::Error(_)));
    (failures.count(), errors.count())
}

fn write_case(xml: &mut String, case: &Case) {
    let head = format!(
        "    <testcase name=\"{}\" classname=\"{}\"",
        escaped(&case.name),
        escaped(&case.file)
    );
    xml.push_str(&head);
    let (element, lines) = match &case.outcome {
        CaseOutcome::Passed => {
            xml.push_str("/>\n");
            return;
        }
        CaseOutcome::Failed(lines) => ("failure", lines),
        CaseOutcome::Error(lines) => ("error", lines),
    };
    let message = lines.first().map_or("", String::as_str);
    let _ = writeln!(
        xml,
        ">\n      <{element} message=\"{}\">{}</{element}>\n    </testcase>",
        escaped(message),
        escaped(&lines.join("\n"))
    );
}

/// Text as XML has it. Characters that XML cannot have are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(char),
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            char => escaped.push(char),
        }
    }
    escaped
}
