//! limitador: every limit whose conditions hold and whose variables exist counts a request, or none
//! of them does.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::expression_model::holds;
use super::settings_text::yaml;

/// Entries by descriptor and key.
pub(crate) type Entries = BTreeMap<(u32, String), String>;

pub(crate) struct Model {
    limits: Vec<Limit>,
    counters: BTreeMap<(usize, Vec<String>, u64), u64>,
}

pub(crate) struct Limit {
    pub(crate) namespace: String,
    pub(crate) conditions: Vec<String>,
    pub(crate) variables: Vec<String>,
    max: u64,
    seconds: u64,
}

/// The limits of a file, without those at these lines, which stderr says are left out.
pub(crate) fn limits(text: &str, left_out: &[usize]) -> Vec<Limit> {
    let document = yaml(text);
    let list = document.as_array().cloned();
    let list = list.unwrap_or_else(|| limits_of_plans(&document));
    let numbered = list.iter().enumerate();
    let kept = numbered.filter(|(index, _)| !left_out.contains(&(index + 1)));
    let texts = |limit: &Value, field: &str| -> Vec<String> {
        let list = limit[field].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|it| it.as_str().unwrap().to_owned())
            .collect()
    };
    let number = |limit: &Value, field: &str| limit[field].as_str().unwrap().parse().unwrap();
    let limit = |(_, limit): (usize, &Value)| Limit {
        namespace: limit["namespace"].as_str().unwrap().to_owned(),
        conditions: texts(limit, "conditions"),
        variables: texts(limit, "variables"),
        max: number(limit, "max_value"),
        seconds: number(limit, "seconds"),
    };
    kept.map(limit).collect()
}

/// The limits that Kuadrant's operator makes of a `PlanPolicy`. A plan with a limit that is no
/// number is left out, and one whose tier an earlier plan has.
fn limits_of_plans(policy: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for plan in policy["spec"]["plans"].as_array().expect("a PlanPolicy") {
        let limits = &plan["limits"];
        let windows = [
            ("daily", 24),
            ("weekly", 168),
            ("monthly", 730),
            ("yearly", 8_760),
        ];
        let named = windows.map(|(name, hours)| (limits[name].clone(), hours * 3_600));
        let custom = limits["custom"].as_array().into_iter().flatten();
        let custom = custom.map(|rate| {
            let seconds = match rate["window"].as_str() {
                Some("10s") => 10,
                Some("1h30m") => 5_400,
                other => panic!("{other:?}"),
            };
            (rate["limit"].clone(), seconds)
        });
        let rates = named.into_iter().filter(|(limit, _)| limit.is_string());
        let rates: Vec<_> = rates.chain(custom).collect();
        let is_number = |(limit, _): &(Value, u64)| limit.as_str().unwrap().parse::<u64>().is_ok();
        let condition = format!(
            "descriptors[0].plan == '{}'",
            plan["tier"].as_str().unwrap()
        );
        let is_known = |limit: &Value| limit["conditions"][0] == condition.as_str();
        if !rates.iter().all(is_number) || all.iter().any(is_known) {
            continue;
        }
        all.extend(rates.into_iter().map(|(limit, seconds)| {
            json!({
                "namespace": policy["metadata"]["name"], "conditions": [condition],
                "max_value": limit, "seconds": seconds.to_string(),
            })
        }));
    }
    all
}

/// The entry that an expression names.
pub(crate) fn entry_name(expression: &str) -> (u32, String) {
    let Some(rest) = expression.strip_prefix("descriptors[") else {
        return (0, expression.to_owned());
    };
    let (index, key) = rest.split_once(']').expect("an index");
    let key = key
        .trim_start_matches(['.', '[', '\'', '"'])
        .trim_end_matches([']', '\'', '"']);
    (index.parse().unwrap(), key.to_owned())
}

impl Model {
    pub(crate) fn new(limits: Vec<Limit>) -> Self {
        Self {
            limits,
            counters: BTreeMap::new(),
        }
    }

    pub(crate) fn limits(&self) -> &[Limit] {
        &self.limits
    }

    pub(crate) fn passes(&mut self, now_us: u64, entries: &Entries) -> bool {
        let entry = |expression: &str| entries.get(&entry_name(expression)).cloned();
        let mut counted = Vec::new();
        for (index, limit) in self.limits.iter().enumerate() {
            let applies = limit
                .conditions
                .iter()
                .all(|it| holds(it, &entry) == Some(true));
            let values: Option<Vec<String>> = limit.variables.iter().map(|it| entry(it)).collect();
            if let (true, Some(values)) = (applies, values) {
                let window = now_us / 1_000_000 / limit.seconds;
                counted.push(((index, values, window), limit.max));
            }
        }
        let used = |counter| self.counters.get(counter).copied().unwrap_or_default();
        let passes = counted.iter().all(|(counter, max)| used(counter) < *max);
        if passes {
            for (counter, _) in counted {
                *self.counters.entry(counter).or_default() += 1;
            }
        }
        passes
    }
}
