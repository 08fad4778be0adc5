//! One limit of a limits file: its fields, read and checked.

use std::fmt::Write as _;

use super::expression::{Condition, EntryKey, Test, condition, variable};
use super::levels::{Step, key_of, levels, steps};
use crate::convert::rules_text::{LimitText, RulesText};
use crate::convert::window::Window;
use crate::convert::{Finding, load_error};
use crate::rules::yaml::{Content, Node};
use tollgate_limiter::CountRefused;

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
    pub(super) name: String,
    pub(super) window: Window,
    pub(super) requests: u32,
    pub(super) steps: Vec<Step>,
    pub(super) comment: String,
    pub(super) count_refused: CountRefused,
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
    let gap =
        |node: &Node, message: String, help: &str| Finding::gap(file, node.span, message, help);
    let left_out = format!("limit {number} is left out");
    if let Content::Mapping(pairs) = &node.content {
        for (key, _) in pairs {
            let name = key.text().unwrap_or_default();
            if !FIELDS.contains(&name) {
                let message = format!("the field `{name}` is not one of limitador's");
                findings.push(Finding::note(file, key.span, message, "it is left out"));
            }
        }
    }
    let namespace = node.field("namespace").and_then(Node::text);
    let Some(namespace) = namespace.filter(|name| !name.is_empty()) else {
        let message = format!("{left_out}: it has no namespace");
        return Err(gap(node, message, NOT_A_LIMITS_FILE));
    };
    let (requests, window) = numbers(file, node, &left_out)?;
    let Some((tests, variables)) = expressions(file, node, &left_out, findings)? else {
        return Ok(None);
    };
    note_old_keys(file, node, &tests, &variables, findings);
    let of_tokens = tests
        .iter()
        .any(|test| test.entry.key.starts_with(TOKEN_LIMIT));
    let limit = SourceLimit {
        file,
        node,
        number,
        namespace: namespace.to_owned(),
        name: ["name", "id"]
            .iter()
            .find_map(|field| node.field(field).and_then(Node::text))
            .unwrap_or_default()
            .to_owned(),
        window,
        requests,
        steps: steps(&tests, &variables),
        comment: comment_of(node, number),
        count_refused: if of_tokens || charged_afterwards {
            CountRefused::InFull
        } else {
            CountRefused::None
        },
    };
    match load_error(&limit.alone().to_string()) {
        None => Ok(Some(limit)),
        Some(error) => Err(gap(
            node,
            format!("{left_out}: as a rule it would be invalid: {error}"),
            "change the limit, or write the rule by hand",
        )),
    }
}

const BY_ENVOY: &str = "let Envoy build an entry that says it (header_value_match, or CEL in \
envoy.rate_limit_descriptors.expr), and match its value";

/// The number of requests and the window.
fn numbers(file: &str, node: &Node, left_out: &str) -> Result<(u32, Window), Finding> {
    let gap =
        |node: &Node, message: String, help: &str| Finding::gap(file, node.span, message, help);
    let requests = whole_number(node, "max_value").map_err(|(at, why)| {
        let help = "write a whole number from 0 to 4294967295";
        gap(at, format!("{left_out}: max_value {why}"), help)
    })?;
    let Ok(requests) = u32::try_from(requests) else {
        let message = format!("{left_out}: max_value {requests} is beyond 4294967295");
        return Err(gap(
            node,
            message,
            "write a smaller number; this one limits nothing",
        ));
    };
    let window = whole_number(node, "seconds")
        .and_then(|seconds| Window::of_seconds(seconds).ok_or((node, "is 0".to_owned())));
    let window = window.map_err(|(at, why)| {
        let help = "write a whole number of seconds, at least 1";
        gap(at, format!("{left_out}: seconds {why}"), help)
    })?;
    Ok((requests, window))
}

/// The tests and the variables of a limit.
type Expressions = (Vec<Test>, Vec<EntryKey>);

/// Reads the expressions. None if a condition never holds.
fn expressions(
    file: &str,
    node: &Node,
    left_out: &str,
    findings: &mut Vec<Finding>,
) -> Result<Option<Expressions>, Finding> {
    let mut tests = Vec::new();
    for item in texts(node, "conditions") {
        match read_text(file, item, "condition", left_out, condition)? {
            Condition::All(all) => tests.extend(all),
            Condition::Never => {
                let message = format!("{left_out}: this condition never holds");
                findings.push(Finding::note(file, item.span, message, "remove the limit"));
                return Ok(None);
            }
        }
    }
    let mut variables = Vec::new();
    for item in texts(node, "variables") {
        variables.push(read_text(file, item, "variable", left_out, variable)?);
    }
    Ok(Some((tests, variables)))
}

/// Reads an expression; the finding says why it has no equal.
fn read_text<T>(
    file: &str,
    item: &Node,
    what: &str,
    left_out: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Finding> {
    let text = item.text().ok_or_else(|| "it is not text".to_owned());
    text.and_then(read).map_err(|why| {
        let message = format!("{left_out}: its {what} has no equal: {why}");
        Finding::gap(file, item.span, message, BY_ENVOY)
    })
}

/// Notes entries of other descriptors than the first, whose keys get a suffix.
fn note_old_keys(
    file: &str,
    node: &Node,
    tests: &[Test],
    variables: &[EntryKey],
    findings: &mut Vec<Finding>,
) {
    let mut entries = tests.iter().map(|test| &test.entry).chain(variables);
    if let Some(entry) = entries.find(|entry| entry.descriptor != 0) {
        let message = format!(
            "the entry `{}` of descriptor {} has the key `{}` in the rules",
            entry.key,
            entry.descriptor,
            key_of(entry)
        );
        let help = "give it this descriptor_key in Envoy's action";
        findings.push(Finding::note(file, node.span, message, help));
    }
}

/// The items of a list, which may be absent.
fn texts<'n>(node: &'n Node, field: &str) -> Vec<&'n Node> {
    match node.field(field) {
        Some(list) => match &list.content {
            Content::Sequence(items) => items.iter().map(AsRef::as_ref).collect(),
            _ if list.is_null() => Vec::new(),
            _ => vec![list],
        },
        None => Vec::new(),
    }
}

/// A field's whole number, or where and why there is none.
fn whole_number<'n>(node: &'n Node, field: &str) -> Result<u64, (&'n Node, String)> {
    let value = node
        .field(field)
        .ok_or_else(|| (node, "is missing".to_owned()))?;
    let text = value.text().unwrap_or_default();
    text.replace('_', "")
        .parse()
        .map_err(|_| (value, format!("is not a whole number: '{text}'")))
}

/// What the limit was, in one line.
fn comment_of(node: &Node, number: usize) -> String {
    let field = |name: &str| node.field(name).and_then(Node::text).unwrap_or_default();
    let list = |name: &str| {
        let items = texts(node, name);
        let items: Vec<_> = items.iter().filter_map(|item| item.text()).collect();
        items.join("; ")
    };
    let mut comment = format!("limit {number}");
    let name = field("name");
    if !name.is_empty() {
        let _ = write!(comment, " \"{name}\"");
    }
    let _ = write!(
        comment,
        ": {} in {} s",
        field("max_value"),
        field("seconds")
    );
    for (label, said) in [("if", list("conditions")), ("for each", list("variables"))] {
        if !said.is_empty() {
            let _ = write!(comment, ", {label} {said}");
        }
    }
    comment
}

// === impl SourceLimit ===

impl SourceLimit<'_> {
    /// What limitador knows a limit by.
    pub(super) fn identity(&self) -> (String, u64, String, String) {
        let list = |name: &str| {
            let items = texts(self.node, name);
            let items: Vec<_> = items.iter().filter_map(|item| item.text()).collect();
            items.join("\n")
        };
        (
            self.namespace.clone(),
            self.window.seconds,
            list("conditions"),
            list("variables"),
        )
    }

    pub(super) fn duplicate(&self) -> Finding {
        let message = format!(
            "limit {} is left out: it has the namespace, seconds, conditions and variables of an earlier one, so limitador takes both for one",
            self.number
        );
        Finding::gap(self.file, self.node.span, message, "remove one of the two")
    }

    pub(super) fn text(&self, name: String) -> LimitText {
        LimitText {
            comment: self.comment.clone(),
            window: self.window,
            requests: self.requests,
            name,
            count_refused: Some(self.count_refused),
            replaces: Vec::new(),
        }
    }

    /// A rules file with this limit alone.
    fn alone(&self) -> RulesText {
        let mut steps = self.steps.clone();
        if steps.is_empty() {
            steps.push(Step::of_limit("limit"));
        }
        RulesText {
            comments: Vec::new(),
            domain: self.namespace.clone(),
            descriptors: levels(&steps, self.text(self.name.clone())),
        }
    }
}
