//! A descriptor: one level of the tree, its limits, and the levels below it.

use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::grammar;
use crate::file::limits_from::{limits_from, rules_of_forms};
use crate::file::loader::{Loader, level_field};
use crate::file::plans::written_limits;
use crate::file::rate_limit::limit_from_request;
use crate::file::response::{metadata, over_limit, warn_unused_over_limit};
use crate::file::values::{cite_first, duplicate_values, ipv6_prefix, values};
use crate::file::{Code, Diagnostic, Fields, Item, Reader};
use crate::yaml::Node;
use tollgate_limiter::{AddNodeError, Level, Parent, Rule, Values};

/// How many levels of descriptors a file may nest.
pub const LEVELS_MAX: usize = 24;

/// The fields that give a descriptor limits.
pub(super) const LIMIT_FIELDS: [&str; 4] = ["rate_limit", "rate_limits", "plan", "limits_from"];

/// The level to which descriptors are added.
#[derive(Clone, Copy)]
pub(super) struct DescriptorContext<'b> {
    pub(super) domain: &'b Arc<str>,
    /// None when the level above is invalid; its descriptors are then only checked.
    pub(super) parent: Option<Parent<'b>>,
    pub(super) levels: &'b [Arc<Level>],
    /// The holder key of the level above, and whether it is the id of reservations.
    pub(super) holder_key: Option<(&'b str, bool)>,
}

/// Loads the list of descriptors of a mapping.
pub(super) fn descriptors(
    loader: &mut Loader<'_>,
    fields: &Fields<'_>,
    context: DescriptorContext<'_>,
) {
    let items = loader.reader.items(fields, "descriptors", "- key: NAME");
    if context.levels.len() >= LEVELS_MAX && !items.is_empty() {
        let message = format!("descriptors nest deeper than {LEVELS_MAX} levels");
        let at = fields.at_key("descriptors");
        let help = "use fewer levels";
        return loader.reader.error(Code::TooLarge, at, message, help);
    }
    for item in items {
        if loader.reader.gives_up() {
            return;
        }
        descriptor(loader, item, context);
    }
}

fn descriptor(loader: &mut Loader<'_>, item: Item<'_>, context: DescriptorContext<'_>) {
    let Some(fields) = &loader
        .reader
        .fields(item.node, item.path, &grammar::DESCRIPTOR)
    else {
        return;
    };
    let key = loader.reader.text(fields, "key");
    let values = values(loader, fields, key);
    let values_usable = values.is_some();
    let reader = &mut loader.reader;
    let share_threshold = reader.boolean(fields, "share_threshold");
    let level = Level {
        key: key.to_owned(),
        ipv6_prefix: ipv6_prefix(reader, fields, values.as_ref(), share_threshold),
        values: values.unwrap_or_default().into(),
        share_threshold,
        value_to_metric: reader.boolean(fields, "value_to_metric"),
    };
    if key.is_empty() && !fields.is_misspelt("key") {
        let help = "add `key: NAME`, the descriptor key that Envoy sends";
        let message = "descriptor has empty key";
        reader.error(Code::MissingKey, fields.at("key"), message, help);
    }
    let usable = !key.is_empty() && reader.check_length(key, fields.at("key")) && values_usable;
    warn_never_applies(reader, fields, key, context.holder_key);
    let level = Arc::new(level);
    let levels = [context.levels, &[Arc::clone(&level)]].concat();
    let parent = context.parent.filter(|_| usable);
    let node = parent.and_then(|parent| add_node(loader, fields, context.domain, &levels, parent));

    let reader = &mut loader.reader;
    let mut rule = Rule::new(Arc::clone(context.domain), levels.clone());
    rule.shadow_mode = reader.boolean(fields, "shadow_mode");
    rule.quota_mode = reader.boolean(fields, "quota_mode");
    rule.detailed_metric = reader.boolean(fields, "detailed_metric");
    rule.over_limit = over_limit(reader, fields);
    rule.limit_from_request = limit_from_request(reader, fields);
    let mut rules = written_limits(loader, fields, &rule);
    if values_usable {
        check_share_threshold(&mut loader.reader, fields, &level);
    }
    rule.metadata = metadata(&mut loader.reader, fields);
    if let Some(first) = rules.first_mut() {
        first.metadata.clone_from(&rule.metadata);
    }
    let table = limits_from(loader, fields, &rules);
    let of_forms = table.as_ref().map(|table| {
        let of_line = rules.first().unwrap_or(&rule).clone();
        rules_of_forms(loader, table, [&of_line, &rule], &fields.at("limits_from"))
    });
    let holder_key = rules
        .iter()
        .find_map(|rule| Some((rule.holder_key.clone()?, rule.reserve.is_some())));
    warn_unused_over_limit(&mut loader.reader, fields, &rules);
    warn_unused_modes(&mut loader.reader, fields);
    if let Some(node) = node {
        if !rules.is_empty() || table.is_some() {
            record_rules_origin(loader, fields);
        }
        loader.rules.set_rules(node, rules);
        if let Some((table, of_forms)) = table.zip(of_forms) {
            loader.rules.set_limit_table(node, &table, of_forms);
        }
    }
    let context = DescriptorContext {
        parent: node.map(Parent::Node),
        levels: &levels,
        holder_key: holder_key.as_ref().map(|(key, is_id)| (&**key, *is_id)),
        ..context
    };
    descriptors(loader, fields, context);
}

/// Warns of a level that never applies, because its key is the holder key of the level above. For
/// the id of reservations it is an error: the level would take its requests.
fn warn_never_applies(
    reader: &mut Reader<'_>,
    fields: &Fields<'_>,
    key: &str,
    holder_key: Option<(&str, bool)>,
) {
    let Some((_, is_id)) = holder_key.filter(|(holder_key, _)| *holder_key == key) else {
        return;
    };
    let (at, key) = (fields.at("key"), excerpt(key));
    if is_id {
        let message = format!("'{key}' is the reserve.key of the level above");
        let error = Diagnostic::error(Code::ConflictingKeys, at, message);
        let error =
            error.label("as the last entry of a request, this key is the id of a reservation");
        let help = "use another key here or as reserve.key, or remove this descriptor";
        reader.report(error.help(help));
    } else if fields.has_any(&LIMIT_FIELDS) || !fields.has("descriptors") {
        let message = format!(
            "'{key}' is the holder_key of the level above, so this descriptor never applies"
        );
        let warning = Diagnostic::warning(Code::NoEffect, at, message);
        let warning =
            warning.label("as the last entry of a request, this key names the holder of a slot");
        let help = "use another key here or as holder_key, or remove this descriptor's limit";
        reader.report(warning.help(help));
    }
}

/// Records where the next rules were written.
fn record_rules_origin(loader: &mut Loader<'_>, fields: &Fields<'_>) {
    let mut given = LIMIT_FIELDS.into_iter();
    let name = given.find(|name| fields.has(name));
    let span = fields.key_span(name.unwrap_or("rate_limits"));
    let next = loader.rules.rules().len();
    let file = loader.reader.current_file();
    loader.origins.push(next, file, span.at.line);
}

fn add_node(
    loader: &mut Loader<'_>,
    fields: &Fields<'_>,
    domain: &Arc<str>,
    levels: &[Arc<Level>],
    parent: Parent<'_>,
) -> Option<usize> {
    let level = levels.last()?;
    let error = match loader.rules.add_node(parent, Arc::clone(level)) {
        Ok(node) => {
            loader.record_origin(parent, domain, level, fields);
            return Some(node);
        }
        Err(error) => error,
    };
    match (&*level.values, error) {
        (Values::Any | Values::Text(_), _) => {
            let name = if loader.reader.only_counts() {
                String::new()
            } else {
                Rule::new(Arc::clone(domain), levels.to_vec()).full_name()
            };
            let message = format!("duplicate descriptor composite key '{}'", excerpt(&name));
            let at = fields.at(level_field(level));
            let error = Diagnostic::error(Code::Duplicate, at, message);
            let error = cite_first(loader, error, parent, level);
            let help = "merge the two descriptors, or give one of them another value";
            loader.reader.report(error.help(help));
        }
        // Reported with the values.
        (_, AddNodeError::WildcardKey) => {}
        (_, error) => duplicate_values(loader, fields, parent, level, error),
    }
    None
}

fn check_share_threshold(reader: &mut Reader<'_>, fields: &Fields<'_>, level: &Level) {
    if level.share_threshold && !level.key.contains('*') && !level.values.match_many() {
        let message = format!(
            "share_threshold can only be used with wildcard values (containing '*'), but found key '{}'",
            excerpt(&level.label())
        );
        let help = "remove share_threshold, or match several values: by a pattern such as `files/*`, by `values`, `cidr` or `regex`";
        let at = fields.at("share_threshold");
        reader.error(Code::ConflictingKeys, at, message, help);
    }
}

/// Warns of a descriptor's fields that belong beside a limit, where there is none, and of those
/// that another field makes useless.
fn warn_unused_modes(reader: &mut Reader<'_>, fields: &Fields<'_>) {
    let is_true = |name| fields.given(name).and_then(Node::boolean) == Some(true);
    if is_true("share_threshold") && is_true("value_to_metric") {
        let help = "remove it: the label is the pattern, since all values share one bucket";
        reader.warn_no_effect(fields, "value_to_metric", "beside share_threshold", help);
    }
    if fields.has_any(&LIMIT_FIELDS) {
        return;
    }
    let modes = ["shadow_mode", "quota_mode", "detailed_metric"];
    let modes = modes.into_iter().filter(|name| is_true(name));
    let given = ["metadata", "limit_from_request"].into_iter();
    let given = given.filter(|name| fields.has(name));
    for name in modes.chain(given) {
        let help = "move it beside a limit; descriptors below do not inherit it";
        reader.warn_no_effect(fields, name, "on a descriptor without a limit", help);
    }
}
