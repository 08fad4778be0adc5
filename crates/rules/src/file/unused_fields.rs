//! Warnings of fields that are valid and never take effect where they are.
//!
//! The reference accepts them silently. Fields of other kinds have warnings where they are read
//! (`over_limit`, `misplaced`).

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::Loader;
use crate::file::reader::Reader;
use crate::yaml::Node;
use tollgate_limiter::Limit;

// === impl Loader ===

impl Loader<'_> {
    /// Warns of a descriptor's fields that belong beside a limit, where there is none, and of those
    /// that another field makes useless.
    pub(super) fn warn_unused_modes(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) {
        let is_true = |name| fields.given(name).and_then(Node::boolean) == Some(true);
        if is_true("share_threshold") && is_true("value_to_metric") {
            let help = "remove it: the label is the pattern, since all values share one bucket";
            self.warn_no_effect(
                fields,
                path,
                "value_to_metric",
                "beside share_threshold",
                help,
            );
        }
        if ["rate_limit", "rate_limits", "limits_from"]
            .iter()
            .any(|name| fields.given(name).is_some())
        {
            return;
        }
        let modes = ["shadow_mode", "quota_mode", "detailed_metric"];
        let modes = modes.into_iter().filter(|name| is_true(name));
        let metadata = fields.given("metadata").map(|_| "metadata");
        for name in modes.chain(metadata) {
            let help = "move it beside a limit; descriptors below do not inherit it";
            self.warn_no_effect(fields, path, name, "on a descriptor without a limit", help);
        }
    }

    fn warn_no_effect(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
        place: &str,
        help: &str,
    ) {
        let span = fields.span_of(name);
        if self.is_new_warning(Code::NoEffect, span) {
            let message = format!("{name} has no effect {place}");
            let warning = Diagnostic::warning(Code::NoEffect, span, message).help(help);
            self.report(path, warning);
        }
    }

    /// Warns of fields that a limit without bound ignores, as the reference does.
    pub(super) fn warn_unused_beside_unlimited(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) {
        // A resource of an xDS server, which has no lines, always has both.
        if fields.span.at.line == 0 {
            return;
        }
        for name in ["unit", "requests_per_unit"] {
            // An empty text is no unit.
            let is_set = fields.given(name).and_then(Node::text);
            if is_set.is_some_and(|text| !text.is_empty()) {
                let help = "remove it, or remove `unlimited`";
                self.warn_no_effect(fields, path, name, "beside unlimited", help);
            }
        }
    }

    /// Warns of a limit without a number of requests, which the reference reads as 0.
    pub(super) fn warn_missing_requests(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) {
        if fields.given("requests_per_unit").is_none()
            && !fields.is_misspelt("requests_per_unit")
            && self.is_new_warning(Code::MissingRequests, fields.span)
        {
            let message = "requests_per_unit is missing, so the limit is 0";
            let help = "add `requests_per_unit: N`; write 0 if every request shall be refused";
            let warning = Diagnostic::warning(Code::MissingRequests, fields.span, message);
            self.report(path, warning.help(help));
        }
    }

    /// Warns of a bucket that cannot hold what a window brings.
    pub(super) fn warn_small_burst(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        limit: &Limit,
    ) {
        let refill = fields.given("refill").and_then(Node::text);
        let span = fields.span_of("burst");
        if refill == Some("interval")
            && limit.burst() < limit.requests()
            && self.is_new_warning(Code::SmallBurst, span)
        {
            let message = format!(
                "burst {} is less than requests_per_unit {}: with `refill: interval` no more than the burst is ever available in a window",
                limit.burst(),
                limit.requests(),
            );
            let help = "raise `burst`, remove it, or lower `requests_per_unit`";
            let warning = Diagnostic::warning(Code::SmallBurst, span, message);
            self.report(path, warning.help(help));
        }
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Warns of a number that YAML 1.1 reads as octal, and people as decimal.
    pub(super) fn warn_octal(&mut self, node: &Node, path: &FieldPath<'_>) {
        let text = node
            .text()
            .filter(|text| text.starts_with('0'))
            .unwrap_or_default();
        let (false, Some(octal)) = (text.is_empty(), node.integer()) else {
            return;
        };
        let digits = text.replace('_', "");
        let is_octal = digits
            .strip_prefix('0')
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
        let decimal = digits.trim_start_matches('0');
        if is_octal
            && octal != 0
            && decimal != octal.to_string()
            && self.is_new_warning(Code::OctalNumber, node.span)
        {
            let message = format!("'{}' is an octal number: {octal}", excerpt(text));
            let help = format!("write {octal}, or {decimal} if that is meant");
            let warning = Diagnostic::warning(Code::OctalNumber, node.span, message).help(help);
            self.report(path, warning);
        }
    }

    /// Warns of a key that a mapping has twice. As in the reference, the last one applies.
    pub(super) fn warn_duplicate_key(
        &mut self,
        name: &str,
        (first, again): (Span, Span),
        path: &FieldPath<'_>,
    ) {
        if self.is_new_warning(Code::DuplicateKey, again) {
            let name = excerpt(name);
            let message =
                format!("'{name}' is set more than once in one mapping; the last one applies");
            let warning = Diagnostic::warning(Code::DuplicateKey, again, message)
                .related(first, "first set here")
                .help(format!("remove one `{name}`"));
            self.report(path, warning);
        }
    }
}
