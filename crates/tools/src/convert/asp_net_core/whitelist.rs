//! White lists of another key than the one that a middleware counts by.
//!
//! Their descriptor has a limit that no client reaches, which replaces the limits of the
//! middleware.

use super::configuration::{Kind, Setting};
use super::policies::{known_networks, text};
use super::rate_rule::{Matching, endpoint_finding, parse};
use crate::convert::Finding;
use crate::convert::rules_text::{Level, LimitText, Values};

/// An endpoint of the white list.
struct Listed {
    /// None for all verbs.
    verbs: Option<Vec<String>>,
    path: Values,
    text: String,
}

/// The levels of the white lists that `options` has for a middleware of this kind; `names` are the
/// names of its limits.
pub(super) fn levels(
    kind: Kind,
    options: &Setting,
    matching: Matching,
    names: &[String],
    findings: &mut Vec<Finding>,
) -> Option<Level> {
    let mut whitelist = Level::new(
        "generic_key",
        Values::Text(format!("{}_whitelist", kind.name())),
    );
    whitelist.comments.push(format!(
        "White lists of {}: their requests count in none of its limits.",
        kind.section()
    ));
    let mut end = Level::new("", Values::Any);
    end.limits.push(LimitText {
        name: format!("{}_whitelist", kind.name()),
        replaces: names.to_vec(),
        ..LimitText::per_second(u32::MAX.into())
    });
    let (list, key, values) = match kind {
        Kind::Ip => {
            let clients = options.texts_of("ClientWhitelist").into_iter();
            let clients: Vec<_> = clients.map(|(text, _)| text.to_owned()).collect();
            let values = (!clients.is_empty()).then(|| Values::any_of(&clients));
            ("ClientWhitelist", Kind::Client.key(), values)
        }
        Kind::Client => {
            let addresses = options.texts_of("IpWhitelist").into_iter();
            let prefixes: Vec<_> = addresses
                .filter_map(|(text, at)| known_networks(text, at, findings))
                .flatten()
                .map(text)
                .collect();
            let values = (!prefixes.is_empty()).then_some(Values::Prefixes(prefixes));
            ("IpWhitelist", Kind::Ip.key(), values)
        }
    };
    if let Some(values) = values {
        add(&mut whitelist, list, key, values, &end);
    }
    endpoints(&mut whitelist, options, matching, &end, findings);
    (!whitelist.below.is_empty()).then_some(whitelist)
}

/// Adds a level with this key and these values.
fn add(parent: &mut Level, comment: &str, key: &str, values: Values, end: &Level) {
    let mut level = end.clone();
    level.comments.push(comment.to_owned());
    key.clone_into(&mut level.key);
    level.is_shared = values.match_many();
    level.values = values;
    parent.below.push(level);
}

/// Adds the white list of endpoints. A verb has its own endpoints and those of all verbs, since the
/// branch that an entry takes is final.
fn endpoints(
    whitelist: &mut Level,
    options: &Setting,
    matching: Matching,
    end: &Level,
    findings: &mut Vec<Finding>,
) {
    let mut listed: Vec<Listed> = Vec::new();
    for (text, at) in options.texts_of("EndpointWhitelist") {
        let text = text.to_lowercase();
        let parsed = parse(&text, matching.is_regex);
        if let Ok(endpoint) = &parsed
            && matching.is_regex
            && !endpoint.is_one_path
        {
            let message = format!(
                "the white list's endpoint '{text}' is compared with the path and a `/` at its end"
            );
            let help = "the library removes that `/`; check what the expression matches";
            findings.push(at.note(message, help));
        }
        let endpoint = match parsed {
            Ok(endpoint) => endpoint,
            Err(error) => {
                findings.push(endpoint_finding(at, "the white list", &text, &error));
                continue;
            }
        };
        let verbs = endpoint.method.exact().map(<[String]>::to_vec);
        if verbs.is_none() && endpoint.method != Values::Any {
            let message = format!(
                "the white list's endpoint '{text}' is left out: its verb is an expression"
            );
            findings.push(at.gap(message, "list its verbs one by one"));
            continue;
        }
        listed.push(Listed {
            verbs,
            path: endpoint.path,
            text,
        });
    }
    let mut verbs: Vec<&String> = Vec::new();
    for verb in listed.iter().filter_map(|it| it.verbs.as_ref()).flatten() {
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    // Without a verb, the endpoints of verbs that the list does not name.
    let level_of = |verb: Option<&String>| {
        let values = verb.map_or(Values::Any, |verb| Values::Text(verb.clone()));
        let mut method = Level::new("method", values);
        for it in &listed {
            let applies = it
                .verbs
                .as_ref()
                .is_none_or(|verbs| verb.is_some_and(|verb| verbs.contains(verb)));
            if applies {
                add_path(&mut method, &it.path, &it.text, end);
            }
        }
        method
    };
    let mut others = level_of(None);
    if verbs.is_empty() {
        whitelist.below.append(&mut others.below);
        return;
    }
    let of_verbs = verbs.into_iter().map(|verb| level_of(Some(verb)));
    whitelist.below.extend(of_verbs);
    if !others.below.is_empty() {
        whitelist.below.push(others);
    }
}

fn add_path(method: &mut Level, path: &Values, text: &str, end: &Level) {
    let path = match path {
        Values::Any => Values::Pattern("*".to_owned()),
        path => path.clone(),
    };
    let mut known = method.below.iter();
    if !known.any(|level| level.values == path) {
        let comment = format!("EndpointWhitelist: {text}");
        add(method, &comment, "url_path", path, end);
    }
}
