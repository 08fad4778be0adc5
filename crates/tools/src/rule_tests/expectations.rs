//! What the answers of a step are to be, as a file has it.

use std::collections::BTreeMap;

use crate::rule_tests::grammar::{EXPECT, EXPECTED_DESCRIPTOR, OF_QUOTAS};
use crate::rule_tests::load::{Loader, with_place};
use crate::rule_tests::test_file::{Expectation, Expected};
use crate::rule_tests::values::wait;
use tollgate_rules::file::{FieldPlace, Fields, Kind};
use tollgate_rules::yaml::Node;

/// The fields that an answer and each of its descriptors have, and those of an answer alone, in the
/// order in which differences are reported.
const OF_DESCRIPTORS: [&str; 4] = ["verdict", "remaining", "rule", "reset_after"];
const OF_ANSWERS: [&str; 5] = [
    "retry_after",
    "no_limit",
    "reservation",
    "reserved",
    "committed",
];

// === impl Loader ===

impl Loader<'_> {
    /// Reads the field `expect` of a step.
    pub(super) fn expected(&mut self, step: &Fields<'_>) -> Expected {
        let Some(at) = &self.reader.inner(step, "expect", &EXPECT) else {
            return Expected::default();
        };
        for field in OF_QUOTAS {
            let help = "move it into a step with `quota`, or remove it";
            self.no_effect(at, field, "without `quota`", help);
        }
        let mut answer = self.expectations(at, &["admitted"]);
        answer.extend(self.expectations(at, &OF_DESCRIPTORS));
        answer.extend(self.expectations(at, &OF_ANSWERS));
        answer.extend(self.headers(at));
        answer.extend(self.expectations(at, &["body"]));
        let descriptors = at.has("descriptors").then(|| {
            let example = "- {verdict: OK}";
            self.list(at, "descriptors", example, usize::MAX, |this, item| {
                let reader = &mut this.reader;
                let at = reader.fields(item.node, item.path, &EXPECTED_DESCRIPTOR);
                Some(at.map_or_else(Vec::new, |at| this.expectations(&at, &OF_DESCRIPTORS)))
            })
        });
        Expected {
            answer,
            descriptors: with_place(at, "descriptors", descriptors),
        }
    }

    /// Reads what these fields are to be, by their types.
    fn expectations(&mut self, at: &Fields<'_>, names: &[&'static str]) -> Vec<Expectation> {
        let mut found = Vec::new();
        for name in names.iter().copied().filter(|name| at.has(name)) {
            let text = match at.kind(name) {
                Some(Kind::Integer(_)) => {
                    self.reader.large_integer(at, name).map(|it| it.to_string())
                }
                Some(Kind::Wait) => self.parsed(at, name, wait).map(|it| it.to_string()),
                Some(Kind::Enum { words, .. }) => {
                    let word = |text: &str| words().contains(&text).then(|| text.to_owned());
                    self.reader.word(at, name, word)
                }
                _ => Some(self.reader.text(at, name).to_owned()),
            };
            // No rule is no expectation; a body may be empty.
            let text = text.filter(|text| name != "rule" || !text.is_empty());
            found.extend(text.map(|text| Expectation {
                field: name.to_owned(),
                span: at.span_of(name),
                text: Some(text),
            }));
        }
        found
    }

    /// Reads headers by their names. The case of a name does not matter.
    fn headers(&mut self, at: &Fields<'_>) -> Vec<Expectation> {
        let mut headers = BTreeMap::new();
        let path = at.path.field("headers");
        for pair in self.pairs(at, "headers", "write `NAME: VALUE` pairs") {
            let name = pair.name.text().unwrap_or_default().to_ascii_lowercase();
            let Some(value) = self.header(&name, pair.value, path.at(pair.value.span)) else {
                continue;
            };
            if pair.merged {
                headers.entry(name).or_insert(value);
            } else {
                headers.insert(name, value);
            }
        }
        headers.into_values().collect()
    }

    fn header(&mut self, name: &str, node: &Node, at: FieldPlace) -> Option<Expectation> {
        let text = node.text();
        if text.is_none() && !node.is_null() {
            let message = format!("the value of {name} is not text");
            let help = "write one value, or null for no header";
            self.reader.wrong_type(at, node, message, help);
            return None;
        }
        Some(Expectation {
            field: format!("headers.{name}"),
            span: node.span,
            text: text.filter(|_| !node.is_null()).map(str::to_owned),
        })
    }
}
