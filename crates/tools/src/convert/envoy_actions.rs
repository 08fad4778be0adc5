//! The rate limit actions of Envoy that build the descriptors of a rules file.
//!
//! Each list of keys that ends at a limit is one descriptor, and so one list of actions. Rules do
//! not say where a key's value comes from. Well-known keys have a default; any other key becomes a
//! header, with a comment that it is a guess.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::convert::rules_text::{comment, scalar};
use tollgate_limiter::{Rule, RuleSet, Values};

/// Keys that Envoy fills from one header, and that header.
const HEADERS: [(&str, &str); 11] = [
    ("path", ":path"),
    ("method", ":method"),
    ("host", ":authority"),
    ("authority", ":authority"),
    ("scheme", ":scheme"),
    ("client_id", "x-clientid"),
    ("user_agent", "user-agent"),
    ("referer", "referer"),
    ("authorization", "authorization"),
    ("api_key", "x-api-key"),
    ("request_id", "x-request-id"),
];

/// Keys that have an action of their own without fields.
const ACTIONS: [&str; 4] = [
    "remote_address",
    "masked_remote_address",
    "source_cluster",
    "destination_cluster",
];

/// How many lists of actions one descriptor may become by headers that may be absent.
const ALTERNATIVES_MAX: usize = 64;

/// How many descriptors a request may have by default: `--descriptors-max`.
const DESCRIPTORS_MAX: usize = 512;

/// What is known about keys beyond the rules.
#[derive(Clone, Debug, Default)]
pub struct KeySources {
    /// Keys and the header that each comes from.
    pub headers: Vec<(String, String)>,
    /// Keys and the value that a request without the header has.
    pub absent: Vec<(String, String)>,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct EntrySource {
    key: String,
    /// The value, if Envoy has to know it: for keys that no part of a request is.
    value: Option<String>,
}

/// A list of actions.
struct ActionList {
    about: String,
    entries: Vec<EntrySource>,
    /// What it has besides its actions.
    fields: &'static str,
}

/// The fields of a list that Envoy sends when the request is done, to return its slot; of one that
/// reserves before the request; and of one that settles the reservation when the request is done.
const REFUND: &str = "    # needs RateLimitPerRoute: docs/rules.md#limit-concurrency-with-envoy
    hits_addend: { number: 1, is_negative_hits: true }
    apply_on_stream_done: true
";
const START: &str = "    # needs RateLimitPerRoute, and an id that clients cannot set: docs/rules.md#reserve-with-envoy
    hits_addend: { number: 0 }
";
const END: &str = "    # where is the true amount? See docs/rules.md#reserve-with-envoy
    hits_addend: { format: \"%DYNAMIC_METADATA(example:tokens)%\" }
    apply_on_stream_done: true
";

/// The actions for all rules, as YAML: one document for each domain.
pub fn actions(rules: &RuleSet, sources: &KeySources) -> String {
    let mut domains: Vec<&str> = Vec::new();
    for rule in rules.rules() {
        if !domains.contains(&&*rule.domain) {
            domains.push(&rule.domain);
        }
    }
    let mut text = String::from(
        "# Rate limit actions for Envoy, by `tollgate convert --envoy`.\n\
         # Put rate_limits into a route or a virtual host, and the domain into the rate limit filter.\n",
    );
    for (index, domain) in domains.into_iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        // Writing to a String does not fail.
        let _ = writeln!(text, "# domain: {}\nrate_limits:", comment(domain));
        let own = || rules.rules().iter().filter(|rule| &*rule.domain == domain);
        for quota in own().filter(|rule| rule.rlqs) {
            let name = comment(&quota.full_name());
            let _ = writeln!(
                text,
                "  # {name} has rlqs: true: the rate limit quota filter reports it, not these actions. See docs/quotas.md"
            );
        }
        let lists = lists(own().filter(|rule| !rule.rlqs));
        if lists.len() > DESCRIPTORS_MAX {
            let _ = writeln!(
                text,
                "  # {} descriptors a request: set --descriptors-max of tollgate, whose default is {DESCRIPTORS_MAX}",
                lists.len()
            );
        }
        for list in lists {
            write_list(&mut text, &list, sources);
        }
    }
    text
}

/// The lists of actions of these rules, in their order, each once.
fn lists<'r>(rules: impl Iterator<Item = &'r Rule>) -> Vec<ActionList> {
    let mut lists = Vec::new();
    let mut seen = BTreeSet::new();
    for rule in rules {
        let mut paths: Vec<Vec<EntrySource>> = vec![Vec::new()];
        for level in &rule.path {
            let values = values_for_envoy(&level.key, &level.values);
            let mut longer = Vec::new();
            for path in &paths {
                for value in &values {
                    let mut path = path.clone();
                    path.push(EntrySource {
                        key: level.key.clone(),
                        value: value.clone(),
                    });
                    longer.push(path);
                }
            }
            paths = longer;
        }
        for mut path in paths {
            let keys: Vec<_> = path.iter().map(EntrySource::about).collect();
            let holder = rule.holder_key.as_ref();
            path.extend(holder.map(|key| EntrySource {
                key: key.clone(),
                value: None,
            }));
            if !seen.insert(path.clone()) {
                continue;
            }
            let (fields, last) = match (holder, &rule.reserve) {
                (None, _) => ("", None),
                (Some(_), None) => {
                    let about = "returns the slot when the request is done";
                    ("", Some((REFUND, about)))
                }
                (Some(_), Some(_)) => {
                    let about = "settles the reservation when the request is done";
                    (START, Some((END, about)))
                }
            };
            lists.push(ActionList {
                about: keys.join(", "),
                entries: path.clone(),
                fields,
            });
            lists.extend(last.map(|(fields, about)| ActionList {
                about: about.to_owned(),
                entries: path,
                fields,
            }));
        }
    }
    lists
}

/// The values that Envoy has to send itself; one unknown value for parts of a request.
fn values_for_envoy(key: &str, values: &Values) -> Vec<Option<String>> {
    let needs_value = matches!(key, "generic_key" | "header_match" | "query_match");
    match values {
        Values::Text(text) if needs_value && !text.contains('*') => vec![Some(text.clone())],
        Values::List(texts) if needs_value => texts.iter().map(|text| Some(text.clone())).collect(),
        _ => vec![None],
    }
}

/// Writes a list, with an alternative for each header that may be absent.
fn write_list(text: &mut String, list: &ActionList, sources: &KeySources) {
    let optional = |entry: &EntrySource| {
        let mut absent = sources.absent.iter();
        absent.any(|(key, _)| *key == entry.key)
    };
    let optional: Vec<_> = list.entries.iter().filter(|it| optional(it)).collect();
    let bits = u32::try_from(optional.len()).unwrap_or(u32::MAX);
    let alternatives = 1_usize.checked_shl(bits).unwrap_or(usize::MAX);
    for number in 0..alternatives.min(ALTERNATIVES_MAX) {
        let mut without: Vec<&str> = Vec::new();
        let mut choices = number;
        for entry in &optional {
            if choices & 1 == 1 {
                without.push(&entry.key);
            }
            choices >>= 1;
        }
        let mut about = list.about.clone();
        if !without.is_empty() {
            let _ = write!(about, "; without the header of {}", without.join(" and "));
        }
        let _ = writeln!(text, "  # {}", comment(&about));
        text.push_str("  - actions:\n");
        for entry in &list.entries {
            write_action(text, entry, sources, without.contains(&entry.key.as_str()));
        }
        text.push_str(list.fields);
    }
}

fn write_action(text: &mut String, entry: &EntrySource, sources: &KeySources, is_absent: bool) {
    let value = entry.value.as_deref();
    let mapped = sources
        .headers
        .iter()
        .find(|(known, _)| *known == entry.key);
    let mapped = mapped.map(|(_, header)| header.as_str());
    let known = HEADERS.iter().find(|(known, _)| *known == entry.key);
    let header = mapped.or(known.map(|(_, header)| *header));
    let action = match (entry.key.as_str(), value, header) {
        (name, _, None) if ACTIONS.contains(&name) => format!("{name}: {{}}"),
        ("generic_key", Some(value), None) => {
            format!("generic_key: {{ descriptor_value: {} }}", scalar(value))
        }
        ("url_path", _, None) => return text.push_str(URL_PATH),
        ("header_match", value, None) => format!(
            "header_value_match: {{ descriptor_value: {}, headers: [{{ name: x-example, present_match: true }}] }} # which headers?",
            scalar(value.unwrap_or("true"))
        ),
        ("query_match", value, None) => format!(
            "query_parameter_value_match: {{ descriptor_value: {}, query_parameters: [{{ name: example, present_match: true }}] }} # which parameters?",
            scalar(value.unwrap_or("true"))
        ),
        ("generic_key", None, None) => {
            "generic_key: { descriptor_value: example } # which value of the rules?".to_owned()
        }
        (key, _, None) if key.contains('*') => format!(
            "request_headers: {{ header_name: x-example, descriptor_key: {} }} # a key that the pattern matches?",
            scalar(&key.replace('*', "example"))
        ),
        (_, _, header) => header_action(entry, header, sources, is_absent),
    };
    let _ = writeln!(text, "      - {action}");
}

/// The action of an entry whose value is a header.
fn header_action(
    entry: &EntrySource,
    header: Option<&str>,
    sources: &KeySources,
    is_absent: bool,
) -> String {
    let key = scalar(&entry.key);
    let guess = guessed_header(&entry.key);
    let name = scalar(header.unwrap_or(&guess));
    let mut absent = sources.absent.iter();
    if let Some((_, value)) = absent.find(|(known, _)| is_absent && *known == entry.key) {
        let value = scalar(value);
        return format!(
            "header_value_match: {{ descriptor_key: {key}, descriptor_value: {value}, expect_match: false, headers: [{{ name: {name}, present_match: true }}] }}"
        );
    }
    let mut action = format!("request_headers: {{ header_name: {name}, descriptor_key: {key} }}");
    if header.is_none() {
        let key = comment(&entry.key);
        let _ = write!(action, " # a guess; --header {key}=NAME sets it");
    }
    action
}

/// The path without the query: no header has it.
const URL_PATH: &str = "      - extension:
          name: envoy.rate_limit_descriptors.expr
          typed_config:
            \"@type\": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor
            descriptor_key: url_path
            text: request.url_path
";

/// A header for a key that is not well known.
fn guessed_header(key: &str) -> String {
    let mut header = String::from("x-");
    for c in key.chars() {
        if c.is_ascii_alphanumeric() {
            header.push(c.to_ascii_lowercase());
        } else if !header.ends_with('-') {
            header.push('-');
        }
    }
    header.trim_end_matches('-').to_owned()
}

// === impl EntrySource ===

impl EntrySource {
    fn about(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.key),
            None => self.key.clone(),
        }
    }
}
