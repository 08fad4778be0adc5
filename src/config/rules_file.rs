//! Rules files: YAML text in, a [`RuleSet`] or every problem out.
//!
//! The grammar is that of Envoy's reference service, and so is the first line of each message; then come file, line and
//! column, the path of the rule, and what to do. One bad file refuses them all: a rule set is taken whole or not at all.
//!
//! Each file is walked once. A problem is noted and the walk goes on, so that one run shows them all.
//!
//! What it deliberately does not do: read files (`rules_path`), or yet know `quota_mode`, `detailed_metric`,
//! `value_to_metric`, `share_threshold` and `metadata` (they are refused by name, not ignored).

use std::fmt;
use std::num::NonZeroU32;

use super::rules_path::Source;
use super::yaml::{self, Content, Node};
use crate::limiter::algorithm;
use crate::limiter::rule::Parent;
use crate::limiter::{ALGORITHMS, Allowance, Limit, LimitError, Rule, RuleSet, Unit};

pub use super::yaml::Position;

/// How many descriptors all files may hold together, aliases unfolded.
pub const DESCRIPTORS_MAX: usize = 1_000_000;

/// How many problems are reported in one run.
pub const PROBLEMS_MAX: usize = 100;

/// The names that a rules file may use, wherever they stand.
const NAMES: &[&str] = &[
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "unit_multiplier",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "name",
    "replaces",
    "algorithm",
    "burst",
];

/// Names of the reference's grammar that this version does not know yet.
const NOT_YET: &[&str] = &[
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// One thing wrong with one file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Where in it.
    pub at: Position,
    /// What is wrong, in the reference's words where it has any.
    pub message: String,
    /// The rule, as `descriptors[0].rate_limit`; empty at the root.
    pub path: String,
    /// What to do.
    pub advice: String,
}

/// The rule set that `sources` describe.
///
/// # Errors
///
/// Every problem of every file, at most [`PROBLEMS_MAX`].
pub fn load(sources: &[Source]) -> Result<RuleSet, Vec<Problem>> {
    let mut loader = Loader::default();
    for source in sources {
        loader.file = &source.name;
        loader.load(&source.text);
    }
    loader.problems.truncate(PROBLEMS_MAX);
    if loader.problems.is_empty() {
        Ok(loader.rules)
    } else {
        Err(loader.problems)
    }
}

/// The walk's state.
#[derive(Default)]
struct Loader<'s> {
    rules: RuleSet,
    problems: Vec<Problem>,
    /// The file being walked.
    file: &'s str,
    /// Descriptors met so far, in all files.
    descriptors: usize,
    /// That the bound on them was met has been said.
    too_many_said: bool,
}

/// Where the walk stands: what the path of a problem is made of.
#[derive(Clone)]
struct Place {
    path: String,
    domain: String,
    levels: Vec<(String, String)>,
}

/// The values of one mapping by name; of a name that stands twice, the last.
struct Fields<'n> {
    at: Position,
    pairs: Vec<(&'n str, &'n Node)>,
}

// === impl Loader ===

impl Loader<'_> {
    fn load(&mut self, text: &str) {
        let place = Place {
            path: String::new(),
            domain: String::new(),
            levels: Vec::new(),
        };
        let root = match yaml::parse(text) {
            Ok(Some(root)) if !root.is_null() => root,
            Ok(_) => return self.empty_domain(Position { line: 1, column: 1 }, &place),
            Err(error) => {
                let message = format!("error loading config file: yaml: {}", error.message);
                return self.problem(error.at, &place, message, "mend the YAML at this place");
            }
        };
        let Some(fields) = self.fields(&root, &place, &["domain", "descriptors"]) else {
            return;
        };
        let domain = match fields.get("domain") {
            Some(node) => self.text(node, &place, "domain").unwrap_or_default(),
            None => "",
        };
        if domain.is_empty() {
            self.empty_domain(fields.at, &place);
        } else if !self.rules.add_domain(domain) {
            self.problem(
                fields.get("domain").map_or(fields.at, |node| node.at),
                &place,
                format!("duplicate domain '{domain}' in config file"),
                "keep all rules of a domain in one file",
            );
            return;
        }
        let place = Place {
            domain: domain.to_owned(),
            ..place
        };
        let parent = (!domain.is_empty()).then_some(Parent::Domain(domain));
        self.descriptors(&fields, &place, parent);
    }

    fn empty_domain(&mut self, at: Position, place: &Place) {
        self.problem(
            at,
            place,
            "config file cannot have empty domain".to_owned(),
            "add `domain: NAME`, the domain that Envoy's rate limit filter names",
        );
    }

    /// Walks a list of descriptors. Without a parent they are only checked: what they would hang on is itself wrong.
    fn descriptors(&mut self, fields: &Fields<'_>, place: &Place, parent: Option<Parent<'_>>) {
        let Some(list) = fields.get("descriptors") else {
            return;
        };
        let Content::Sequence(items) = &list.content else {
            if !list.is_null() {
                self.problem(
                    list.at,
                    place,
                    "error loading config file: yaml: descriptors is not a list".to_owned(),
                    "write each descriptor as a list item: `- key: …`",
                );
            }
            return;
        };
        for (position, item) in items.iter().enumerate() {
            self.descriptors = self.descriptors.saturating_add(1);
            if self.descriptors > DESCRIPTORS_MAX {
                if !self.too_many_said {
                    self.too_many_said = true;
                    self.problem(
                        item.at,
                        place,
                        format!("more than {DESCRIPTORS_MAX} descriptors"),
                        "use wildcards or defaults instead of one rule a value; look for aliases that unfold",
                    );
                }
                return;
            }
            if self.problems.len() >= PROBLEMS_MAX {
                return;
            }
            self.descriptor(item, &place.item("descriptors", position), parent);
        }
    }

    fn descriptor(&mut self, node: &Node, place: &Place, parent: Option<Parent<'_>>) {
        const HERE: &[&str] = &["key", "value", "rate_limit", "descriptors", "shadow_mode"];
        let Some(fields) = self.fields(node, place, HERE) else {
            return;
        };
        let key = self.optional_text(&fields, place, "key");
        let value = self.optional_text(&fields, place, "value");
        if key.is_empty() {
            self.problem(
                fields.at,
                place,
                "descriptor has empty key".to_owned(),
                "add `key: NAME`, the descriptor key that Envoy sends",
            );
        }
        let mut place = place.clone();
        place.levels.push((key.to_owned(), value.to_owned()));
        let node = parent
            .filter(|_| !key.is_empty())
            .and_then(|parent| self.add_node(&fields, &place, parent, key, value));
        let shadow_mode = self.boolean(&fields, &place, "shadow_mode");
        if let Some(rate_limit) = fields.get("rate_limit").filter(|node| !node.is_null()) {
            let place = place.field("rate_limit");
            if let Some(mut rule) = self.rate_limit(rate_limit, &place) {
                rule.shadow_mode = shadow_mode;
                if let Some(node) = node {
                    self.rules.set_rule(node, rule);
                }
            }
        }
        self.descriptors(&fields, &place, node.map(Parent::Node));
    }

    fn add_node(
        &mut self,
        fields: &Fields<'_>,
        place: &Place,
        parent: Parent<'_>,
        key: &str,
        value: &str,
    ) -> Option<usize> {
        let node = self.rules.add_node(parent, key, value);
        if node.is_none() {
            let name = place.rule().full_name();
            self.problem(
                fields.get("key").map_or(fields.at, |node| node.at),
                place,
                format!("duplicate descriptor composite key '{name}'"),
                "join the two into one descriptor, or give one another value",
            );
        }
        node
    }

    fn rate_limit(&mut self, node: &Node, place: &Place) -> Option<Rule> {
        const HERE: &[&str] = &[
            "unit",
            "unit_multiplier",
            "requests_per_unit",
            "unlimited",
            "name",
            "replaces",
            "algorithm",
            "burst",
        ];
        let fields = self.fields(node, place, HERE)?;
        let problems_before = self.problems.len();
        let unlimited = self.boolean(&fields, place, "unlimited");
        let unit_text = self.optional_text(&fields, place, "unit");
        let unit = Unit::named(unit_text);
        let allowance = match (unlimited, unit) {
            (true, None) => Some(Allowance::Unlimited),
            (true, Some(_)) => {
                self.problem(
                    fields.get("unit").map_or(fields.at, |node| node.at),
                    place,
                    "should not specify rate limit unit when unlimited".to_owned(),
                    "remove `unit`, or remove `unlimited`",
                );
                None
            }
            (false, None) => {
                let units: Vec<_> = Unit::ALL.iter().map(|unit| unit.name()).collect();
                self.problem(
                    fields.get("unit").map_or(fields.at, |node| node.at),
                    place,
                    format!("invalid rate limit unit '{unit_text}'"),
                    &format!("use one of {}", units.join(", ")),
                );
                None
            }
            (false, Some(unit)) => self.limited(&fields, place, unit),
        };
        let name = self.optional_text(&fields, place, "name").to_owned();
        let replaces = self.replaces(&fields, place, &name);
        if self.problems.len() > problems_before {
            return None;
        }
        Some(Rule {
            name,
            allowance: allowance?,
            replaces,
            ..place.rule()
        })
    }

    fn limited(&mut self, fields: &Fields<'_>, place: &Place, unit: Unit) -> Option<Allowance> {
        let requests_per_unit = self
            .integer(fields, place, "requests_per_unit")
            .unwrap_or_default();
        let unit_multiplier = self.integer(fields, place, "unit_multiplier").unwrap_or(1);
        let Some(unit_multiplier) = NonZeroU32::new(unit_multiplier) else {
            self.problem(
                fields
                    .get("unit_multiplier")
                    .map_or(fields.at, |node| node.at),
                place,
                "unit_multiplier must be at least 1".to_owned(),
                "remove it for a window of one unit",
            );
            return None;
        };
        let burst = self.integer(fields, place, "burst");
        let name = self.optional_text(fields, place, "algorithm");
        let algorithm = if name.is_empty() {
            ALGORITHMS.first().copied()
        } else {
            algorithm::named(name)
        };
        let Some(algorithm) = algorithm else {
            let names: Vec<_> = ALGORITHMS.iter().map(|known| known.name()).collect();
            self.problem(
                fields.get("algorithm").map_or(fields.at, |node| node.at),
                place,
                format!("unknown algorithm '{name}'"),
                &format!("use one of {}", names.join(", ")),
            );
            return None;
        };
        if burst.is_some() && !algorithm.has_burst() {
            self.problem(
                fields.get("burst").map_or(fields.at, |node| node.at),
                place,
                format!("algorithm {} has no burst", algorithm.name()),
                "remove `burst`, or set `algorithm: token_bucket`",
            );
            return None;
        }
        match Limit::new(requests_per_unit, unit, unit_multiplier, burst) {
            Ok(limit) => Some(Allowance::Limited { limit, algorithm }),
            Err(error) => {
                let advice = match error {
                    LimitError::ZeroBurst => "remove `burst` for one as large as the limit",
                    LimitError::BurstWithoutRate => {
                        "remove `burst`: a limit of 0 refuses everything"
                    }
                };
                let at = fields.get("burst").map_or(fields.at, |node| node.at);
                self.problem(at, place, error.to_string(), advice);
                None
            }
        }
    }

    fn replaces(&mut self, fields: &Fields<'_>, place: &Place, own_name: &str) -> Vec<String> {
        let Some(list) = fields.get("replaces").filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let Content::Sequence(items) = &list.content else {
            self.problem(
                list.at,
                place,
                "error loading config file: yaml: replaces is not a list".to_owned(),
                "write it as a list: `replaces: [{name: OTHER}]`",
            );
            return Vec::new();
        };
        let mut names = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let place = place.item("replaces", position);
            let Some(fields) = self.fields(item, &place, &["name"]) else {
                continue;
            };
            let name = self.optional_text(&fields, &place, "name");
            if name.is_empty() {
                self.problem(
                    item.at,
                    &place,
                    "should not have an empty replaces entry".to_owned(),
                    "name the rule to replace, or remove the entry",
                );
            } else if name == own_name {
                self.problem(
                    item.at,
                    &place,
                    "replaces should not contain name of same descriptor".to_owned(),
                    "a rule cannot replace itself; remove the entry",
                );
            } else {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// The fields of a mapping, each known and in a place where it means something.
    fn fields<'n>(&mut self, node: &'n Node, place: &Place, here: &[&str]) -> Option<Fields<'n>> {
        let pairs = match &node.content {
            Content::Mapping(pairs) => pairs.as_slice(),
            _ if node.is_null() => &[],
            Content::Scalar { text, .. } => {
                let message = if place.path.is_empty() {
                    format!("error loading config file: yaml: cannot unmarshal '{text}'")
                } else {
                    format!("config error, yaml file contains list of type other than map: {text}")
                };
                self.problem(node.at, place, message, "write `name: value` pairs here");
                return None;
            }
            Content::Sequence(_) => {
                let message = "error loading config file: yaml: cannot unmarshal a list";
                let advice = "write `name: value` pairs here";
                self.problem(node.at, place, message.to_owned(), advice);
                return None;
            }
        };
        let mut fields = Fields {
            at: node.at,
            pairs: Vec::with_capacity(pairs.len()),
        };
        for (key, value) in pairs {
            let Some(name) = key.text() else {
                let message = "config error, key is not of type string: a list or mapping";
                self.problem(key.at, place, message.to_owned(), "use a plain name");
                continue;
            };
            if here.contains(&name) {
                fields.pairs.retain(|(other, _)| *other != name);
                fields.pairs.push((name, value));
            } else {
                self.misplaced(key.at, place, name, here);
            }
        }
        Some(fields)
    }

    fn misplaced(&mut self, at: Position, place: &Place, name: &str, here: &[&str]) {
        let (message, advice) = if NOT_YET.contains(&name) {
            (
                format!("'{name}' is not supported by this version of tollgate"),
                "remove it".to_owned(),
            )
        } else if NAMES.contains(&name) {
            (
                format!("'{name}' means nothing here"),
                format!("move it; here belong {}", here.join(", ")),
            )
        } else {
            (
                format!("config error, unknown key '{name}'"),
                format!("here belong {}", here.join(", ")),
            )
        };
        self.problem(at, place, message, &advice);
    }

    fn optional_text<'n>(&mut self, fields: &Fields<'n>, place: &Place, name: &str) -> &'n str {
        fields
            .get(name)
            .filter(|node| !node.is_null())
            .and_then(|node| self.text(node, place, name))
            .unwrap_or_default()
    }

    fn text<'n>(&mut self, node: &'n Node, place: &Place, name: &str) -> Option<&'n str> {
        let text = node.text();
        if text.is_none() {
            let message = format!("error loading config file: yaml: {name} is not text");
            self.problem(
                node.at,
                place,
                message,
                "write one value, in quotes if need be",
            );
        }
        text
    }

    fn boolean(&mut self, fields: &Fields<'_>, place: &Place, name: &str) -> bool {
        let Some(node) = fields.get(name).filter(|node| !node.is_null()) else {
            return false;
        };
        node.boolean().unwrap_or_else(|| {
            let message = format!("error loading config file: yaml: {name} is not true or false");
            self.problem(
                node.at,
                place,
                message,
                "write true or false, without quotes",
            );
            false
        })
    }

    fn integer(&mut self, fields: &Fields<'_>, place: &Place, name: &str) -> Option<u32> {
        let node = fields.get(name).filter(|node| !node.is_null())?;
        let number = node.integer().and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            let message = format!(
                "error loading config file: yaml: {name} is not a whole number from 0 to {}",
                u32::MAX
            );
            self.problem(
                node.at,
                place,
                message,
                "write such a number, without quotes",
            );
        }
        number
    }

    fn problem(&mut self, at: Position, place: &Place, message: String, advice: &str) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem {
                file: self.file.to_owned(),
                at,
                message,
                path: place.path.clone(),
                advice: advice.to_owned(),
            });
        }
    }
}

// === impl Place ===

impl Place {
    fn field(&self, name: &str) -> Self {
        let separator = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{separator}{name}", self.path),
            ..self.clone()
        }
    }

    /// A rule that stands here and says nothing yet.
    fn rule(&self) -> Rule {
        Rule {
            domain: self.domain.clone(),
            path: self.levels.clone(),
            name: String::new(),
            allowance: Allowance::Unlimited,
            replaces: Vec::new(),
            shadow_mode: false,
            index: 0,
        }
    }

    fn item(&self, list: &str, position: usize) -> Self {
        self.field(&format!("{list}[{position}]"))
    }
}

// === impl Fields ===

impl<'n> Fields<'n> {
    fn get(&self, name: &str) -> Option<&'n Node> {
        self.pairs
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, node)| *node)
    }
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.file, self.message)?;
        write!(f, "  at {}:{}", self.file, self.at)?;
        if !self.path.is_empty() {
            write!(f, ", {}", self.path)?;
        }
        write!(f, "\n  hint: {}", self.advice)
    }
}
