//! The results as JSON. `docs/rule-tests.md` describes it.

use serde_json::{Value, json};

use super::session::{FileFailure, FileResult, Session, TestOutcome};
use super::text::explained_lines;
use crate::cli::check_format::diagnostic_json;
use crate::rule_tests::{Failure, LoadFailure, PlayedProxies, PlayedProxy};

/// The results of a run.
pub(super) fn report(session: &Session) -> Value {
    let (passed, failed) = session.counts();
    let tests: Vec<_> = session
        .tests()
        .map(|(file, test)| test_json(file, test))
        .collect();
    let invalid: Vec<_> = session.failures.iter().map(file_json).collect();
    let coverage = &session.coverage;
    let unreached = coverage.unreached().into_iter();
    let unreached =
        unreached.map(|rule| json!({"file": rule.file, "rule": rule.rule, "limit": rule.limit}));
    json!({
        "passed": session.passed(),
        "counts": {"passed": passed, "failed": failed, "filtered": session.filtered},
        "tests": tests,
        "invalid_files": invalid,
        "coverage": {
            "rules": coverage.rules(),
            "reached": coverage.reached(),
            "percent": coverage.percent(),
            "minimum": session.coverage_min,
            "unreached": unreached.collect::<Vec<_>>(),
        },
    })
}

fn test_json(file: &FileResult, test: &TestOutcome) -> Value {
    let result = test.result.as_ref();
    let failures =
        result.map(|result| result.failures.iter().map(failure_json).collect::<Vec<_>>());
    json!({
        "file": file.file.name,
        "name": test.name,
        "line": test.span.at.line,
        "column": test.span.at.column,
        "passed": test.passed(),
        "requests": result.map_or(0, |result| result.requests),
        "failures": failures.unwrap_or_default(),
        "failures_omitted": result.map_or(0, |result| result.failures_omitted),
        "error": result.err(),
    })
}

fn failure_json(failure: &Failure) -> Value {
    let differences = failure.differences.iter().map(|difference| {
        json!({
            "field": difference.field,
            "line": difference.span.at.line,
            "column": difference.span.at.column,
            "expected": difference.expected,
            "actual": difference.actual,
        })
    });
    json!({
        "step": failure.step,
        "line": failure.span.at.line,
        "column": failure.span.at.column,
        "time": failure.time,
        "action": failure.action,
        "differences": differences.collect::<Vec<_>>(),
        "explain": explained_lines(failure),
        "played": failure.played.as_ref().map(played_json),
    })
}

fn played_json(played: &PlayedProxies) -> Value {
    let total = &played.total;
    let proxy = |proxy: &PlayedProxy| json!({ "name": proxy.name, "offered": proxy.offered, "passed": proxy.passed });
    json!({
        "proxies": played.proxies.iter().map(proxy).collect::<Vec<_>>(),
        "total": { "offered": total.offered, "passed": total.passed },
    })
}

fn file_json(failure: &FileFailure) -> Value {
    let (message, diagnostics) = match &failure.failure {
        LoadFailure::Read(error) => (Some(error.to_string()), Vec::new()),
        LoadFailure::Reports { reports, .. } => {
            let diagnostics = reports.iter().flat_map(|report| report.diagnostics());
            (None, diagnostics.map(diagnostic_json).collect())
        }
    };
    json!({"file": failure.path, "message": message, "diagnostics": diagnostics})
}
