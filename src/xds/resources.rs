//! The resources of an xDS response, loaded as rules.
//!
//! Every response holds all domains, so it is a whole rule set, loaded as a directory of files is.
//! A server may send resources in any order (Go's maps have none); they are sorted by name, so that
//! replicas agree on rules, messages and hash.
//!
//! What it deliberately does not do: talk to a server (`mod`).

use std::sync::Arc;

use prost::Message as _;
use prost_types::Any;

use crate::rules::excerpt::excerpt;
use crate::rules::file::Options;
use crate::rules::isolation::{LastGood, RulesPart};
use crate::rules::reload::{LoadError, Resource, RulesUpdate, load_resources};
use crate::xds::document::document;
use crate::xds::proto::envoy::service::discovery::v3::DiscoveryResponse;
use crate::xds::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;

/// The type of the resources.
pub(crate) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// How many resources a response may have: as many as files.
const RESOURCES_MAX: usize = crate::rules::path::FILES_MAX;

/// A resource.
#[derive(Clone, Debug)]
pub(crate) struct Config(Arc<RateLimitConfig>);

/// Loads the rules of a response. Domains without errors do not wait for the others, if the options
/// say so.
pub(crate) fn load(
    answer: &DiscoveryResponse,
    options: &Options,
    good: &LastGood<Config>,
) -> RulesUpdate {
    let configs = read(answer).map_err(LoadError::Resource)?;
    load_configs(configs, options, good)
}

/// Loads the rules of resources with these bytes.
///
/// # Errors
///
/// As for a response of a server.
pub fn load_bytes(resources: &[&[u8]], options: &Options) -> RulesUpdate {
    let resources = resources.iter().map(|bytes| Any {
        type_url: TYPE_URL.to_owned(),
        value: bytes.to_vec(),
    });
    let answer = DiscoveryResponse {
        type_url: TYPE_URL.to_owned(),
        resources: resources.collect(),
        ..DiscoveryResponse::default()
    };
    load(&answer, options, &LastGood::default())
}

fn load_configs(
    mut configs: Vec<RateLimitConfig>,
    options: &Options,
    good: &LastGood<Config>,
) -> RulesUpdate {
    configs.sort_by_cached_key(|config| (config.name.clone(), config.encode_to_vec()));
    let configs = configs.into_iter().map(|config| Config(Arc::new(config)));
    let resource = |Config(config): &Config| Resource {
        name: excerpt(&config.name).into_owned(),
        root: document(config),
        bytes: config.encode_to_vec(),
    };
    load_resources(configs.collect(), resource, options, good)
}

// === impl Config ===

impl RulesPart for Config {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn domain(&self) -> (Option<String>, bool) {
        let domain = &self.0.domain;
        ((!domain.is_empty()).then(|| domain.clone()), true)
    }
}

fn read(answer: &DiscoveryResponse) -> Result<Vec<RateLimitConfig>, String> {
    if answer.type_url != TYPE_URL {
        let found = excerpt(&answer.type_url);
        return Err(format!(
            "the xDS server sent `{found}`; {TYPE_URL} was asked for"
        ));
    }
    if answer.resources.len() > RESOURCES_MAX {
        return Err(format!(
            "the xDS server sent more than {RESOURCES_MAX} resources"
        ));
    }
    let resources = answer.resources.iter().enumerate();
    let configs = resources.map(|(position, resource)| {
        if resource.type_url != TYPE_URL {
            let found = excerpt(&resource.type_url);
            return Err(format!(
                "resources[{position}] is `{found}` and not {TYPE_URL}"
            ));
        }
        RateLimitConfig::decode(resource.value.as_slice()).map_err(|error| {
            let why = brief(&error.to_string());
            format!("resources[{position}] cannot be read: {why}")
        })
    });
    configs.collect()
}

/// A short form of prost's message, which names every enclosing message, up to a hundred. The first
/// names and the cause stay.
fn brief(words: &str) -> String {
    let (head, tail) = (80, 120);
    let count = words.chars().count();
    if count <= head + tail {
        return words.to_owned();
    }
    let begin: String = words.chars().take(head).collect();
    let end: String = words.chars().skip(count.saturating_sub(tail)).collect();
    format!("{begin} … {end}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};

    use super::super::proto::ratelimit::config::ratelimit::v3::{
        RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
    };
    use super::*;
    use crate::rules::file::{self, DIAGNOSTICS_MAX};
    use crate::rules::path::Source;

    /// A resource in which every field of every message is set.
    fn everything() -> RateLimitConfig {
        let text = |text: &str| Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        };
        let values = vec![
            Value::from(1.5),
            Value::from(-0.25),
            Value::from(false),
            text("7"),
            Value { kind: None },
        ];
        let list = Value {
            kind: Some(Kind::ListValue(ListValue { values })),
        };
        let nested = Struct {
            fields: BTreeMap::from([("<<".to_owned(), text("*a")), ("list".to_owned(), list)]),
        };
        let nested = Value {
            kind: Some(Kind::StructValue(nested)),
        };
        let metadata = Struct {
            fields: BTreeMap::from([
                ("yes".to_owned(), text("no")),
                ("big".to_owned(), Value::from(1e20)),
                ("nested".to_owned(), nested),
            ]),
        };
        let below = RateLimitDescriptor {
            key: "free".to_owned(),
            value: "a/*".to_owned(),
            rate_limit: Some(RateLimitPolicy {
                unlimited: true,
                name: "null".to_owned(),
                replaces: vec![RateLimitReplace {
                    name: "slow".to_owned(),
                }],
                ..RateLimitPolicy::default()
            }),
            ..RateLimitDescriptor::default()
        };
        RateLimitConfig {
            name: "a resource".to_owned(),
            domain: "1.5".to_owned(),
            descriptors: vec![RateLimitDescriptor {
                key: "0x10".to_owned(),
                value: "yes".to_owned(),
                rate_limit: Some(RateLimitPolicy {
                    unit: RateLimitUnit::Week.into(),
                    requests_per_unit: u32::MAX,
                    name: "slow".to_owned(),
                    ..RateLimitPolicy::default()
                }),
                descriptors: vec![below],
                shadow_mode: true,
                detailed_metric: true,
                quota_mode: true,
                metadata: Some(metadata),
            }],
        }
    }

    fn load_one(config: RateLimitConfig) -> RulesUpdate {
        load_configs(vec![config], &Options::default(), &LastGood::default())
    }

    const AS_WRITTEN: &str = r#"
domain: "1.5"
descriptors:
- key: "0x10"
  value: "yes"
  shadow_mode: true
  detailed_metric: true
  quota_mode: true
  rate_limit: { unit: week, requests_per_unit: 4294967295, name: slow }
  metadata: { big: 1.0e+20, nested: { "<<": "*a", list: [1.5, -0.25, false, "7", ~] }, "yes": "no" }
  descriptors:
  - key: free
    value: a/*
    rate_limit: { unlimited: true, name: "null", replaces: [{ name: slow }] }
"#;

    #[test]
    fn a_resource_means_the_same_as_a_file() {
        let source = Source {
            name: "file".to_owned(),
            text: AS_WRITTEN.to_owned(),
        };
        let written = file::load(&[source], Options::default()).unwrap();
        let sent = load_one(everything()).unwrap();
        let (written, sent) = (written.rules, sent.loaded.rules);
        assert_eq!(sent.rules().len(), 2);
        assert_eq!(
            format!("{:?}", sent.rules()),
            format!("{:?}", written.rules())
        );
    }

    #[test]
    fn a_resource_has_the_warnings_of_a_file_with_its_name_for_the_file_s() {
        let whole = load_one(everything()).unwrap();
        assert_eq!(
            whole.loaded.warnings,
            [],
            "protobuf's defaults are no mistakes"
        );
        let empty = RateLimitConfig {
            descriptors: Vec::new(),
            ..everything()
        };
        let empty = load_one(empty).unwrap();
        let told: Vec<_> = empty
            .loaded
            .warnings
            .iter()
            .map(|one| (one.code, &*one.file))
            .collect();
        assert_eq!(told, [(file::Code::NoDescriptors, "a resource")]);
    }

    /// Found by the fuzz target `xds` (1): the error for a hundred nested descriptors, the last one
    /// cut off, named each of them.
    #[test]
    fn regression_1_errors_of_deep_nodes_are_short() {
        let mut bytes = vec![0x12, 5];
        for _ in 0..90 {
            let length = u8::try_from(bytes.len().min(100)).unwrap();
            bytes.splice(0..0, [0x22, length]);
        }
        bytes.splice(0..0, [0x1a, 100]);
        bytes.resize(400, b'"');
        let words = match load_bytes(&[&bytes], &Options::default()) {
            Err(LoadError::Resource(words)) => words,
            other => panic!("{other:?}"),
        };
        assert!(words.len() < 400, "{words}");
        assert!(
            words.starts_with("resources[0] cannot be read: "),
            "{words}"
        );
        assert!(words.ends_with(": delimited length exceeded"), "{words}");
    }

    #[test]
    fn any_resource_is_loaded_or_rejected_within_the_bounds() {
        let whole = everything().encode_to_vec();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut chance = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..4_000 {
            let mut bytes = whole.clone();
            for _ in 0..=chance(3) {
                let at = chance(bytes.len());
                match chance(4) {
                    0 => bytes[at] = u8::try_from(chance(256)).unwrap(),
                    1 => bytes[at] ^= 1 << chance(8),
                    2 => bytes.truncate(at.max(1)),
                    _ => {
                        let end = (at + chance(40)).min(bytes.len());
                        let piece = bytes[at..end].to_vec();
                        bytes.extend(piece);
                    }
                }
            }
            match load_bytes(&[&bytes], &Options::default()) {
                Ok(_) => taken += 1,
                Err(error) => {
                    refused += 1;
                    if let LoadError::Resource(words) = &error {
                        assert!(words.len() < 2_000, "{words}");
                    }
                    if let LoadError::Diagnostics(problems) = &error {
                        assert!((1..=DIAGNOSTICS_MAX).contains(&problems.errors.len()));
                        assert!(
                            problems
                                .errors
                                .iter()
                                .all(|problem| problem.to_string().len() < 2_000)
                        );
                    }
                }
            }
        }
        assert!(
            taken > 50 && refused > 50,
            "{taken} taken, {refused} refused"
        );
    }
}
