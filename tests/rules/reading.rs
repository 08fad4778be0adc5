//! Loads rules from a text in one call.
//!
//! What it deliberately does not do: touch files. A source is a name and a text.

use tollgate::rules::file::{Diagnostic, LoadedRules, Options, Report, load};
use tollgate::rules::path::Source;
use tollgate_limiter::{Allowance, Entry, Limit, Match, Rule, RuleSet};

use crate::rules::schema::agreed;

/// Options: each domain in one file.
pub(crate) const APART: Options = Options {
    overlay: None,
    limit_files: None,
    isolate_domains: false,
    merge_domains: false,
};

/// Options: several files may hold rules of one domain.
pub(crate) const MERGED: Options = Options {
    overlay: None,
    limit_files: None,
    isolate_domains: false,
    merge_domains: true,
};

pub(crate) fn source(name: &str, text: &str) -> Source {
    Source {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

/// Loads one file; the schema must agree.
pub(crate) fn read(text: &str) -> Result<LoadedRules, Report> {
    let read = load(&[source("rules.yaml", text)], APART);
    agreed(text, &read);
    read
}

/// Loads a valid file.
pub(crate) fn good(text: &str) -> LoadedRules {
    read(text).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

/// The errors of an invalid file.
pub(crate) fn bad(text: &str) -> Vec<Diagnostic> {
    match read(text) {
        Ok(_) => panic!("this was accepted:\n{text}"),
        Err(report) => report.errors,
    }
}

/// What a diagnostic says, without the snippet.
pub(crate) fn words(diagnostic: &Diagnostic) -> String {
    let (file, at) = (&diagnostic.file, diagnostic.span.at);
    let rule = match diagnostic.path.as_str() {
        "" => String::new(),
        path => format!(", {path}"),
    };
    let (message, help) = (&diagnostic.message, &diagnostic.help);
    format!("{file}: {message}\n  at {file}:{at}{rule}\n  help: {help}")
}

/// The rule that a descriptor matches in domain `d`.
pub(crate) fn found<'r>(rules: &'r RuleSet, path: &[(&str, &str)]) -> Option<&'r Rule> {
    let entries: Vec<_> = path
        .iter()
        .map(|(key, value)| Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
        })
        .collect();
    match rules.find(b"d", &entries) {
        Match::Rules(matched) => matched.rules.first(),
        Match::None | Match::UnknownDomain => None,
    }
}

/// The rule at the only descriptor of a file, whose domain is `d` and whose key is `k`.
pub(crate) fn only(descriptor: &str) -> Rule {
    let text = format!("domain: d\ndescriptors:\n  - key: k\n    {descriptor}\n");
    good(&text).rules.rules()[0].clone()
}

/// The limit of a rule; none when it is unlimited.
pub(crate) fn limit(rule: &Rule) -> Option<Limit> {
    match rule.allowance {
        Allowance::Limited { limit, .. } => Some(limit),
        Allowance::Unlimited => None,
    }
}
