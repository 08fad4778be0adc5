//! limitador: every limit whose conditions hold and whose variables exist counts a request, or none
//! of them does.

use std::collections::BTreeMap;

use serde_json::Value;

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
    let numbered = document.as_array().expect("a list").iter().enumerate();
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
