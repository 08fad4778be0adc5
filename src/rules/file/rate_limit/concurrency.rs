//! A limit of requests in flight: how many, the key of their holders, and when a slot expires.
//!
//! What it deliberately does not do: choose the algorithm (`algorithm`).

use std::num::NonZeroU32;

use crate::rules::file::field_path::FieldPath;
use crate::rules::file::fields::Fields;
use crate::rules::file::loader::Loader;
use tollgate_limiter::{Algorithm, Allowance, Limit, Rule};

// === impl Loader ===

impl Loader<'_> {
    /// Reads a limit of requests in flight.
    pub(crate) fn concurrency_limit(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        algorithm: &'static dyn Algorithm,
        rule: &mut Rule,
    ) -> Option<Allowance> {
        for name in ["unit", "unit_multiplier"] {
            if fields.given(name).is_some() {
                let message = format!("algorithm {} has no {name}", algorithm.name());
                let advice =
                    format!("remove `{name}`: it limits how many are in flight at any moment");
                self.error(fields.span_of(name), path, message, &advice);
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
            rule.holder_key = Some(holder_key.to_owned());
        }
        let seconds = self.integer(fields, path, "slot_seconds");
        let Some(seconds) = seconds.and_then(NonZeroU32::new) else {
            let message = format!(
                "algorithm {} needs slot_seconds of at least 1",
                algorithm.name()
            );
            let advice = "add `slot_seconds: 60`: how long a slot is held when nobody frees it, longer than the slowest request";
            self.error(fields.span_of("slot_seconds"), path, message, advice);
            return None;
        };
        Some(Allowance::Limited {
            limit: Limit::in_flight(requests, seconds),
            algorithm,
        })
    }
}
