//! What the answers of a step are to be, as a file has it.

use std::rc::Rc;

use crate::rule_tests::grammar_expect::{
    EXPECT, EXPECTED_DESCRIPTOR, OF_QUOTAS, RESERVATION_RESULTS, VERDICTS,
};
use crate::rule_tests::load::Loader;
use crate::rule_tests::moments::{Wait, wait};
use crate::rule_tests::test_file::{Expected, ExpectedStatus, Value};
use crate::rules::file::{Code, Diagnostic, FieldPath, Fields, kind};
use crate::rules::yaml::{Content, Node};

// === impl Loader ===

impl Loader<'_> {
    /// Reads the field `expect` of a step.
    pub(super) fn expected(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> Expected {
        let Some(node) = fields.given("expect") else {
            return Expected::default();
        };
        let path = path.field("expect");
        let Some(fields) = self.reader.fields(node, &path, &EXPECT) else {
            return Expected::default();
        };
        for field in OF_QUOTAS {
            if fields.given(field).is_some() {
                let message = format!("'{field}' has no effect without `quota`");
                let help = "move it into a step with `quota`, or remove it";
                let span = fields.key_span(field);
                self.reader
                    .error(Code::MisplacedKey, span, &path, message, help);
            }
        }
        let mut expected = Expected {
            admitted: self.number(&fields, &path, "admitted"),
            answer: self.status(&fields, &path),
            retry_after: self.wait(&fields, &path, "retry_after"),
            ..Expected::default()
        };
        expected.reservation = self.reservation(&fields, &path);
        let wide = |value: Value<u32>| Value {
            value: u64::from(value.value),
            span: value.span,
        };
        expected.reserved = self.number(&fields, &path, "reserved").map(wide);
        expected.committed = self.number(&fields, &path, "committed").map(wide);
        if let Some(headers) = fields.given("headers") {
            self.headers(headers, &path, &mut expected);
        }
        if fields.given("body").is_some() {
            expected.body = Some(Value {
                value: self.reader.text(&fields, &path, "body").to_owned(),
                span: fields.span_of("body"),
            });
        }
        if fields.given("descriptors").is_some() {
            let example = "- {verdict: OK}";
            let items = self.reader.items(&fields, &path, "descriptors", example);
            expected.descriptors = Some(Value {
                value: self.descriptors(items, &path),
                span: fields.span_of("descriptors"),
            });
        }
        expected
    }

    fn descriptors(&mut self, items: &[Rc<Node>], path: &FieldPath<'_>) -> Vec<ExpectedStatus> {
        let mut statuses = Vec::new();
        for (position, item) in items.iter().enumerate() {
            let path = path.item("descriptors", position);
            let fields = self.reader.fields(item, &path, &EXPECTED_DESCRIPTOR);
            statuses.push(fields.map_or_else(ExpectedStatus::default, |fields| {
                self.status(&fields, &path)
            }));
        }
        statuses
    }

    /// Reads what an answer, or a part of it about one descriptor, is to be.
    fn status(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) -> ExpectedStatus {
        let word = self.reader.text(fields, path, "verdict");
        let verdict = VERDICTS.into_iter().find(|verdict| *verdict == word);
        if verdict.is_none() && !word.is_empty() {
            self.reader
                .unknown_word(fields, path, "verdict", (word, &VERDICTS));
        }
        let rule = self.reader.text(fields, path, "rule");
        ExpectedStatus {
            verdict: verdict.map(|value| Value {
                value,
                span: fields.span_of("verdict"),
            }),
            remaining: self.number(fields, path, "remaining"),
            rule: (!rule.is_empty()).then(|| Value {
                value: rule.to_owned(),
                span: fields.span_of("rule"),
            }),
            reset_after: self.wait(fields, path, "reset_after"),
        }
    }

    /// Reads what is to become of the reservation.
    fn reservation(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<Value<&'static str>> {
        let words = RESERVATION_RESULTS.map(|(word, _)| word);
        let given = self.reader.text(fields, path, "reservation");
        if given.is_empty() {
            return None;
        }
        let Some(value) = words.into_iter().find(|word| *word == given) else {
            self.reader
                .unknown_word(fields, path, "reservation", (given, &words));
            return None;
        };
        Some(Value {
            value,
            span: fields.span_of("reservation"),
        })
    }

    fn number(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Value<u32>> {
        let value = self.reader.integer(fields, path, name)?;
        let span = fields.span_of(name);
        Some(Value { value, span })
    }

    fn wait(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Value<Wait>> {
        let value = self.parsed(fields, path, name, wait)?;
        let span = fields.span_of(name);
        Some(Value { value, span })
    }

    /// Reads headers by their names. The case of a name does not matter.
    fn headers(&mut self, node: &Node, path: &FieldPath<'_>, expected: &mut Expected) {
        let here = path.field("headers");
        if !matches!(node.content, Content::Mapping(_)) {
            let error = Diagnostic::error(Code::WrongType, node.span, "headers is not a mapping");
            let error = error.label(format!("found {}", kind(node)));
            self.reader
                .type_error(path, error.help("write `NAME: VALUE` pairs"));
            return;
        }
        for pair in self.reader.free_form_pairs(node, &here) {
            let name = pair.name.text().unwrap_or_default().to_ascii_lowercase();
            let span = pair.value.span;
            let value = match pair.value.text() {
                _ if pair.value.is_null() => None,
                Some(text) => Some(text.to_owned()),
                None => {
                    let message = format!("the value of {name} is not text");
                    let error = Diagnostic::error(Code::WrongType, span, message);
                    let error = error.label(format!("found {}", kind(pair.value)));
                    self.reader
                        .type_error(&here, error.help("write one value, or null for no header"));
                    continue;
                }
            };
            let value = Value { value, span };
            if pair.merged {
                expected.headers.entry(name).or_insert(value);
            } else {
                expected.headers.insert(name, value);
            }
        }
    }
}
