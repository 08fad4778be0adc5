//! What the answers of a step are to be, as a file has it.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::rule_tests::grammar::{EXPECT, EXPECTED_DESCRIPTOR, OF_QUOTAS};
use crate::rule_tests::load::{Loader, with_place};
use crate::rule_tests::test_file::{Expectation, Expected};
use crate::rule_tests::values::wait;
use tollgate_rules::file::{FieldPlace, Fields};
use tollgate_rules::yaml::Node;

fn expect(at: &Fields<'_>, field: &str, value: Option<impl Display>) -> Option<Expectation> {
    value.map(|value| Expectation {
        field: field.to_owned(),
        span: at.span_of(field),
        text: Some(value.to_string()),
    })
}

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
        let mut answer = Vec::new();
        answer.extend(expect(at, "admitted", self.reader.integer(at, "admitted")));
        answer.extend(self.status(at));
        answer.extend(expect(
            at,
            "retry_after",
            self.parsed(at, "retry_after", wait),
        ));
        answer.extend(self.expected_word(at, "no_limit"));
        answer.extend(self.expected_word(at, "reservation"));
        answer.extend(expect(at, "reserved", self.reader.integer(at, "reserved")));
        answer.extend(expect(
            at,
            "committed",
            self.reader.integer(at, "committed"),
        ));
        answer.extend(self.headers(at));
        let body = at.has("body");
        answer.extend(expect(
            at,
            "body",
            body.then(|| self.reader.text(at, "body")),
        ));
        let descriptors = at.has("descriptors").then(|| {
            let example = "- {verdict: OK}";
            self.list(at, "descriptors", example, usize::MAX, |this, item| {
                let reader = &mut this.reader;
                let at = reader.fields(item.node, item.path, &EXPECTED_DESCRIPTOR);
                Some(at.map_or_else(Vec::new, |at| this.status(&at)))
            })
        });
        Expected {
            answer,
            descriptors: with_place(at, "descriptors", descriptors),
        }
    }

    /// Reads what an answer, or a part of it about one descriptor, is to be.
    fn status(&mut self, at: &Fields<'_>) -> Vec<Expectation> {
        let verdict = self.expected_word(at, "verdict");
        let remaining = expect(at, "remaining", self.reader.integer(at, "remaining"));
        let rule = Some(self.reader.text(at, "rule")).filter(|rule| !rule.is_empty());
        let rule = expect(at, "rule", rule);
        let reset_after = expect(at, "reset_after", self.parsed(at, "reset_after", wait));
        let all = [verdict, remaining, rule, reset_after];
        all.into_iter().flatten().collect()
    }

    fn expected_word(&mut self, at: &Fields<'_>, field: &'static str) -> Option<Expectation> {
        let known = at.words(field);
        let find = |word: &str| known.into_iter().find(|known| *known == word);
        expect(at, field, self.reader.word(at, field, find))
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
