//! A descriptor: one level of the tree, its limits, and the levels below it.

use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::grammar;
use crate::file::limits_from::rules_of_forms;
use crate::file::loader::{Loader, NodeOrigin, node_of};
use crate::file::node_diagnostics::level_field;
use crate::yaml::Node;
use tollgate_limiter::{AddNodeError, Level, Parent, Rule, Values};

/// How many levels of descriptors a file may nest.
pub const LEVELS_MAX: usize = 24;

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

// === impl Loader ===

impl Loader<'_> {
    /// Loads the list of descriptors of a mapping.
    pub(super) fn descriptors(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        context: DescriptorContext<'_>,
    ) {
        let items = self.items(fields, path, "descriptors", "- key: NAME");
        if context.levels.len() >= LEVELS_MAX && !items.is_empty() {
            let message = format!("descriptors nest deeper than {LEVELS_MAX} levels");
            let help = "use fewer levels";
            return self.error(
                Code::TooLarge,
                fields.key_span("descriptors"),
                path,
                message,
                help,
            );
        }
        for (position, item) in items.iter().enumerate() {
            if self.gives_up() {
                return;
            }
            self.descriptor(item, &path.item("descriptors", position), context);
        }
    }

    pub(super) fn descriptor(
        &mut self,
        node: &Node,
        path: &FieldPath<'_>,
        context: DescriptorContext<'_>,
    ) {
        let Some(fields) = self.fields(node, path, &grammar::DESCRIPTOR) else {
            return;
        };
        let key = self.text(&fields, path, "key");
        let values = self.values(&fields, path, key);
        let share_threshold = self.boolean(&fields, path, "share_threshold");
        let ipv6_prefix = self.ipv6_prefix(&fields, path, values.as_ref(), share_threshold);
        let values_usable = values.is_some();
        let level = Level {
            key: key.to_owned(),
            values: values.unwrap_or_default().into(),
            ipv6_prefix,
            share_threshold,
            value_to_metric: self.boolean(&fields, path, "value_to_metric"),
        };
        if level.key.is_empty() && !fields.is_misspelt("key") {
            let help = "add `key: NAME`, the descriptor key that Envoy sends";
            let span = fields.span_of("key");
            self.error(
                Code::MissingKey,
                span,
                path,
                "descriptor has empty key",
                help,
            );
        }
        let usable = !level.key.is_empty()
            && self.check_length(&level.key, fields.span_of("key"), path)
            && values_usable;
        self.warn_unreachable(&fields, path, &level.key, context.holder_key);
        let mut levels = context.levels.to_vec();
        levels.push(Arc::new(level));
        let node = context
            .parent
            .filter(|_| usable)
            .and_then(|parent| self.add_node(&fields, path, context.domain, &levels, parent));

        let mut rule = Rule::new(Arc::clone(context.domain), levels.clone());
        rule.shadow_mode = self.boolean(&fields, path, "shadow_mode");
        rule.quota_mode = self.boolean(&fields, path, "quota_mode");
        rule.detailed_metric = self.boolean(&fields, path, "detailed_metric");
        rule.over_limit = self.over_limit(&fields, path);
        let mut rules = self.rate_limits(&fields, path, &rule);
        if values_usable {
            self.share_threshold(&fields, path, &levels);
        }
        let metadata = self.metadata(&fields, path);
        rule.metadata.clone_from(&metadata);
        if let Some(first) = rules.first_mut() {
            first.metadata = metadata;
        }
        let table = self.limits_from(&fields, path, &rules);
        let holder_key = rules
            .iter()
            .find_map(|rule| Some((rule.holder_key.clone()?, rule.reserve.is_some())));
        self.warn_unused_over_limit(&fields, path, &rules);
        self.warn_unused_modes(&fields, path);
        if let Some(node) = node {
            if !rules.is_empty() || table.is_some() {
                self.record_rules_origin(&fields);
            }
            let of_forms = table.as_ref().map(|table| {
                let rule = rules.first().unwrap_or(&rule);
                rules_of_forms(table, rule)
            });
            self.rules.set_rules(node, rules);
            if let Some((table, of_forms)) = table.zip(of_forms) {
                self.rules.set_limit_table(node, &table, of_forms);
            }
        }
        let context = DescriptorContext {
            parent: node.map(Parent::Node),
            levels: &levels,
            holder_key: holder_key.as_ref().map(|(key, is_id)| (&**key, *is_id)),
            ..context
        };
        self.descriptors(&fields, path, context);
    }

    /// Warns of a level that never applies, because its key is the holder key of the level above.
    /// For the id of reservations it is an error: the level would take its requests.
    fn warn_unreachable(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        key: &str,
        holder_key: Option<(&str, bool)>,
    ) {
        let limited = ["rate_limit", "rate_limits", "limits_from"];
        let limited = limited.iter().any(|name| fields.given(name).is_some());
        let span = fields.span_of("key");
        if holder_key == Some((key, true)) {
            let message = format!("'{}' is the reserve.key of the level above", excerpt(key));
            let error = Diagnostic::error(Code::ConflictingKeys, span, message);
            let error =
                error.label("as the last entry of a request, this key is the id of a reservation");
            let help = "use another key here or as reserve.key, or remove this descriptor";
            self.report(path, error.help(help));
        } else if holder_key == Some((key, false))
            && (limited || fields.given("descriptors").is_none())
        {
            let message = format!(
                "'{}' is the holder_key of the level above, so this descriptor never applies",
                excerpt(key)
            );
            let warning = Diagnostic::warning(Code::NoEffect, span, message);
            let warning = warning
                .label("as the last entry of a request, this key names the holder of a slot");
            let help = "use another key here or as holder_key, or remove this descriptor's limit";
            self.report(path, warning.help(help));
        }
    }

    /// Records where the next rules were written.
    fn record_rules_origin(&mut self, fields: &Fields<'_>) {
        let names = ["rate_limit", "rate_limits", "limits_from"];
        let mut given = names.into_iter();
        let name = given.find(|name| fields.given(name).is_some());
        let name = name.unwrap_or("rate_limits");
        let place = self.place(fields.key_span(name));
        let next = self.rules.rules().len();
        self.origins.push(next, place.file, place.span.at.line);
    }

    fn add_node(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        domain: &Arc<str>,
        levels: &[Arc<Level>],
        parent: Parent<'_>,
    ) -> Option<usize> {
        let level = levels.last()?;
        let error = match self.rules.add_node(parent, Arc::clone(level)) {
            Ok(node) => {
                self.record_origin(parent, domain, level, (fields, path));
                return Some(node);
            }
            Err(error) => error,
        };
        match (&*level.values, error) {
            (Values::Any | Values::Text(_), _) => {
                let name = if self.only_counts() {
                    String::new()
                } else {
                    Rule::new(Arc::clone(domain), levels.to_vec()).full_name()
                };
                let span = fields.span_of(level_field(level));
                let message = format!("duplicate descriptor composite key '{}'", excerpt(&name));
                let error = Diagnostic::error(Code::Duplicate, span, message);
                let error = self.cite_first(error, parent, level);
                let help = "merge the two descriptors, or give one of them another value";
                self.report(path, error.help(help));
            }
            // Reported with the values.
            (_, AddNodeError::WildcardKey) => {}
            (_, error) => self.duplicate_values(fields, path, (parent, level), error),
        }
        None
    }

    pub(super) fn share_threshold(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        levels: &[Arc<Level>],
    ) {
        let Some(level) = levels.last() else {
            return;
        };
        if level.share_threshold && !level.key.contains('*') && !level.values.match_many() {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{}'",
                excerpt(&level.label())
            );
            let help = "remove share_threshold, or match several values: by a pattern such as `files/*`, by `values`, `cidr` or `regex`";
            let span = fields.span_of("share_threshold");
            self.error(Code::ConflictingKeys, span, path, message, help);
        }
    }
}

impl Loader<'_> {
    /// Adds the place of the first descriptor that `level` repeats.
    pub(super) fn cite_first(
        &self,
        error: Diagnostic,
        parent: Parent<'_>,
        level: &Level,
    ) -> Diagnostic {
        // Further errors are only counted.
        if self.only_counts() {
            return error;
        }
        let above = node_of(parent);
        let mut nodes = self.nodes.iter();
        let first = nodes.find(|node| {
            node.parent == above
                && node.level.key == level.key
                && overlap(&node.level.values, &level.values)
                && Self::is_of_domain(node, parent)
        });
        match first {
            Some(first) => self.cite(error, first.place, "first defined here"),
            None => error,
        }
    }

    /// Whether a node at the root of a domain is at the root of this one.
    fn is_of_domain(node: &NodeOrigin, parent: Parent<'_>) -> bool {
        match parent {
            Parent::Node(_) => true,
            Parent::Domain(domain) => *node.domain == *domain,
        }
    }
}

/// Whether two levels of one key have a value in common.
fn overlap(one: &Values, other: &Values) -> bool {
    match (one, other) {
        (Values::List(one), Values::List(other)) => one.iter().any(|value| other.contains(value)),
        (Values::Prefixes(one), Values::Prefixes(other)) => {
            one.iter().any(|prefix| other.contains(prefix))
        }
        (one, other) => one == other,
    }
}
