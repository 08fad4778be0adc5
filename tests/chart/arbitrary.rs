//! Generates random values that fit a JSON schema.
//!
//! How: supports the part of JSON Schema that `values.schema.json` uses. Where a schema leaves
//! validation to Kubernetes it has `examples`, and one of those is taken. Texts with a pattern are
//! generated from it.
//!
//! What it deliberately does not do: make values consistent with one another. The chart's guards
//! check that.

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::string::string_regex;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};
use tollgate_test_support::seeded_rng::SeededRng;

/// Generator of values.
pub(crate) struct Arbitrary<'s> {
    schema: &'s Value,
    chance: SeededRng,
    texts: TestRunner,
}

// === impl Arbitrary ===

impl<'s> Arbitrary<'s> {
    pub(crate) fn of_seed(schema: &'s Value, seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Self {
            schema,
            chance: SeededRng::of_seed(seed),
            texts: TestRunner::new_with_rng(Config::default(), random),
        }
    }

    /// Values that set `count` properties of the root.
    pub(crate) fn values(&mut self, few: usize) -> Value {
        let properties = self.schema["properties"].as_object().expect("properties");
        let names: Vec<_> = properties.keys().collect();
        let mut values = Map::new();
        while values.len() < few {
            let name = names[self.chance.position(names.len())];
            values.insert(name.clone(), self.value(&properties[name]));
        }
        Value::Object(values)
    }

    fn value(&mut self, schema: &'s Value) -> Value {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.trim_start_matches('#');
            return self.value(self.schema.pointer(name).expect(name));
        }
        for list in ["examples", "enum"] {
            if let Some(list) = schema[list].as_array() {
                return list[self.chance.position(list.len())].clone();
            }
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => &kinds[self.chance.position(kinds.len())],
            kind => kind,
        };
        match kind.as_str() {
            Some("null") => Value::Null,
            Some("boolean") => json!(self.chance.once_in(2)),
            Some("integer" | "number") => json!(self.number(schema)),
            Some("string") => json!(self.text(schema)),
            Some("array") => {
                let count = self.chance.below(3);
                (0..count).map(|_| self.value(&schema["items"])).collect()
            }
            Some("object") => Value::Object(self.object(schema)),
            _ => panic!("an unsupported type: {schema}"),
        }
    }

    /// Mostly small numbers, which are near other bounds.
    fn number(&mut self, schema: &Value) -> u64 {
        let least = schema["minimum"].as_u64().unwrap_or(0);
        let most = schema["maximum"].as_u64().unwrap_or(least + 1_000_000);
        let most = if self.chance.once_in(4) {
            most
        } else {
            most.min(least + 5)
        };
        self.chance.between(least, most)
    }

    fn text(&mut self, schema: &Value) -> String {
        let pattern = schema["pattern"].as_str().unwrap_or("^[ -~é]{0,20}$");
        // Anchors are skipped, since the whole text is generated.
        let bare = pattern.replace("$|^", "|");
        let bare = bare.trim_start_matches('^').trim_end_matches('$');
        let made = string_regex(bare).expect(pattern);
        let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
        let least = schema["minLength"].as_u64().unwrap_or(0);
        loop {
            let text = made.new_tree(&mut self.texts).expect(pattern).current();
            // Leaves out characters that YAML cannot hold.
            let plain =
                |sign| (' '..='~').contains(&sign) || ('\u{a1}'..='\u{2fff}').contains(&sign);
            let text: String = text
                .chars()
                .map(|sign| if plain(sign) { sign } else { 'x' })
                .collect();
            let length = text.chars().count() as u64;
            let not = &schema["not"];
            let barred = not["const"] == text.as_str()
                || not["enum"]
                    .as_array()
                    .is_some_and(|barred| barred.contains(&json!(text)));
            // A text with braces is a template, and a random one is rarely valid.
            if (least..=most).contains(&length) && !barred && !text.contains("{{") {
                return text;
            }
        }
    }

    /// A key that every guard accepts, and now and then one that none does.
    fn key(&mut self) -> String {
        if self.chance.once_in(20) {
            return "no key".to_owned();
        }
        self.text(&json!({ "pattern": "^[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?$" }))
    }

    fn object(&mut self, schema: &'s Value) -> Map<String, Value> {
        let none = Map::new();
        let mut made = Map::new();
        let required = schema["required"].as_array().into_iter().flatten();
        let required: Vec<_> = required.filter_map(Value::as_str).collect();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let at_least = schema["minProperties"].as_u64().unwrap_or(0);
        loop {
            for name in properties.keys() {
                if required.contains(&name.as_str())
                    || self
                        .chance
                        .once_in(if properties.len() > 20 { 12 } else { 3 })
                {
                    let schema = &schema["properties"][name];
                    made.insert(name.clone(), self.value(schema));
                }
            }
            if made.len() as u64 >= at_least {
                break;
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.chance.below(3) {
                let name = self.key();
                made.insert(name, self.value(&schema["additionalProperties"]));
            }
        }
        made
    }
}
