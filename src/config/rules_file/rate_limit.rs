//! What stands under `rate_limit`: how many, in how long, counted how, and which rules it replaces.
//!
//! What it deliberately does not do: know where in the tree it stands (`mod`).

use std::num::NonZeroU32;

use super::super::yaml::Node;
use super::Loader;
use super::fields::Fields;
use super::problem::{Place, shown};
use crate::limiter::{ALGORITHMS, Allowance, Limit, LimitError, Rule, Unit, algorithm};

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn rate_limit(&mut self, node: &Node, place: &Place<'_>, rule: &mut Rule) -> bool {
        const HERE: &[&str] = &[
            "unit",
            "unit_multiplier",
            "requests_per_unit",
            "unlimited",
            "name",
            "replaces",
            "algorithm",
            "burst",
        ];
        let Some(fields) = self.fields(node, place, HERE) else {
            return false;
        };
        let problems_before = self.problems.len();
        let unlimited = self.boolean(&fields, place, "unlimited");
        let unit_text = self.text(&fields, place, "unit");
        let allowance = match (unlimited, Unit::named(unit_text)) {
            (true, None) => {
                self.unlimited(&fields, place);
                Some(Allowance::Unlimited)
            }
            (true, Some(_)) => {
                self.problem(
                    fields.place_of("unit"),
                    place,
                    "should not specify rate limit unit when unlimited".to_owned(),
                    "remove `unit`, or remove `unlimited`",
                );
                None
            }
            (false, None) => {
                let units: Vec<_> = Unit::ALL.iter().map(|unit| unit.name()).collect();
                self.problem(
                    fields.place_of("unit"),
                    place,
                    format!("invalid rate limit unit '{}'", shown(unit_text)),
                    &format!("use one of {}", units.join(", ")),
                );
                None
            }
            (false, Some(unit)) => self.limited(&fields, place, unit),
        };
        let name = self.text(&fields, place, "name");
        self.short(name, fields.place_of("name"), place);
        name.clone_into(&mut rule.name);
        rule.replaces = self.replaces(&fields, place, name);
        if let Some(allowance) = allowance {
            rule.allowance = allowance;
        }
        self.problems.len() == problems_before
    }

    /// Beside `unlimited` a number of requests is ignored, as by the reference, but must be one; what only tollgate knows
    /// is refused.
    fn unlimited(&mut self, fields: &Fields<'_>, place: &Place<'_>) {
        self.integer(fields, place, "requests_per_unit");
        for name in ["unit_multiplier", "algorithm", "burst"] {
            if fields.given(name).is_some() {
                let message = format!("'{name}' means nothing beside unlimited");
                self.problem(
                    fields.place_of(name),
                    place,
                    message,
                    "remove it, or `unlimited`",
                );
            }
        }
    }

    fn limited(&mut self, fields: &Fields<'_>, place: &Place<'_>, unit: Unit) -> Option<Allowance> {
        let requests = self.integer(fields, place, "requests_per_unit");
        let multiplier = self.integer(fields, place, "unit_multiplier");
        let burst = self.integer(fields, place, "burst");
        let Some(multiplier) = NonZeroU32::new(multiplier.unwrap_or(1)) else {
            self.problem(
                fields.place_of("unit_multiplier"),
                place,
                "unit_multiplier must be at least 1".to_owned(),
                "remove it for a window of one unit",
            );
            return None;
        };
        let name = self.text(fields, place, "algorithm");
        let algorithm = match name {
            "" => ALGORITHMS.first().copied(),
            name => algorithm::named(name),
        };
        let Some(algorithm) = algorithm else {
            let names: Vec<_> = ALGORITHMS.iter().map(|known| known.name()).collect();
            self.problem(
                fields.place_of("algorithm"),
                place,
                format!("unknown algorithm '{}'", shown(name)),
                &format!("use one of {}", names.join(", ")),
            );
            return None;
        };
        if burst.is_some() && !algorithm.has_burst() {
            self.problem(
                fields.place_of("burst"),
                place,
                format!("algorithm {} has no burst", algorithm.name()),
                "remove `burst`, or set `algorithm: token_bucket`",
            );
            return None;
        }
        match Limit::new(requests.unwrap_or_default(), unit, multiplier, burst) {
            Ok(limit) => Some(Allowance::Limited { limit, algorithm }),
            Err(error) => {
                let advice = match error {
                    LimitError::ZeroBurst => "remove `burst` for one as large as the limit",
                    LimitError::BurstWithoutRate => {
                        "remove `burst`: a limit of 0 refuses everything"
                    }
                };
                self.problem(fields.place_of("burst"), place, error.to_string(), advice);
                None
            }
        }
    }

    fn replaces(&mut self, fields: &Fields<'_>, place: &Place<'_>, own_name: &str) -> Vec<String> {
        let advice = "write it as a list: `replaces: [{name: OTHER}]`";
        let items = self.items(fields, place, "replaces", advice);
        let mut names = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let place = place.item("replaces", position);
            let Some(fields) = self.fields(item, &place, &["name"]) else {
                continue;
            };
            let name = self.text(&fields, &place, "name");
            let (message, advice) = if name.is_empty() {
                (
                    "should not have an empty replaces entry",
                    "name the rule to replace, or remove the entry",
                )
            } else if name == own_name {
                (
                    "replaces should not contain name of same descriptor",
                    "a rule cannot replace itself; remove the entry",
                )
            } else {
                if self.short(name, item.at, &place) {
                    names.push(name.to_owned());
                }
                continue;
            };
            self.problem(item.at, &place, message.to_owned(), advice);
        }
        names
    }
}
