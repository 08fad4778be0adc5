//! One limit of a limits file: its fields, read and checked.

use std::fmt::Write as _;
use std::num::NonZeroU64;

use super::expression::{Condition, EntryKey, Test, condition, variable};
use super::levels::{PlacedLimits, Step, key_of, steps};
use crate::convert::rules_text::{LimitText, RulesText};
use crate::convert::{Finding, load_error};
use tollgate_limiter::{CountRefused, Limit};
use tollgate_rules::yaml::{Content, Node};

pub(super) const NOT_A_LIMITS_FILE: &str =
    "write a list of limits, each with namespace, max_value and seconds";

/// The fields of a limit that are read.
const FIELDS: [&str; 7] = [
    "id",
    "namespace",
    "name",
    "max_value",
    "seconds",
    "conditions",
    "variables",
];

/// A limit as it was read.
pub(super) struct SourceLimit<'n> {
    pub(super) file: &'n str,
    pub(super) node: &'n Node,
    /// Counted from 1, over all files.
    pub(super) number: usize,
    pub(super) namespace: String,
    pub(super) steps: Vec<Step>,
    /// The limit in the rules, with the name that it has in the limits file.
    pub(super) limit: LimitText,
}

/// The key of the entry by which Kuadrant's TokenRateLimitPolicy selects a limit begins with it.
/// Its gateway looks first, and reports the tokens after the response.
const TOKEN_LIMIT: &str = "tokenlimit.";

/// Reads a limit, which is charged after the work if so said. None if it never applies; an error if
/// it has no equal.
pub(super) fn read<'n>(
    file: &'n str,
    node: &'n Node,
    number: usize,
    charged_afterwards: bool,
    findings: &mut Vec<Finding>,
) -> Result<Option<SourceLimit<'n>>, Finding> {
    let mut reader = Reader {
        file,
        node,
        left_out: format!("limit {number} is left out"),
        findings,
    };
    reader.note_unknown_fields();
    let namespace = node.field("namespace").and_then(Node::text);
    let Some(namespace) = namespace.filter(|name| !name.is_empty()) else {
        return Err(reader.gap(node, "it has no namespace", NOT_A_LIMITS_FILE));
    };
    let requests = reader.requests()?;
    let seconds = reader.seconds()?;
    let Some((tests, variables)) = reader.expressions()? else {
        return Ok(None);
    };
    reader.note_old_keys(&tests, &variables);
    let of_tokens = tests
        .iter()
        .any(|test| test.entry.key.starts_with(TOKEN_LIMIT));
    let limit = SourceLimit {
        file,
        node,
        number,
        namespace: namespace.to_owned(),
        steps: steps(&tests, &variables),
        limit: LimitText {
            comment: comment_of(node, number),
            seconds,
            requests,
            name: ["name", "id"]
                .iter()
                .find_map(|field| node.field(field).and_then(Node::text))
                .unwrap_or_default()
                .to_owned(),
            count_refused: Some(if of_tokens || charged_afterwards {
                CountRefused::InFull
            } else {
                CountRefused::None
            }),
            replaces: Vec::new(),
        },
    };
    match load_error(&limit.alone()) {
        None => Ok(Some(limit)),
        Some(error) => Err(reader.gap(
            node,
            &format!("as a rule it would be invalid: {error}"),
            "change the limit, or write the rule by hand",
        )),
    }
}

const BY_ENVOY: &str = "let Envoy build an entry that says it (header_value_match, or CEL in \
envoy.rate_limit_descriptors.expr), and match its value";

/// Reads one limit.
struct Reader<'n, 'f> {
    file: &'n str,
    node: &'n Node,
    /// How findings about a limit without an equal begin.
    left_out: String,
    findings: &'f mut Vec<Finding>,
}

/// The tests and the variables of a limit.
type Expressions = (Vec<Test>, Vec<EntryKey>);

// === impl Reader ===

impl Reader<'_, '_> {
    fn gap(&self, at: &Node, why: &str, help: &str) -> Finding {
        let message = format!("{}: {why}", self.left_out);
        Finding::gap(self.file, at.span, message, help)
    }

    fn note(&mut self, at: &Node, message: String, help: &str) {
        let note = Finding::note(self.file, at.span, message, help);
        self.findings.push(note);
    }

    fn note_unknown_fields(&mut self) {
        let Content::Mapping(pairs) = &self.node.content else {
            return;
        };
        for (key, _) in pairs {
            let name = key.text().unwrap_or_default();
            if !FIELDS.contains(&name) {
                let message = format!("the field `{name}` is not one of limitador's");
                self.note(key, message, "it is left out");
            }
        }
    }

    fn requests(&self) -> Result<u64, Finding> {
        let help = "write a whole number from 0 to 9007199254740991";
        let requests = self.whole_number("max_value", help)?;
        if requests > Limit::REQUESTS_MAX {
            let why = format!("max_value {requests} is beyond {}", Limit::REQUESTS_MAX);
            let help = "write a smaller number; this one limits nothing";
            return Err(self.gap(self.node, &why, help));
        }
        Ok(requests)
    }

    fn seconds(&self) -> Result<NonZeroU64, Finding> {
        let help = "write a whole number of seconds, at least 1";
        let seconds = self.whole_number("seconds", help)?;
        NonZeroU64::new(seconds).ok_or_else(|| self.gap(self.node, "seconds is 0", help))
    }

    fn whole_number(&self, field: &str, help: &str) -> Result<u64, Finding> {
        let Some(value) = self.node.field(field) else {
            return Err(self.gap(self.node, &format!("{field} is missing"), help));
        };
        let text = value.text().unwrap_or_default();
        text.replace('_', "").parse().map_err(|_| {
            let why = format!("{field} is not a whole number: '{text}'");
            self.gap(value, &why, help)
        })
    }

    /// Reads the expressions. None if a condition never holds.
    fn expressions(&mut self) -> Result<Option<Expressions>, Finding> {
        let node = self.node;
        let mut tests = Vec::new();
        for item in items(node, "conditions") {
            match self.expression(item, "condition", condition)? {
                Condition::All(all) => tests.extend(all),
                Condition::Never => {
                    let message = format!("{}: this condition never holds", self.left_out);
                    self.note(item, message, "remove the limit");
                    return Ok(None);
                }
            }
        }
        let variables = items(node, "variables").into_iter();
        let variables = variables.map(|item| self.expression(item, "variable", variable));
        let variables = variables.collect::<Result<Vec<_>, _>>()?;
        Ok(Some((tests, variables)))
    }

    /// Reads an expression; the finding says why it has no equal.
    fn expression<T>(
        &self,
        item: &Node,
        what: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Finding> {
        let text = item.text().ok_or_else(|| "it is not text".to_owned());
        text.and_then(read).map_err(|why| {
            let why = format!("its {what} has no equal: {why}");
            self.gap(item, &why, BY_ENVOY)
        })
    }

    /// Notes entries of other descriptors than the first, whose keys get a suffix.
    fn note_old_keys(&mut self, tests: &[Test], variables: &[EntryKey]) {
        let mut entries = tests.iter().map(|test| &test.entry).chain(variables);
        if let Some(entry) = entries.find(|entry| entry.descriptor != 0) {
            let message = format!(
                "the entry `{}` of descriptor {} has the key `{}` in the rules",
                entry.key,
                entry.descriptor,
                key_of(entry)
            );
            let help = "give it this descriptor_key in Envoy's action";
            self.note(self.node, message, help);
        }
    }
}

/// The items of a list, which may be absent.
fn items<'n>(node: &'n Node, field: &str) -> Vec<&'n Node> {
    match node.field(field) {
        Some(list) => match &list.content {
            Content::Sequence(items) => items.iter().map(AsRef::as_ref).collect(),
            _ if list.is_null() => Vec::new(),
            _ => vec![list],
        },
        None => Vec::new(),
    }
}

/// The texts of a list, joined.
fn joined(node: &Node, field: &str, separator: &str) -> String {
    let texts = items(node, field).into_iter().filter_map(Node::text);
    texts.collect::<Vec<_>>().join(separator)
}

/// What the limit was, in one line.
fn comment_of(node: &Node, number: usize) -> String {
    let field = |name: &str| node.field(name).and_then(Node::text).unwrap_or_default();
    let mut comment = format!("limit {number}");
    let name = field("name");
    if !name.is_empty() {
        let _ = write!(comment, " \"{name}\"");
    }
    let (requests, seconds) = (field("max_value"), field("seconds"));
    let _ = write!(comment, ": {requests} in {seconds} s");
    for (label, list) in [("if", "conditions"), ("for each", "variables")] {
        let texts = joined(node, list, "; ");
        if !texts.is_empty() {
            let _ = write!(comment, ", {label} {texts}");
        }
    }
    comment
}

// === impl SourceLimit ===

impl SourceLimit<'_> {
    /// What limitador knows a limit by.
    pub(super) fn identity(&self) -> (String, u64, String, String) {
        (
            self.namespace.clone(),
            self.limit.seconds.get(),
            joined(self.node, "conditions", "\n"),
            joined(self.node, "variables", "\n"),
        )
    }

    pub(super) fn duplicate(&self) -> Finding {
        let message = format!(
            "limit {} is left out: it has the namespace, seconds, conditions and variables of an earlier one, so limitador takes both for one",
            self.number
        );
        Finding::gap(self.file, self.node.span, message, "remove one of the two")
    }

    /// A rules file with this limit alone.
    fn alone(&self) -> RulesText {
        let mut steps = self.steps.clone();
        if steps.is_empty() {
            steps.push(Step::of_limit("limit"));
        }
        let mut placed = PlacedLimits::default();
        placed.add(&steps, self.limit.clone());
        RulesText {
            comments: Vec::new(),
            domain: self.namespace.clone(),
            descriptors: placed.levels(),
        }
    }
}
