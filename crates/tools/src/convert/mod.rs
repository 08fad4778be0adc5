//! Configurations of other rate limiters as rules files, and the Envoy actions of a rules file.
//!
//! | file | what |
//! | --- | --- |
//! | [`limitador`] | limits files of limitador |
//! | [`asp_net_core`] | settings of AspNetCoreRateLimit |
//! | [`envoy_actions`] | the rate limit actions that build the descriptors of a rules file |
//! | `rules_text` | a rules file as it is written |
//!
//! Every rules file that a conversion returns has been loaded without an error. What has no equal
//! is a [`Finding`].
//!
//! What it deliberately does not do: read or write files (`cli`), or evaluate rules.

pub mod asp_net_core;
pub mod envoy_actions;
pub mod limitador;
mod rules_text;

use std::fmt;
use std::rc::Rc;

use self::rules_text::RulesText;
use tollgate_rules::excerpt::printable;
use tollgate_rules::file;
use tollgate_rules::path::Source;
use tollgate_rules::yaml::{self, Node, Position, Span};

/// A rules file that a conversion wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConvertedRules {
    /// Its domain.
    pub domain: String,
    /// Its YAML text.
    pub text: String,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conversion {
    /// One file for each domain, in the order of the input.
    pub rules: Vec<ConvertedRules>,
    /// What has no equal, or behaves differently, in the order of the input.
    pub findings: Vec<Finding>,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// It is left out, because it has no equal.
    Gap,
    /// It is converted; the note says what to set elsewhere, or what differs.
    Note,
}

/// What has no equal or behaves differently, where, and what to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// The place in it.
    pub at: Position,
    /// What was found.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// Why nothing was converted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConvertError {
    /// A file that has another form.
    #[error("{0}")]
    Input(Finding),
    /// The rules that were written do not load.
    #[error("the converted rules are invalid, which is a defect of tollgate:\n{0}")]
    Defect(String),
}

// === impl Finding ===

impl Finding {
    fn gap(file: &str, span: Span, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            severity: Severity::Gap,
            file: file.to_owned(),
            at: span.at,
            message: message.into(),
            help: help.into(),
        }
    }

    fn note(file: &str, span: Span, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::gap(file, span, message, help)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Gap => "warning",
            Severity::Note => "note",
        };
        let Position { line, column } = self.at;
        write!(
            f,
            "{}:{line}:{column}: {severity}: {}\n  help: {}",
            printable(&self.file),
            printable(&self.message),
            printable(&self.help)
        )
    }
}

// === impl Conversion ===

impl Conversion {
    /// Whether everything has an equal.
    pub fn is_complete(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.all(|finding| finding.severity == Severity::Note)
    }

    /// The conversion to these files. Fails if one of them does not load.
    fn checked(files: Vec<RulesText>, mut findings: Vec<Finding>) -> Result<Self, ConvertError> {
        findings.sort_by(|one, other| (&one.file, one.at).cmp(&(&other.file, other.at)));
        findings.dedup();
        let mut rules = Vec::new();
        for file in files {
            if let Some(error) = load_error(&file) {
                return Err(ConvertError::Defect(error));
            }
            rules.push(ConvertedRules {
                text: file.to_string(),
                domain: file.domain,
            });
        }
        Ok(Self { rules, findings })
    }
}

/// The first error of a rules file; none if it loads.
fn load_error(rules: &RulesText) -> Option<String> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: rules.to_string(),
    };
    let report = file::load(&[source], file::Options::default()).err()?;
    let first = report.errors.first();
    first.map(|error| format!("{} ({})", error.message, error.help))
}

/// The root of a YAML document. None for an empty one. The origins refuse several documents.
fn document(file: &str, text: &str) -> Result<Option<Rc<Node>>, ConvertError> {
    let input = |span, message: &str, help| {
        let finding = Finding::gap(file, span, message, help);
        ConvertError::Input(finding)
    };
    let document = yaml::parse(text)
        .map_err(|error| input(error.span, &error.message, "fix the syntax here"))?;
    match document.ignored {
        None => Ok(document.root),
        Some(span) => Err(input(
            span,
            "this follows the first document of the file",
            "put it into a file of its own, or remove it",
        )),
    }
}
