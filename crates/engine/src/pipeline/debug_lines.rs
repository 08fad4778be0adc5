//! One debug line per decision, off unless the log filter names [`DECISION_LOG`].
//!
//! A line holds what callers sent: keys and values of descriptors, which may be personal data. So
//! neither a level for everything nor one for `tollgate` turns it on. While it is off, a request
//! costs one comparison in `begin` and one in `end`.

use std::fmt::{self, Write as _};

use tollgate_limiter::{Code, Decision, LimitOrigin, Plan, Request};

use crate::ended::{End, Ended};

/// The module of the lines, for the log filter.
pub const DECISION_LOG: &str = "tollgate::decisions";

/// Longest text of a field, in bytes; the rest is replaced by `…`.
const FIELD_BYTES_MAX: usize = 4_096;

/// A text of bounded length.
#[derive(Default)]
struct Field(String);

/// Whether decisions are written.
#[inline]
pub(super) fn are_enabled() -> bool {
    tracing::enabled!(target: DECISION_LOG, tracing::Level::DEBUG)
}

/// Writes what became of a request. The message is empty if this was turned on meanwhile.
#[cold]
pub(super) fn write(ended: &Ended<'_>) {
    if ended.message.is_empty() {
        return;
    }
    let domain = Field::of(format_args!("{}", ended.request.domain.escape_ascii()));
    let descriptors = Field::of(Descriptors(ended.request));
    let (domain, descriptors) = (domain.0.as_str(), descriptors.0.as_str());
    let took_us = ended.took_us;
    let decided = |decision: &Decision<'_>, plan| {
        let limits = Field::of(Limits(decision, plan)).0;
        let (code, shadowed) = (name(decision.code), decision.shadowed);
        tracing::debug!(
            target: DECISION_LOG,
            domain, descriptors, code, shadowed, limits, took_us, "decision"
        );
    };
    match ended.end {
        End::Decided(matched) | End::Left(matched) => {
            decided(matched.decision, Some(matched.plan));
        }
        End::Bound(code) => decided(&Decision::of_code(code), None),
        End::Undecided(_, error) | End::Failed(error) => {
            let error = error.to_string();
            tracing::debug!(target: DECISION_LOG, domain, descriptors, error, took_us, "no decision");
        }
    }
}

fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

/// `key=value,key=value; key=value`.
struct Descriptors<'a>(&'a Request<'a>);

/// A code for each descriptor, and for those with a limit its rule and what is left.
struct Limits<'a>(&'a Decision<'a>, Option<&'a Plan<'a>>);

// === impl Field ===

impl Field {
    fn of(text: impl fmt::Display) -> Self {
        let mut field = Self::default();
        if write!(field, "{text}").is_err() {
            field.0.push('…');
        }
        field
    }
}

impl fmt::Write for Field {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut space = FIELD_BYTES_MAX.saturating_sub(self.0.len());
        if text.len() <= space {
            self.0.push_str(text);
            return Ok(());
        }
        while !text.is_char_boundary(space) {
            space = space.saturating_sub(1);
        }
        self.0.push_str(text.get(..space).unwrap_or_default());
        Err(fmt::Error)
    }
}

impl fmt::Display for Descriptors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, descriptor) in self.0.descriptors().enumerate() {
            f.write_str(if position == 0 { "" } else { "; " })?;
            for (position, entry) in descriptor.entries.iter().enumerate() {
                f.write_str(if position == 0 { "" } else { "," })?;
                let (key, value) = (entry.key.escape_ascii(), entry.value.escape_ascii());
                write!(f, "{key}={value}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(decision, plan) = self;
        for (position, status) in decision.statuses.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "; " })?;
            f.write_str(name(status.code))?;
            let check = status.check_index;
            match plan.and_then(|plan| plan.planned_check(check?)) {
                None => f.write_str(" without a limit")?,
                Some(check) => {
                    write!(f, ", {} left of ", status.remaining)?;
                    match check.origin {
                        LimitOrigin::Rule(rule) => f.write_str(&rule.full_name())?,
                        LimitOrigin::Override => f.write_str("the request's own limit")?,
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_bounded_and_says_that_it_was_cut() {
        let field = Field::of("é".repeat(FIELD_BYTES_MAX)).0;
        assert_eq!(field.len(), FIELD_BYTES_MAX + "…".len());
        assert!(field.ends_with("é…"));
        assert_eq!(Field::of("short").0, "short");
    }
}
