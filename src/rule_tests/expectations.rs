//! What the answers of a step are to be, as a file has it.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::rule_tests::grammar::{
    EXPECT, EXPECTED_DESCRIPTOR, OF_QUOTAS, RESERVATION_RESULTS, VERDICTS,
};
use crate::rule_tests::load::{Loader, Section};
use crate::rule_tests::test_file::{Expectation, Expected};
use crate::rule_tests::values::wait;
use crate::rules::file::FieldPath;
use crate::rules::yaml::{Content, Node};

// === impl Section ===

impl Section<'_> {
    fn expect(&self, field: &str, value: Option<impl Display>) -> Option<Expectation> {
        value.map(|value| Expectation {
            field: field.to_owned(),
            span: self.fields.span_of(field),
            text: Some(value.to_string()),
        })
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads the field `expect` of a step.
    pub(super) fn expected(&mut self, step: &Section<'_>) -> Expected {
        let node = step.fields.given("expect");
        let at = node.and_then(|node| self.section(node, step.path.field("expect"), &EXPECT));
        let Some(at) = &at else {
            return Expected::default();
        };
        for field in OF_QUOTAS {
            let help = "move it into a step with `quota`, or remove it";
            self.no_effect(at, field, "without `quota`", help);
        }
        let mut answer = Vec::new();
        answer.extend(at.expect("admitted", self.integer(at, "admitted")));
        answer.extend(self.status(at));
        answer.extend(at.expect("retry_after", self.parsed(at, "retry_after", wait)));
        let words = RESERVATION_RESULTS.map(|(word, _)| word);
        answer.extend(self.expected_word(at, "reservation", &words));
        answer.extend(at.expect("reserved", self.integer(at, "reserved")));
        answer.extend(at.expect("committed", self.integer(at, "committed")));
        answer.extend(self.headers(at));
        let body = at.fields.given("body").is_some();
        answer.extend(at.expect("body", body.then(|| self.text(at, "body"))));
        let descriptors = at.fields.given("descriptors").is_some().then(|| {
            let example = "- {verdict: OK}";
            self.list(
                at,
                "descriptors",
                example,
                usize::MAX,
                |this, item, path| {
                    let at = this.section(item, path, &EXPECTED_DESCRIPTOR);
                    Some(at.map_or_else(Vec::new, |at| this.status(&at)))
                },
            )
        });
        Expected {
            answer,
            descriptors: at.value("descriptors", descriptors),
        }
    }

    /// Reads what an answer, or a part of it about one descriptor, is to be.
    fn status(&mut self, at: &Section<'_>) -> Vec<Expectation> {
        let verdict = self.expected_word(at, "verdict", &VERDICTS);
        let remaining = at.expect("remaining", self.integer(at, "remaining"));
        let rule = Some(self.text(at, "rule")).filter(|rule| !rule.is_empty());
        let rule = at.expect("rule", rule);
        let reset_after = at.expect("reset_after", self.parsed(at, "reset_after", wait));
        let all = [verdict, remaining, rule, reset_after];
        all.into_iter().flatten().collect()
    }

    fn expected_word(
        &mut self,
        at: &Section<'_>,
        field: &str,
        known: &[&'static str],
    ) -> Option<Expectation> {
        let find = |word: &str| known.iter().find(|known| **known == word);
        at.expect(field, self.word(at, field, known, find))
    }

    /// Reads headers by their names. The case of a name does not matter.
    fn headers(&mut self, at: &Section<'_>) -> Vec<Expectation> {
        let mut headers = BTreeMap::new();
        let Some(node) = at.fields.given("headers") else {
            return Vec::new();
        };
        if !matches!(node.content, Content::Mapping(_)) {
            let help = "write `NAME: VALUE` pairs";
            self.wrong_type(&at.path, node, "headers is not a mapping", help);
            return Vec::new();
        }
        let path = at.path.field("headers");
        for pair in self.reader.free_form_pairs(node, &path) {
            let name = pair.name.text().unwrap_or_default().to_ascii_lowercase();
            let Some(value) = self.header(&name, pair.value, &path) else {
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

    fn header(&mut self, name: &str, node: &Node, path: &FieldPath<'_>) -> Option<Expectation> {
        let text = node.text();
        if text.is_none() && !node.is_null() {
            let message = format!("the value of {name} is not text");
            let help = "write one value, or null for no header";
            self.wrong_type(path, node, message, help);
            return None;
        }
        Some(Expectation {
            field: format!("headers.{name}"),
            span: node.span,
            text: text.filter(|_| !node.is_null()).map(str::to_owned),
        })
    }
}
