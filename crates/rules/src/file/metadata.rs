//! The field `metadata`: free-form values, as a protobuf Struct can hold them.
//!
//! What it deliberately does not do: check names. Any name is allowed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::file::code::Code;
use crate::file::diagnostic::Diagnostic;
use crate::file::field_path::FieldPath;
use crate::file::fields::{Fields, Pair};
use crate::file::loader::Loader;
use crate::yaml::{Content, Node, kind};
use tollgate_limiter::MetadataValue;

// === impl Loader ===

impl Loader<'_> {
    pub(crate) fn metadata(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
    ) -> Option<MetadataValue> {
        let node = fields.given("metadata")?;
        let path = path.field("metadata");
        if !matches!(node.content, Content::Mapping(_)) {
            let message = "metadata is not a mapping";
            let error = Diagnostic::error(Code::WrongType, node.span, message);
            let error = error.label(format!("found {}", kind(node)));
            self.type_error(&path, error.help("write `key: value` pairs"));
            return None;
        }
        self.value(node, &path)
    }

    /// Converts a value as a protobuf Struct can hold it.
    fn value(&mut self, node: &Node, path: &FieldPath<'_>) -> Option<MetadataValue> {
        match &node.content {
            Content::Scalar { text, .. } => Some(if node.is_null() {
                MetadataValue::Null
            } else if let Some(truth) = node.boolean() {
                MetadataValue::Boolean(truth)
            } else if let Some(number) = node.number() {
                self.warn_octal(node, path);
                MetadataValue::Number(number)
            } else {
                MetadataValue::Text(text.clone())
            }),
            Content::Sequence(items) => {
                if !self.spend(items, node.span, path) {
                    return None;
                }
                let values = items.iter().map(|item| self.value(item, path));
                Some(MetadataValue::List(values.collect::<Option<_>>()?))
            }
            Content::Mapping(_) => {
                let mut values = Vec::new();
                let mut first = HashMap::new();
                for Pair {
                    name: key,
                    value,
                    merged,
                } in self.free_form_pairs(node, path)
                {
                    // A number or a boolean keeps its source text, as in other text fields.
                    let name = if key.is_null() { Some("") } else { key.text() };
                    let Some(name) = name else {
                        let message = "error parsing metadata: a key is not of type string";
                        let help = "write a name as the key";
                        self.error(Code::InvalidKey, key.span, path, message, help);
                        return None;
                    };
                    match first.entry(name) {
                        Entry::Occupied(_) if merged => continue,
                        Entry::Occupied(first) => {
                            self.warn_duplicate_key(name, (*first.get(), key.span), path);
                        }
                        Entry::Vacant(first) => {
                            first.insert(key.span);
                        }
                    }
                    let value = self.value(value, path)?;
                    values.push((name.to_owned(), value));
                }
                self.unfolding_left.map(|_| MetadataValue::Map(values))
            }
        }
    }
}
