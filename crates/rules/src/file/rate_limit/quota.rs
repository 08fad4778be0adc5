//! The field `rlqs` of a limit: what such a limit may have beside it.
//!
//! What it deliberately does not do: compare it with other limits (`quotas`).

use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::loader::Loader;
use tollgate_limiter::Allowance;

/// The only algorithm that a proxy is assigned.
const ALGORITHM: &str = "token_bucket";

/// Fields of a limit that no proxy can obey.
const WITHOUT_EFFECT: [&str; 10] = [
    "burst",
    "refill",
    "calendar",
    "count_refused",
    "charged",
    "reserve",
    "cost",
    "budget",
    "replaces",
    "candidate",
];

// === impl Loader ===

impl Loader<'_> {
    /// Whether a limit is apportioned over proxies.
    pub(super) fn rlqs(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        allowance: Option<&Allowance>,
    ) -> bool {
        if !self.boolean(fields, path, "rlqs") {
            return false;
        }
        let span = fields.span_of("rlqs");
        for name in WITHOUT_EFFECT {
            if fields.given(name).is_some() {
                let message = format!("'{name}' beside rlqs, which no proxy can obey");
                let error =
                    Diagnostic::error(Code::ConflictingKeys, fields.key_span(name), message);
                let error = error.related(span, "the limit is apportioned over proxies");
                self.report(path, error.help(format!("remove `{name}`, or `rlqs`")));
            }
        }
        match allowance {
            Some(Allowance::Limited { algorithm, .. }) if algorithm.name() == ALGORITHM => {}
            Some(Allowance::Limited { algorithm, .. }) => {
                let message = format!("rlqs with the algorithm {}", algorithm.name());
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let help = "write `algorithm: token_bucket`, which a proxy can enforce alone";
                self.report(path, error.help(help));
            }
            // Reported with `unlimited`, or as an invalid limit.
            Some(Allowance::Unlimited) | None => {}
        }
        self.record_quota(span);
        true
    }
}
