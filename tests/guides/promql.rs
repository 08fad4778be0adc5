//! Metrics and labels that a PromQL expression names.
//!
//! Why by hand: promtool checks the syntax; here only names matter.
//!
//! What it deliberately does not do: parse. Our metrics have one of two prefixes, and labels are in
//! braces or after `by` and `on`.

use std::collections::BTreeSet;

/// One occurrence of a metric.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) metric: String,
    /// Its label matchers: name, operator, value.
    pub(crate) labels: Vec<(String, String, String)>,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Our metrics in an expression.
pub(crate) fn metrics(expression: &str) -> Vec<Named> {
    let mut named = Vec::new();
    for prefix in ["tollgate_", "ratelimit_"] {
        for (at, _) in expression.match_indices(prefix) {
            if expression[..at].ends_with(|c| is_word(c) || c == '"') {
                continue;
            }
            let rest = &expression[at..];
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (metric, after) = rest.split_at(end);
            let braces = after
                .strip_prefix('{')
                .and_then(|inside| inside.split_once('}'));
            named.push(Named {
                metric: metric.to_owned(),
                labels: braces.map_or_else(Vec::new, |(inside, _)| matchers(inside)),
            });
        }
    }
    named
}

fn matchers(inside: &str) -> Vec<(String, String, String)> {
    let mut rest = inside;
    let mut found = Vec::new();
    while let Some((before, after)) = rest.split_once('"') {
        let (value, next) = after.split_once('"').expect("the value's end");
        let name = before.trim_matches([',', ' ']);
        let name_end = name.find(|c| !is_word(c)).expect("an operator");
        let (name, operator) = name.split_at(name_end);
        found.push((name.to_owned(), operator.to_owned(), value.to_owned()));
        rest = next;
    }
    found
}

/// Labels of `by` and `on` clauses.
pub(crate) fn grouped_by(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for word in ["by (", "on (", "group_left ("] {
        for list in expression.split(word).skip(1) {
            let list = list.split(')').next().expect("its end");
            let names = list
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty());
            found.extend(names.map(str::to_owned));
        }
    }
    found
}

#[test]
fn names_and_labels_are_found() {
    let expression = "sum by (job, reason) (rate(tollgate_shed_total{reason!=\"a\", job=~\"$job\"}[5m])) \
                      / on (job) group_left () ratelimit_service_total_requests";
    let named = metrics(expression);
    assert_eq!(named.len(), 2);
    assert_eq!(named[0].metric, "tollgate_shed_total");
    let [first, second] = &named[0].labels[..] else {
        panic!("{named:?}")
    };
    let texts =
        |(name, operator, value): &(String, String, String)| format!("{name}{operator}{value}");
    assert_eq!([first, second].map(texts), ["reason!=a", "job=~$job"]);
    assert_eq!(named[1].metric, "ratelimit_service_total_requests");
    let groups: Vec<_> = grouped_by(expression).into_iter().collect();
    assert_eq!(groups, ["job", "reason"]);
}
