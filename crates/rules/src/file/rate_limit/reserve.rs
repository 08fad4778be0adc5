//! The fields `reserve`, `cost` and `budget` of a limit.
//!
//! What it deliberately does not do: compare limits with each other (`rate_limit`, `budgets`), or
//! with the levels below (`descriptor`).

use std::num::NonZeroU32;

use crate::duration::duration;
use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::grammar_limit;
use crate::file::loader::Loader;
use crate::yaml::{Node, kind};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Allowance, Cost, CostError, EXPIRY_MS_MAX, Estimate, EstimateScope,
    Expiry, Limit, OnExpiry, ReserveAmount, ReserveRule, Rule,
};

/// The least expiry, in milliseconds.
const EXPIRY_MS_MIN: u32 = 1_000;

/// The percentiles that can be learnt.
const PERCENT_MIN: u8 = 50;
const PERCENT_MAX: u8 = 99;

// === impl Loader ===

impl Loader<'_> {
    /// Reads how a limit is paid for: `reserve`, `cost` and `budget`.
    pub(super) fn payment(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        (allowance, rule): (Option<&Allowance>, &mut Rule),
    ) {
        rule.cost = self.cost(fields, path);
        rule.budget = self.budget(fields, path);
        let limited = match allowance {
            // Reported with `unlimited`.
            Some(Allowance::Unlimited) => return,
            Some(Allowance::Limited { limit, algorithm }) => Some((limit, *algorithm)),
            None => None,
        };
        rule.reserve = self.reserve(fields, path, limited).map(Box::new);
        if let Some(key) = rule.reserve.as_ref().and_then(|it| it.key.as_ref()) {
            rule.holder_key = Some(key.clone());
        }
    }

    fn cost(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Cost {
        let Some(node) = fields.given("cost") else {
            return Cost::default();
        };
        let parsed = match node.text().filter(|_| node.is_plain()) {
            Some(text) => Cost::parse(text),
            None => Err(CostError::NotANumber),
        };
        let (code, message, help) = match parsed {
            Ok(cost) => return cost,
            Err(CostError::NotANumber) => {
                let help = "write digits and at most one point, such as `cost: 0.25`";
                (Code::WrongType, "cost is not a decimal number", help)
            }
            Err(CostError::TooPrecise) => {
                let help = "write at most six decimals; for lower prices multiply costs and limit by a thousand";
                (Code::OutOfRange, "cost has more than six decimals", help)
            }
            Err(CostError::OutOfBounds) => {
                let help = "write a number from 0.000001 to 1000000";
                (Code::OutOfRange, "cost is out of range", help)
            }
        };
        let error = Diagnostic::error(code, node.span, message);
        let error = match node.text() {
            Some(text) => error.label(format!("found {}", excerpt(text))),
            None => error.label(format!("found {}", kind(node))),
        };
        self.report(path, error.help(help));
        Cost::default()
    }

    fn budget(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Option<Box<str>> {
        let name = self.text(fields, path, "budget");
        if name.is_empty() || !self.check_length(name, fields.span_of("budget"), path) {
            return None;
        }
        if fields.given("candidate").is_some() {
            let message = "a candidate beside a budget";
            let span = fields.key_span("candidate");
            let error = Diagnostic::error(Code::ConflictingKeys, span, message);
            let error = error.related(fields.key_span("budget"), "the budget is set here");
            let help = "remove `candidate`: it would have a bucket of its own for each descriptor; try other rules by `--candidate`";
            self.report(path, error.help(help));
        }
        Some(name.into())
    }

    /// The reservations of a limit. None when it has none, or when an error was reported.
    pub(in crate::file) fn reserve(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        limited: Option<(&Limit, &'static dyn Algorithm)>,
    ) -> Option<ReserveRule> {
        let node = fields.given("reserve")?;
        let errors_before = self.error_count();
        if let Some((_, algorithm)) = limited
            && !algorithm.can_reserve()
        {
            self.cannot_reserve(fields, path, algorithm);
        }
        let limit = limited.map(|(limit, _)| limit);
        let path = path.field("reserve");
        let fields = self.fields(node, &path, &grammar_limit::RESERVE)?;
        let key = self.text(&fields, &path, "key");
        self.check_length(key, fields.span_of("key"), &path);
        let amount = self.amount(&fields, &path, limit);
        if !key.is_empty() && fields.given("amount").is_none() && !fields.is_misspelt("amount") {
            let message = "reserve.key without an amount";
            let help = "add `amount`: a request that starts a reservation does not say how much";
            let span = fields.key_span("key");
            self.error(Code::MissingKey, span, &path, message, help);
        }
        let expiry = Expiry {
            after_ms: self.expires(&fields, &path),
            on_expiry: self.on_expiry(&fields, &path),
        };
        (self.error_count() == errors_before).then(|| ReserveRule {
            key: (!key.is_empty()).then(|| key.to_owned()),
            amount,
            expiry,
        })
    }

    fn cannot_reserve(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        algorithm: &dyn Algorithm,
    ) {
        let message = format!("algorithm {} has no reservations", algorithm.name());
        let span = fields.key_span("reserve");
        let error = Diagnostic::error(Code::ConflictingKeys, span, message);
        let error = match fields.given("algorithm") {
            Some(node) => error.related(node.span, "the algorithm is set here"),
            None => error,
        };
        let help = format!(
            "remove `reserve`, or set `algorithm` to one of {}",
            algorithms_that_reserve()
        );
        self.report(path, error.help(help));
    }

    fn amount(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        limit: Option<&Limit>,
    ) -> Option<ReserveAmount> {
        let node = fields.given("amount");
        let percent = node.and_then(percent_of);
        if percent.is_none() {
            self.reject_without_learnt(fields, path);
        }
        let node = node?;
        if let Some(percent) = percent {
            return self
                .learnt(fields, path, limit, percent)
                .map(ReserveAmount::Learnt);
        }
        let hits = node.integer().and_then(|hits| u32::try_from(hits).ok());
        let Some(hits) = hits.filter(|hits| *hits > 0) else {
            // A number with a fraction was reported.
            if node.float().is_none() {
                self.no_amount(node, path);
            }
            return None;
        };
        self.fits("amount", u64::from(hits), limit, (node.span, path));
        Some(ReserveAmount::Hits(u64::from(hits)))
    }

    fn no_amount(&mut self, node: &Node, path: &FieldPath<'_>) {
        let is_number = node.integer().is_some();
        let code = if is_number {
            Code::OutOfRange
        } else {
            Code::WrongType
        };
        let message = "amount is neither a number of at least 1 nor one of p50 to p99";
        let found = match node.text() {
            Some(text) => excerpt(text).into_owned(),
            None => kind(node).to_owned(),
        };
        let error = Diagnostic::error(code, node.span, message);
        let error = error.label(format!("found {found}"));
        let help = format!(
            "write the hits to reserve, from 1 to {}, or a percentile such as `p95`",
            u32::MAX
        );
        self.report(path, error.help(help));
    }

    fn reject_without_learnt(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) {
        for name in ["floor", "ceiling", "per"] {
            if fields.given(name).is_some() {
                let message = format!("'{name}' has no effect without a learnt amount");
                let span = fields.key_span(name);
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let error = match fields.given("amount") {
                    Some(node) => error.related(node.span, "the amount is set here"),
                    None => error,
                };
                let help = format!("remove `{name}`, or learn the amount, such as `amount: p95`");
                self.report(path, error.help(help));
            }
        }
    }

    fn learnt(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        limit: Option<&Limit>,
        percent: u8,
    ) -> Option<Estimate> {
        let errors_before = self.error_count();
        let [floor, ceiling] = ["floor", "ceiling"].map(|name| {
            let number = self.integer(fields, path, name)?;
            let span = fields.span_of(name);
            if number == 0 {
                let message = format!("{name} must be at least 1");
                self.error(Code::OutOfRange, span, path, message, "write 1 or more");
            }
            self.fits(name, u64::from(number), limit, (span, path));
            Some(number)
        });
        if let (Some(floor), Some(ceiling)) = (floor, ceiling)
            && floor > ceiling
        {
            let message = format!("floor {floor} is above ceiling {ceiling}");
            let error = Diagnostic::error(Code::ConflictingKeys, fields.span_of("floor"), message);
            let error = error.related(fields.span_of("ceiling"), "the ceiling is set here");
            self.report(path, error.help("lower `floor`, or raise `ceiling`"));
        }
        let word = self.text(fields, path, "per");
        let scope = EstimateScope::from_name(word);
        if scope.is_none() && !word.is_empty() {
            let words = EstimateScope::ALL.map(EstimateScope::name);
            self.unknown_word(fields, path, "per", (word, &words));
        }
        let most = limit.map_or(u64::MAX, Limit::burst).max(1);
        (self.error_count() == errors_before).then(|| Estimate {
            percent,
            floor: floor.map_or(1, u64::from),
            ceiling: ceiling.map_or(most, u64::from),
            scope: scope.unwrap_or_default(),
        })
    }

    /// Reports an amount that never passes. A limit of 0 refuses everything, and is meant so.
    fn fits(
        &mut self,
        name: &str,
        hits: u64,
        limit: Option<&Limit>,
        (span, path): (Span, &FieldPath<'_>),
    ) {
        let Some(limit) = limit.filter(|limit| limit.burst() > 0) else {
            return;
        };
        let most = limit.burst();
        if hits > most {
            let message = format!(
                "{name} {hits} is more than the limit can ever hold, {most}: it would never pass"
            );
            let help = format!("use at most {most}, or raise the limit");
            self.error(Code::OutOfRange, span, path, message, help);
        }
    }

    fn expires(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> NonZeroU32 {
        let default = Expiry::default().after_ms;
        let text = self.text(fields, path, "expires");
        if text.is_empty() {
            return default;
        }
        let span = fields.span_of("expires");
        let ms = match duration(text) {
            Err(error) => {
                let message = format!("expires {}", error.message);
                self.error(Code::UnknownValue, span, path, message, error.help);
                return default;
            }
            Ok(us) if us % 1_000 == 0 => u32::try_from(us / 1_000).ok(),
            Ok(_) => None,
        };
        let ms = ms.filter(|ms| (EXPIRY_MS_MIN..=EXPIRY_MS_MAX).contains(ms));
        let ms = ms.and_then(NonZeroU32::new);
        if ms.is_none() {
            let message = format!("expires {} is not from 1s to 24h", excerpt(text));
            let help = "write whole milliseconds from 1s to 24h, longer than the slowest request";
            self.error(Code::OutOfRange, span, path, message, help);
        }
        ms.unwrap_or(default)
    }

    fn on_expiry(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> OnExpiry {
        let word = self.text(fields, path, "on_expiry");
        let found = OnExpiry::from_name(word);
        if found.is_none() && !word.is_empty() {
            let words = OnExpiry::ALL.map(OnExpiry::name);
            self.unknown_word(fields, path, "on_expiry", (word, &words));
        }
        found.unwrap_or_default()
    }
}

/// The percentile that a text such as `p95` names.
fn percent_of(node: &Node) -> Option<u8> {
    let digits = node.text()?.strip_prefix('p')?;
    let is_plain = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let percent = digits.parse().ok().filter(|_| is_plain)?;
    (PERCENT_MIN..=PERCENT_MAX)
        .contains(&percent)
        .then_some(percent)
}

/// The names of the algorithms whose limits can have reservations, for messages.
pub(in crate::file) fn algorithms_that_reserve() -> String {
    let names = ALGORITHMS.iter().filter(|one| one.can_reserve());
    let names: Vec<_> = names.map(|one| one.name()).collect();
    names.join(", ")
}
