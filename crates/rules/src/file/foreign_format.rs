//! Files of other programs that are given as rules: which one it is, and what to do.
//!
//! Only a file that is no rules file anyway is examined: its root is a list, or has a key that no
//! rules file has. The reference's words stay the message; the help says what the file is.

use crate::excerpt::excerpt;
use crate::file::grammar::RULES;
use crate::yaml::{self, Content, Node, Span};

/// A file of another program.
#[derive(Debug)]
pub(super) struct ForeignFile {
    /// The place that shows it.
    pub(super) span: Span,
    /// The reference's words.
    pub(super) message: String,
    pub(super) format: ForeignFormat,
}

/// What a file is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ForeignFormat {
    /// Limits of limitador.
    Limitador,
    /// Settings of AspNetCoreRateLimit.
    AspNetCoreRateLimit,
    /// A file of Docker Compose.
    DockerCompose,
    /// A `ConfigMap` of Kubernetes whose entry of this name is a rules file.
    ConfigMap(String),
    /// A manifest of Kubernetes of this kind.
    Kubernetes(String),
    /// A configuration of Envoy.
    Envoy,
}

/// The keys of AspNetCoreRateLimit's sections.
const ASP_NET_CORE_SECTIONS: [&str; 4] = [
    "IpRateLimiting",
    "IpRateLimitPolicies",
    "ClientRateLimiting",
    "ClientRateLimitPolicies",
];

/// The keys by which an Envoy configuration is known.
const ENVOY_KEYS: [&str; 4] = [
    "static_resources",
    "dynamic_resources",
    "layered_runtime",
    "bootstrap_extensions",
];

/// Recognises a document of another program, by its nodes and its text.
pub(super) fn recognize(root: &Node, text: &str) -> Option<ForeignFile> {
    if let Content::Sequence(items) = &root.content {
        let first = items.first()?;
        let is_limit = |item: &Node| {
            item.field("namespace").is_some()
                && ["max_value", "seconds"]
                    .iter()
                    .any(|key| item.field(key).is_some())
        };
        return is_limit(first).then(|| ForeignFile {
            span: first.span,
            message: "error loading config file: yaml: cannot read a list as a mapping".to_owned(),
            format: ForeignFormat::Limitador,
        });
    }
    if root.field("domain").is_some() && root.field("descriptors").is_some() {
        return None;
    }
    let by_text = || is_asp_net_core_text(text).then_some(ForeignFormat::AspNetCoreRateLimit);
    let Content::Mapping(pairs) = &root.content else {
        // A comment of JSON is text to YAML.
        return by_text().map(|format| ForeignFile {
            span: root.span,
            message: "error loading config file: yaml: cannot read text as a mapping".to_owned(),
            format,
        });
    };
    let format = format_of_mapping(root).or_else(by_text)?;
    let mut keys = pairs.iter().map(|(key, _)| key);
    let unknown = keys.find(|key| key.text().is_some_and(|name| RULES.field(name).is_none()))?;
    Some(ForeignFile {
        span: unknown.span,
        message: format!(
            "config error, unknown key '{}'",
            excerpt(unknown.text().unwrap_or_default())
        ),
        format,
    })
}

fn format_of_mapping(root: &Node) -> Option<ForeignFormat> {
    if ASP_NET_CORE_SECTIONS
        .iter()
        .any(|section| root.field(section).is_some())
    {
        return Some(ForeignFormat::AspNetCoreRateLimit);
    }
    let kind = root.field("kind").and_then(Node::text);
    if let (Some(kind), Some(_)) = (kind, root.field("apiVersion").and_then(Node::text)) {
        let entry = (kind == "ConfigMap").then(|| rules_entry(root)).flatten();
        return Some(match entry {
            Some(name) => ForeignFormat::ConfigMap(name.to_owned()),
            None => ForeignFormat::Kubernetes(kind.to_owned()),
        });
    }
    if ENVOY_KEYS.iter().any(|key| root.field(key).is_some()) {
        return Some(ForeignFormat::Envoy);
    }
    let is_service = |service: &Node| {
        ["image", "build", "extends"]
            .iter()
            .any(|key| service.field(key).is_some())
    };
    match root.field("services").map(|services| &services.content) {
        Some(Content::Mapping(services)) if services.iter().any(|(_, one)| is_service(one)) => {
            Some(ForeignFormat::DockerCompose)
        }
        _ => None,
    }
}

/// The name of the first entry of a `ConfigMap` that is a rules file.
fn rules_entry(root: &Node) -> Option<&str> {
    let Content::Mapping(entries) = &root.field("data")?.content else {
        return None;
    };
    let mut entries = entries.iter();
    entries.find_map(|(name, value)| {
        let document = yaml::parse(value.text()?).ok()?.root?;
        document.field("domain")?;
        name.text()
    })
}

/// Whether a text is JSON, perhaps with comments, that has a section of AspNetCoreRateLimit. .NET
/// reads such files; to YAML, comments are no comments.
pub(super) fn is_asp_net_core_text(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    ['{', '/'].iter().any(|first| text.starts_with(*first))
        && ASP_NET_CORE_SECTIONS.iter().any(|section| {
            let quoted = format!("\"{section}\"");
            let mut found = text.match_indices(&quoted);
            found.any(|(at, _)| {
                let after = text.get(at.saturating_add(quoted.len())..);
                after.is_some_and(|after| after.trim_start().starts_with(':'))
            })
        })
}

// === impl ForeignFormat ===

impl ForeignFormat {
    /// What the file is, and what to do.
    pub(super) fn help(&self) -> String {
        let elsewhere = "move it out of the rules directory, or name the rules file";
        let (what, help) = match self {
            Self::Limitador => (
                "a limits file of limitador",
                "`tollgate convert --from limitador FILE` prints it as rules: docs/guides/from-limitador.md",
            ),
            Self::AspNetCoreRateLimit => (
                "a settings file of AspNetCoreRateLimit",
                "`tollgate convert --from aspnetcoreratelimit FILE` prints it as rules: docs/dotnet.md",
            ),
            Self::DockerCompose => ("a Docker Compose file", elsewhere),
            Self::ConfigMap(name) => {
                let name = excerpt(name);
                return format!(
                    "this is a Kubernetes ConfigMap; save the text of its entry '{name}' as a file of its own"
                );
            }
            Self::Kubernetes(kind) => {
                let help = if kind == "RateLimitPolicy" {
                    "docs/guides/from-limitador.md says how to write it as rules"
                } else {
                    elsewhere
                };
                return format!("this is a Kubernetes manifest ({}); {help}", excerpt(kind));
            }
            Self::Envoy => ("an Envoy configuration", elsewhere),
        };
        format!("this is {what}; {help}")
    }
}
