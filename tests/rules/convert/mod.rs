//! `tollgate convert`: thirty files of each origin, their rules beside them, and a model of the
//! origin that decides as the rules do.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `snapshots` | what is printed for each file |
//! | `planted` | faults in the rules, each of which a random request shows |
//! | `decisions` | a thousand random requests for each file, by the model and by the rules |
//! | `limitador_model`, `asp_net_core_model` | the origins, by their documentation, without their code |
//! | `expression_model` | conditions of limitador, evaluated |
//! | `envoy_model` | Envoy: the descriptors of a request by the actions of `convert --envoy` |
//! | `decider` | the pipeline and the memory store at a manual time |
//! | `settings_text` | JSON with comments and YAML as values |
//!
//! Both sides count in windows that begin at the full unit: that windows of the origins begin with
//! the first hit is a documented difference.

mod asp_net_core_model;
mod decider;
mod decisions;
mod envoy_model;
mod expression_model;
mod limitador_model;
mod planted;
mod settings_text;
mod snapshots;

use std::path::{Path, PathBuf};

use tollgate::convert::envoy_actions::{KeySources, actions};
use tollgate::convert::{Conversion, asp_net_core, limitador};
use tollgate::rules::file::{LoadedRules, load};

use crate::rules::reading::{APART, source};

/// The two origins: a folder each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Origin {
    Limitador,
    AspNetCore,
}

/// A file and its conversion.
struct Case {
    origin: Origin,
    name: String,
    path: PathBuf,
    text: String,
    conversion: Conversion,
}

impl Origin {
    fn folder(self) -> PathBuf {
        let folder = match self {
            Self::Limitador => "limitador",
            Self::AspNetCore => "asp_net_core",
        };
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/rules/convert")
            .join(folder)
    }

    fn convert(self, name: &str, text: &str) -> Conversion {
        let source = [source(name, text)];
        let converted = match self {
            Self::Limitador => limitador::convert(&source, None, false),
            Self::AspNetCore => asp_net_core::convert(&source, None),
        };
        converted.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The files, in order.
    fn cases(self) -> Vec<Case> {
        let mut paths: Vec<_> = std::fs::read_dir(self.folder())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                name.matches('.').count() == 1
                    && (name.split('.').any(|end| matches!(end, "json" | "yaml")))
            })
            .collect();
        paths.sort();
        let case = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let conversion = self.convert(&name, &text);
            Case {
                origin: self,
                name,
                path,
                text,
                conversion,
            }
        };
        paths.into_iter().map(case).collect()
    }
}

impl Case {
    /// Whether stderr says this.
    fn says(&self, words: &str) -> bool {
        let mut findings = self.conversion.findings.iter();
        findings.any(|finding| finding.to_string().contains(words))
    }

    /// What the rules file's comment tells to add to `convert --envoy`.
    fn key_sources(rules: &str) -> KeySources {
        let option = |name: &str| {
            let comment = rules
                .lines()
                .find(|line| line.starts_with("# Envoy's actions"));
            let words: Vec<_> = comment.unwrap_or_default().split(' ').collect();
            let at = words.iter().position(|word| *word == name)?;
            let pair = words[at + 1].trim_matches('"').split_once('=')?;
            Some((pair.0.to_owned(), pair.1.to_owned()))
        };
        KeySources {
            headers: option("--header").into_iter().collect(),
            absent: option("--absent").into_iter().collect(),
        }
    }
}

/// Loads converted rules.
fn loaded(rules: &str) -> LoadedRules {
    load(&[source("rules.yaml", rules)], APART).unwrap_or_else(|report| panic!("{rules}\n{report}"))
}

/// What `convert --envoy` prints.
fn envoy_actions(rules: &str, sources: &KeySources) -> String {
    actions(&loaded(rules).rules, sources)
}
