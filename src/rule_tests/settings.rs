//! The settings of the service that a file of tests has.

use std::collections::BTreeMap;

use crate::rule_tests::load::Loader;
use crate::rules::excerpt::excerpt;
use crate::rules::file::{Code, Diagnostic, FieldPath, Fields, kind, nearest};
use crate::rules::yaml::Content;
use crate::settings::Settings;

// === impl Loader ===

impl Loader<'_> {
    /// Reads the settings: names of flags, and their values.
    pub(super) fn settings(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>) {
        let Some(node) = fields.given("settings") else {
            return;
        };
        let here = path.field("settings");
        if !matches!(node.content, Content::Mapping(_)) {
            let error = Diagnostic::error(Code::WrongType, node.span, "settings is not a mapping");
            let error = error.label(format!("found {}", kind(node)));
            self.reader.type_error(
                path,
                error.help("write `NAME: VALUE` pairs, such as `all_or_nothing: true`"),
            );
            return;
        }
        let known = Settings::decision_flags();
        let mut flags = BTreeMap::new();
        for pair in self.reader.free_form_pairs(node, &here) {
            let name = pair.name.text().unwrap_or_default();
            let Some(flag) = known.iter().find(|flag| flag.replace('-', "_") == name) else {
                let message = format!("unknown setting '{}'", excerpt(name));
                let error = Diagnostic::error(Code::UnknownKey, pair.name.span, message);
                let names: Vec<_> = known.iter().map(|flag| flag.replace('-', "_")).collect();
                let error = match nearest(name, names.iter().map(String::as_str)) {
                    Some(meant) => error
                        .help(format!("did you mean `{meant}`?"))
                        .edit(pair.name.span, meant),
                    None => error.help(format!(
                        "the settings of a file of tests are {}",
                        names.join(", ")
                    )),
                };
                self.reader.report(&here, error);
                continue;
            };
            let Some(values) = self.texts(pair.value, &here, name) else {
                continue;
            };
            let given = format!("--{flag}={}", values.join(","));
            match Settings::from_flags([given.as_str()]) {
                Ok(_) if pair.merged => {
                    flags.entry(flag.clone()).or_insert(given);
                }
                Ok(_) => {
                    flags.insert(flag.clone(), given);
                }
                Err(error) => {
                    let text = error.to_string();
                    let first = text.lines().next().unwrap_or_default();
                    let message = first.trim_start_matches("error: ").to_owned();
                    let help = format!("see `{flag}` in docs/settings.md");
                    let span = pair.value.span;
                    self.reader
                        .error(Code::UnknownValue, span, &here, message, help);
                }
            }
        }
        if let Ok(settings) = Settings::from_flags(flags.into_values()) {
            *self.settings = settings;
        }
    }
}
