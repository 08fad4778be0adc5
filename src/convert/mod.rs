//! Configurations of other rate limiters as rules files, and the Envoy actions of a rules file.
//!
//! | file | what |
//! | --- | --- |
//! | [`limitador`] | limits files of limitador |
//! | [`asp_net_core`] | settings of AspNetCoreRateLimit |
//! | [`envoy_actions`] | the rate limit actions that build the descriptors of a rules file |
//! | `finding` | what has no equal, with its place |
//! | `rules_text` | a rules file as it is written |
//! | `yaml_text` | scalars and comments of YAML |
//! | `window` | seconds as a unit and a multiplier |
//!
//! Every rules file that a conversion returns has been loaded without an error. What has no equal
//! is a [`Finding`].
//!
//! What it deliberately does not do: read or write files (`cli`), or evaluate rules.

pub mod asp_net_core;
pub mod envoy_actions;
mod finding;
pub mod limitador;
mod rules_text;
mod window;
mod yaml_text;

pub use self::finding::{Finding, Severity};
use self::rules_text::RulesText;
use crate::rules::file;
use crate::rules::path::Source;
use crate::rules::yaml::{self, Node};

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

// === impl Conversion ===

impl Conversion {
    /// Whether everything has an equal.
    pub fn is_complete(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.all(|finding| finding.severity == Severity::Note)
    }

    /// The conversion to these files. Fails if one of them does not load.
    fn checked(files: Vec<RulesText>, mut findings: Vec<Finding>) -> Result<Self, ConvertError> {
        findings.sort_by(|one, other| one.place().cmp(&other.place()));
        findings.dedup();
        let mut rules = Vec::new();
        for file in files {
            let text = file.to_string();
            if let Some(error) = load_error(&text) {
                return Err(ConvertError::Defect(error));
            }
            rules.push(ConvertedRules {
                domain: file.domain,
                text,
            });
        }
        Ok(Self { rules, findings })
    }
}

/// The first error of a rules file; none if it loads.
fn load_error(text: &str) -> Option<String> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    let report = file::load(&[source], file::Options::default()).err()?;
    let first = report.errors.first();
    first.map(|error| format!("{} ({})", error.message, error.help))
}

/// The root of a YAML document. None for an empty one. The origins refuse several documents.
fn document(file: &str, text: &str) -> Result<Option<std::rc::Rc<Node>>, ConvertError> {
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
