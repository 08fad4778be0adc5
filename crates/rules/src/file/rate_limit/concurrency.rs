//! A limit of requests in flight: how many, the key of their holders, and when a slot expires.
//!
//! What it deliberately does not do: choose the algorithm (`algorithm`).

use std::num::NonZeroU32;

use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::Loader;
use tollgate_limiter::{Algorithm, Allowance, Limit};

// === impl Loader ===

impl Loader<'_> {
    /// Reads a limit of requests in flight.
    pub(crate) fn concurrency_limit(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        algorithm: &'static dyn Algorithm,
        key: &mut Option<String>,
    ) -> Option<Allowance> {
        for name in ["unit", "unit_multiplier"] {
            if fields.given(name).is_some() {
                let message = format!("algorithm {} has no {name}", algorithm.name());
                let span = fields.span_of(name);
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let help =
                    format!("remove `{name}`: the limit is of requests in flight at any moment");
                let error = error.help(help);
                let error = self.without_field(fields, name, error);
                self.report(path, error);
            }
        }
        let requests = self.integer(fields, path, "requests_per_unit");
        let requests = requests.unwrap_or_default();
        self.warn_missing_requests(fields, path);
        self.check_requests(fields, path, algorithm, requests);
        let holder_key = self.text(fields, path, "holder_key");
        if self.check_length(holder_key, fields.span_of("holder_key"), path)
            && !holder_key.is_empty()
        {
            *key = Some(holder_key.to_owned());
        }
        let seconds = self.integer(fields, path, "slot_seconds");
        let Some(valid) = seconds.and_then(NonZeroU32::new) else {
            let message = format!(
                "algorithm {} needs slot_seconds of at least 1",
                algorithm.name()
            );
            // A misspelt key and a value that is no number have been reported.
            let span = match fields.given("slot_seconds") {
                None if fields.is_misspelt("slot_seconds") => return None,
                None => fields.span_of("algorithm"),
                Some(_) if seconds != Some(0) => return None,
                Some(node) => node.span,
            };
            let help = "add `slot_seconds: 60`: after this time a slot expires that was not freed; it must be longer than the slowest request";
            self.error(Code::MissingKey, span, path, message, help);
            return None;
        };
        Some(Allowance::Limited {
            limit: Limit::in_flight(requests, valid),
            algorithm,
        })
    }
}
