//! Plans: limits with a name, which descriptors and lines of files of limits have by that name.
//!
//! The plans of all files of a load are known before any rule is read, so a file of its own may
//! hold them. A plan is read again with each rule that has it: its limits become limits of that
//! rule. What is wrong with a plan itself is reported once, where it is written; what is wrong only
//! where it is used is reported there.

use std::collections::HashMap;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::corrections::nearest;
use crate::file::loader::{LimitFieldOrigin, Loader, Plan};
use crate::file::rate_limit::{limits, rate_limits};
use crate::file::reader::unfolding_budget;
use crate::file::{Code, Diagnostic, FieldPath, FieldPlace, Fields, Item, Options, grammar};
use crate::yaml::{Content, Node, kind};
use tollgate_limiter::Rule;

/// How many plans the files of a load may define together.
const PLANS_MAX: usize = 1_000;

/// Notes the plans of the file with this index. The first one of a name counts; others are reported
/// when their files are read.
pub(super) fn note_plans(loader: &mut Loader<'_>, file: usize, root: &Node) {
    let Content::Mapping(fields) = &root.content else {
        return;
    };
    let mut named = fields
        .iter()
        .filter(|(name, _)| name.text() == Some("plans"));
    let Some(Content::Mapping(plans)) = named.next_back().map(|(_, plans)| &plans.content) else {
        return;
    };
    for (name, plan) in plans {
        if let Some(name) = name.text() {
            let limits = match &plan.content {
                Content::Sequence(limits) => limits.clone(),
                _ => vec![Rc::clone(plan)],
            };
            let plans = &mut loader.plans;
            plans
                .entry(name.to_owned())
                .or_insert(Plan { file, limits });
        }
    }
}

/// The rules of a descriptor's `rate_limit`, `rate_limits` or `plan`, made from `rule`. Empty when
/// there are none, or when one is invalid.
pub(super) fn written_limits(
    loader: &mut Loader<'_>,
    fields: &Fields<'_>,
    rule: &Rule,
) -> Vec<Rule> {
    let plan = loader.reader.text(fields, "plan");
    if plan.is_empty() {
        return rate_limits(loader, fields, rule);
    }
    let mut beside = ["rate_limit", "rate_limits"].into_iter();
    if let Some(name) = beside.find(|name| fields.has(name)) {
        let message = format!("'plan' and '{name}' on one descriptor");
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key("plan"), message);
        let error = error.related(fields.key_span(name), format!("`{name}` is set here"));
        loader.reader.report(error.help("keep one of them"));
        return Vec::new();
    }
    rules_of_plan(loader, plan, &fields.at("plan"), rule)
}

/// Checks the plans of the current file.
pub(super) fn check_plans(loader: &mut Loader<'_>, fields: &Fields<'_>) {
    let Some(node) = fields.given("plans") else {
        return;
    };
    let reader = &mut loader.reader;
    let Content::Mapping(plans) = &node.content else {
        let error = Diagnostic::error(
            Code::WrongType,
            fields.at("plans"),
            "plans is not a mapping",
        );
        let error = error.label(format!("found {}", kind(node)));
        let help = "write `plans: {free: {unit: day, requests_per_unit: 100}, …}`";
        return reader.report(error.help(help));
    };
    if plans.len() > PLANS_MAX || loader.plans.len() > PLANS_MAX {
        let message = format!("more than {PLANS_MAX} plans");
        let help = "use fewer plans; tenants with limits of their own belong in `limits_from`";
        return reader.error(Code::TooLarge, fields.at_key("plans"), message, help);
    }
    let mut seen: HashMap<&str, FieldPlace> = HashMap::new();
    for (position, (key, plan)) in plans.iter().enumerate() {
        let path = FieldPath::ROOT.item("plans", position);
        let at = path.at(key.span);
        let reader = &mut loader.reader;
        let name = key.text().unwrap_or_default();
        if name.is_empty() {
            let help = "write a text, by which rules name the plan";
            reader.error(Code::MissingKey, at, "a plan has no name", help);
            continue;
        }
        if !reader.check_length(name, at.clone()) {
            continue;
        }
        let owner = loader.plans.get(name).map(|plan| plan.file);
        if owner != Some(reader.current_file()) || seen.contains_key(name) {
            let message = format!("the plan '{}' is defined twice", excerpt(name));
            let error = Diagnostic::error(Code::Duplicate, at, message);
            let error = match seen.get(name) {
                Some(first) => error.related(first.span, "first defined here"),
                None => error,
            };
            reader.report(error.help("rename it, or remove it here"));
            continue;
        }
        seen.insert(name, at.clone());
        let name = name.to_owned();
        let items = items(plan, &path);
        if items.is_empty() || matches!(plan.content, Content::Scalar { .. }) {
            let message = format!("the plan '{}' has no limit", excerpt(&name));
            let help = "write a limit, or a list of limits; `{unlimited: true}` is one";
            reader.error(Code::MissingKey, at, message, help);
            continue;
        }
        let limits = read_alone(loader, items);
        loader.read_plans.insert(name, limits);
    }
}

/// Reads limits that are in no rules file: a mapping, or a list of mappings, with the fields of
/// `rate_limit`. Only what belongs to a limit is set in the rules.
///
/// # Errors
///
/// The first mistake: the field, what is wrong, and what to do.
pub fn read_limits(text: &str) -> Result<Vec<Rule>, String> {
    let mut loader = Loader::new(&grammar::RULES, Options::default());
    let reader = &mut loader.reader;
    reader.file("limit", text, unfolding_budget(text));
    let mut rules = Vec::new();
    if let Some(root) = reader.parse_root("there is no limit", "write a limit") {
        rules = read_alone(&mut loader, items(&root, &FieldPath::ROOT.field("limit")));
    }
    match loader.reader.report.errors.into_iter().next() {
        Some(error) if error.path.is_empty() => Err(format!("{}; {}", error.message, error.help)),
        Some(error) => Err(format!("{}: {}; {}", error.path, error.message, error.help)),
        None if rules.is_empty() => Err("there is no limit; write one".to_owned()),
        None => Ok(rules),
    }
}

/// The limits of a plan, or of one that is a mapping alone.
fn items<'n>(plan: &'n Node, path: &FieldPath) -> Vec<Item<'n>> {
    let item = |node: &'n Node| Item {
        node,
        path: path.clone(),
    };
    match &plan.content {
        Content::Sequence(limits) => limits.iter().map(|limit| item(limit)).collect(),
        _ => vec![item(plan)],
    }
}

/// The rules of a plan of this name, made from `rule`; none where it is invalid. It is named at
/// this place.
pub(super) fn rules_of_plan(
    loader: &mut Loader<'_>,
    name: &str,
    at: &FieldPlace,
    rule: &Rule,
) -> Vec<Rule> {
    let Some(plan) = loader.plans.get(name) else {
        let message = format!("there is no plan '{}'", excerpt(name));
        let error = Diagnostic::error(Code::UnknownValue, at.clone(), message);
        let known = loader.plans.keys().map(String::as_str);
        let help = match nearest(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "define it under `plans`, at the root of this or another rules file".to_owned(),
        };
        loader.reader.report(error.help(help));
        return Vec::new();
    };
    let nodes = plan.limits.clone();
    let items = || {
        let item = |node| Item {
            node,
            path: FieldPath::ROOT.field("plans"),
        };
        nodes.iter().map(Rc::as_ref).map(item).collect()
    };
    let before = places(loader).map(|places| places.len());
    let (mut rules, error) = quietly(loader, |loader| limits(loader, items(), rule));
    let named_at = loader.reader.place(at.span);
    for (places, before) in places(loader).into_iter().zip(before) {
        let read = places.iter_mut().skip(before);
        read.for_each(|read| read.place = named_at);
    }
    if let Some(error) = error {
        let (_, of_plan) = quietly(loader, |loader| read_alone(loader, items()));
        // What is wrong with the plan itself is reported where it is written.
        if of_plan.is_none() {
            let message = error.message;
            let message = format!(
                "the plan '{}' cannot be used here: {message}",
                excerpt(name)
            );
            let reader = &mut loader.reader;
            reader.error(Code::ConflictingKeys, at.clone(), message, error.help);
        }
        return Vec::new();
    }
    let name: Arc<str> = name.into();
    for rule in &mut rules {
        rule.plan = Some(Arc::clone(&name));
    }
    rules
}

/// Reads the limits of a plan for their mistakes. Only rules that have the plan count.
fn read_alone(loader: &mut Loader<'_>, items: Vec<Item<'_>>) -> Vec<Rule> {
    let before = places(loader).map(|places| places.len());
    let rules = limits(loader, items, &Rule::new("", Vec::new()));
    for (places, before) in places(loader).into_iter().zip(before) {
        places.truncate(before);
    }
    rules
}

/// The places of fields of limits that are compared when all files are read.
fn places<'l>(loader: &'l mut Loader<'_>) -> [&'l mut Vec<LimitFieldOrigin>; 3] {
    let Loader {
        budgets,
        quotas,
        replaced_names,
        ..
    } = loader;
    [budgets, quotas, replaced_names]
}

/// Reads what has been read before, without its diagnostics. Gives the first error.
fn quietly<T>(
    loader: &mut Loader<'_>,
    read: impl FnOnce(&mut Loader<'_>) -> T,
) -> (T, Option<Diagnostic>) {
    let reported = mem::take(&mut loader.reader.report);
    // A plan may be used very often, which is no unfolding of the file.
    let budget = loader.reader.unfolding_left.replace(usize::MAX);
    let result = read(loader);
    loader.reader.unfolding_left = budget;
    let report = mem::replace(&mut loader.reader.report, reported);
    (result, report.errors.into_iter().next())
}
