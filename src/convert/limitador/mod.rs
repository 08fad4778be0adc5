//! Limits files of limitador as rules files.
//!
//! limitador gets one descriptor with everything, and evaluates each limit on it. tollgate gets a
//! descriptor for each limit: its entries are those that the limit's conditions and variables read,
//! in their order. A test of an entry becomes a level that shares its bucket, and a variable a level
//! without a value. Limits whose entries have the same keys share a tree, unless a value could then
//! take the branch of another limit. Such a limit gets an entry of its own, `generic_key`, in front.
//!
//! What it deliberately does not do: CEL beyond tests of entries (`expression`).

mod expression;
mod levels;
mod tokens;

use std::collections::BTreeSet;

use self::expression::{Condition, EntryKey, Test, condition, variable};
use self::levels::{Step, key_of, levels, steps};
use crate::convert::rules_text::{LimitText, RulesText, Values};
use crate::convert::window::Window;
use crate::convert::{Conversion, ConvertError, Finding, document, load_error};
use crate::rules::path::Source;
use crate::rules::yaml::{Content, Node};

/// How many limits one descriptor may have.
const LIMITS_MAX: usize = 16;

const NOT_A_LIMITS_FILE: &str =
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
struct SourceLimit<'n> {
    file: &'n str,
    node: &'n Node,
    /// Counted from 1, over all files.
    number: usize,
    namespace: String,
    name: String,
    window: Window,
    requests: u32,
    steps: Vec<Step>,
    comment: String,
}

/// The rules of one namespace, and what is in them.
struct Domain {
    text: RulesText,
    placed: Vec<Vec<Step>>,
    names: BTreeSet<String>,
}

/// Converts limits files. With `domain`, only the limits of that namespace.
///
/// # Errors
///
/// When a file is not a list of limits.
pub fn convert(sources: &[Source], domain: Option<&str>) -> Result<Conversion, ConvertError> {
    let mut findings = Vec::new();
    let mut documents = Vec::new();
    for source in sources {
        documents.push((source, document(&source.name, &source.text)?));
    }
    let mut domains: Vec<Domain> = Vec::new();
    let mut seen: Vec<(String, u64, String, String)> = Vec::new();
    let mut number: usize = 0;
    for (source, root) in &documents {
        let Some(root) = root.as_deref().filter(|root| !root.is_null()) else {
            continue;
        };
        let Content::Sequence(items) = &root.content else {
            let message = "this is not a limits file of limitador";
            let finding = Finding::gap(&source.name, root.span, message, NOT_A_LIMITS_FILE);
            return Err(ConvertError::Input(finding));
        };
        for item in items {
            number = number.saturating_add(1);
            let namespace = item.field("namespace").and_then(Node::text);
            if domain.is_some_and(|domain| namespace != Some(domain)) {
                continue;
            }
            match read(&source.name, item, number, &mut findings) {
                Ok(Some(limit)) => {
                    let identity = limit.identity();
                    if seen.contains(&identity) {
                        findings.push(limit.duplicate());
                        continue;
                    }
                    seen.push(identity);
                    place(&mut domains, limit, &mut findings);
                }
                Ok(None) => {}
                Err(finding) => findings.push(finding),
            }
        }
    }
    Conversion::checked(
        domains.into_iter().map(|domain| domain.text).collect(),
        findings,
    )
}

/// Reads a limit. None if it never applies; an error if it has no equal.
fn read<'n>(
    file: &'n str,
    node: &'n Node,
    number: usize,
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
    let mut tests = Vec::new();
    for item in texts(node, "conditions") {
        match item.text().map(condition) {
            Some(Ok(Condition::All(all))) => tests.extend(all),
            Some(Ok(Condition::Never)) => {
                let message = format!("{left_out}: this condition never holds");
                findings.push(Finding::note(file, item.span, message, "remove the limit"));
                return Ok(None);
            }
            Some(Err(why)) => {
                return Err(gap(item, no_equal(&left_out, "condition", &why), BY_ENVOY));
            }
            None => {
                return Err(gap(
                    item,
                    format!("{left_out}: a condition is not text"),
                    BY_ENVOY,
                ));
            }
        }
    }
    let mut variables = Vec::new();
    for item in texts(node, "variables") {
        match item.text().map(variable) {
            Some(Ok(entry)) => variables.push(entry),
            Some(Err(why)) => {
                return Err(gap(item, no_equal(&left_out, "variable", &why), BY_ENVOY));
            }
            None => {
                return Err(gap(
                    item,
                    format!("{left_out}: a variable is not text"),
                    BY_ENVOY,
                ));
            }
        }
    }
    note_old_keys(file, node, &tests, &variables, findings);
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

fn no_equal(left_out: &str, what: &str, why: &str) -> String {
    format!("{left_out}: its {what} has no equal: {why}")
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
        comment.push_str(&format!(" \"{name}\""));
    }
    comment.push_str(&format!(
        ": {} in {} s",
        field("max_value"),
        field("seconds")
    ));
    for (label, said) in [("if", list("conditions")), ("for each", list("variables"))] {
        if !said.is_empty() {
            comment.push_str(&format!(", {label} {said}"));
        }
    }
    comment
}

/// Adds a limit to the rules of its namespace.
fn place(domains: &mut Vec<Domain>, limit: SourceLimit<'_>, findings: &mut Vec<Finding>) {
    let found = domains
        .iter()
        .position(|domain| domain.text.domain == limit.namespace);
    let index = found.unwrap_or_else(|| {
        domains.push(Domain::new(&limit.namespace));
        domains.len().saturating_sub(1)
    });
    let Some(domain) = domains.get_mut(index) else {
        return;
    };
    let name = domain.unique_name(&limit);
    let mut steps = limit.steps.clone();
    if !domain.has_place_for(&steps) {
        // Envoy sends it, so it has no pattern's sign.
        let own = if name.contains('*') {
            format!("limit_{}", limit.number)
        } else {
            name.clone()
        };
        if !steps.is_empty() {
            let message = format!(
                "limit {} gets the entry generic_key={own} in front, since another limit has the same keys with other values",
                limit.number
            );
            let help = "send it from Envoy: tollgate convert --envoy prints the actions";
            findings.push(Finding::note(limit.file, limit.node.span, message, help));
        }
        steps.insert(0, Step::of_limit(&own));
    }
    for level in levels(&steps, limit.text(name)) {
        level.add_to(&mut domain.text.descriptors);
    }
    domain.placed.push(steps);
}

// === impl SourceLimit ===

impl SourceLimit<'_> {
    /// What limitador knows a limit by.
    fn identity(&self) -> (String, u64, String, String) {
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

    fn duplicate(&self) -> Finding {
        let message = format!(
            "limit {} is left out: it has the namespace, seconds, conditions and variables of an earlier one, so limitador takes both for one",
            self.number
        );
        Finding::gap(self.file, self.node.span, message, "remove one of the two")
    }

    fn text(&self, name: String) -> LimitText {
        LimitText {
            comment: self.comment.clone(),
            window: self.window,
            requests: self.requests,
            name,
            count_refused: Some("none"),
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

// === impl Domain ===

impl Domain {
    fn new(namespace: &str) -> Self {
        let comments = [
            "Converted from limitador by `tollgate convert --from limitador`.",
            "Envoy sends one descriptor for each list of keys; `tollgate convert --envoy` prints the actions.",
            "Windows begin at the full minute, hour or day, not with the first hit.",
        ];
        Self {
            text: RulesText {
                comments: comments.map(str::to_owned).to_vec(),
                domain: namespace.to_owned(),
                descriptors: Vec::new(),
            },
            placed: Vec::new(),
            names: BTreeSet::new(),
        }
    }

    /// The limit's name, or one by its number if it has none or another limit has it.
    fn unique_name(&mut self, limit: &SourceLimit<'_>) -> String {
        let mut name = limit.name.clone();
        if name.is_empty() {
            name = format!("limit_{}", limit.number);
        }
        while !self.names.insert(name.clone()) {
            name = format!("{name}_{}", limit.number);
        }
        name
    }

    /// Whether a limit of these steps takes no value from another limit, and loses none.
    fn has_place_for(&self, steps: &[Step]) -> bool {
        let same = self.placed.iter().filter(|other| *other == steps);
        !steps.is_empty()
            && same.count() < LIMITS_MAX
            && self
                .placed
                .iter()
                .all(|other| Step::are_apart(steps, other))
    }
}

impl Step {
    /// The entry that stands for one limit.
    fn of_limit(name: &str) -> Self {
        Self {
            key: "generic_key".to_owned(),
            except: Vec::new(),
            values: Values::exactly(name),
            is_shared: false,
        }
    }
}
