//! A thousand random requests for each file: the model of the origin and the converted rules, with
//! the descriptors that `convert --envoy` makes, give the same verdicts.
//!
//! Where stderr says that paths count as they are spelled, or that two middlewares are checked
//! together, requests and model are as it says.

use std::collections::BTreeMap;

use tollgate_test_support::seeded_rng::SeededRng;

use super::asp_net_core_model::{Identity, Middleware};
use super::decider::Decider;
use super::envoy_model::{Actions, HttpRequest};
use super::limitador_model::{Entries, Model, entry_name, limits};
use super::settings_text::settings;
use super::{Case, Origin, envoy_actions};

const REQUESTS: usize = 1_000;

/// 2023-11-15 00:00:00 UTC, the start of every window up to a day.
const START_US: u64 = 1_700_006_400_000_000;

/// Verdicts of the model and of the rules.
pub(crate) struct Verdicts {
    model: Vec<bool>,
    rules: Vec<bool>,
}

impl Verdicts {
    pub(crate) fn first_difference(&self) -> Option<usize> {
        let mut pairs = self.model.iter().zip(&self.rules);
        pairs.position(|(model, rules)| model != rules)
    }
}

/// Time goes on a little, and sometimes over the edge of a window.
fn step_us(rng: &mut SeededRng) -> u64 {
    let choices = [
        (0, 300),
        (50_000, 60),
        (300_000, 15),
        (1_000_000, 6),
        (7_000_000, 3),
        (61_000_000, 3),
        (1_800_000_000, 1),
        (86_400_000_000, 1),
    ];
    let weights = choices.map(|(_, weight)| weight);
    choices[rng.weighed(&weights)].0
}

/// The numbers of the limits that stderr says are left out.
fn left_out(case: &Case) -> Vec<usize> {
    let findings = case.conversion.findings.iter();
    let number = |finding: &tollgate::convert::Finding| {
        let rest = finding.message.strip_prefix("limit ")?;
        let (number, rest) = rest.split_once(' ')?;
        rest.starts_with("is left out")
            .then(|| number.parse().unwrap())
    };
    findings.filter_map(number).collect()
}

/// Values that a file's conditions name, and some near them.
fn values_of(text: &str) -> Vec<String> {
    let mut values: Vec<String> = [
        "bob",
        "eve",
        "GET",
        "POST",
        "/api/users",
        "/api/v2/users",
        "/v1/users",
        "/secret.json",
        "/assets/a",
    ]
    .map(str::to_owned)
    .to_vec();
    let quoted = text
        .split(['\'', '"'])
        .skip(1)
        .step_by(2)
        .map(str::to_owned);
    for value in quoted {
        values.push(format!("{value}x"));
        values.push(value);
    }
    values.push("it's".to_owned());
    values
}

fn limitador(case: &Case, rules: &str, actions: &str, domain: &str) -> Verdicts {
    let limits = limits(&case.text, &left_out(case));
    let mut model = Model::new(
        limits
            .into_iter()
            .filter(|it| it.namespace == domain)
            .collect(),
    );
    // What each entry may be: values of the conditions that read it.
    let mut values: BTreeMap<(u32, String), Vec<String>> = BTreeMap::new();
    for limit in model.limits() {
        for variable in &limit.variables {
            values
                .entry(entry_name(variable))
                .or_default()
                .extend(["bob", "eve"].map(str::to_owned));
        }
        for condition in &limit.conditions {
            for entry in entries_in(condition) {
                values
                    .entry(entry)
                    .or_default()
                    .extend(values_of(condition));
            }
        }
    }
    let actions = Actions::read(actions);
    let headers = actions.headers();
    let mut decider = Decider::new(rules, domain);
    let mut rng = SeededRng::of_seed(21);
    let mut now_us = START_US;
    let mut verdicts = Verdicts {
        model: Vec::new(),
        rules: Vec::new(),
    };
    let mut some = values.clone();
    for number in 0..REQUESTS {
        if number % 50 == 0 {
            // Few values at a time, so that counters fill.
            for (entry, all) in &values {
                some.insert(
                    entry.clone(),
                    (0..3)
                        .map(|_| all[rng.position(all.len())].clone())
                        .collect(),
                );
            }
        }
        now_us += step_us(&mut rng);
        let mut entries = Entries::new();
        let mut request = HttpRequest::default();
        for (entry, values) in &some {
            if rng.once_in(8) {
                continue;
            }
            let value = values[rng.position(values.len())].clone();
            let key = match entry.0 {
                0 => entry.1.clone(),
                index => format!("{}_{index}", entry.1),
            };
            if let Some(header) = headers.get(&key) {
                request.headers.insert(header.clone(), value.clone());
            }
            entries.insert(entry.clone(), value);
        }
        verdicts.model.push(model.passes(now_us, &entries));
        verdicts
            .rules
            .push(decider.passes(now_us, &actions.descriptors(&request)));
    }
    verdicts
}

/// The entries that a condition reads.
fn entries_in(condition: &str) -> Vec<(u32, String)> {
    let outside: String = condition
        .split('\'')
        .step_by(2)
        .collect::<Vec<_>>()
        .join("");
    if !condition.contains("descriptors[") {
        let names = outside.split([' ', '=', '!']).filter(|it| !it.is_empty());
        return names
            .filter(|it| !matches!(*it, "true" | "false"))
            .map(entry_name)
            .collect();
    }
    let parts = condition.split("descriptors[").skip(1);
    let name = |part: &str| {
        let (index, rest) = part.split_once(']').unwrap();
        let key = match rest.strip_prefix(['[']) {
            Some(quoted) => quoted.split(['\'', '"']).nth(1).unwrap(),
            None => rest[1..]
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap(),
        };
        (index.parse().unwrap(), key.to_owned())
    };
    parts.map(name).collect()
}

const CLIENTS: [&str; 11] = [
    "",
    "",
    "c1",
    "c2",
    "admin",
    "dev-id-1",
    "cl-key-1",
    "cl-key-2",
    "a*b",
    "c*d",
    "o'neil: \"x\"",
];
const ADDRESSES: [&str; 12] = [
    "84.247.85.224",
    "84.247.85.225",
    "192.168.0.5",
    "192.168.3.22",
    "192.168.3.200",
    "10.0.0.5",
    "10.0.0.6",
    "172.16.5.4",
    "::1",
    "fe80::7",
    "2001:db8::7",
    "203.0.113.9",
];
const PATHS: [&str; 10] = [
    "/",
    "/api/values",
    "/api/values/1",
    "/api/values/22",
    "/api/clients",
    "/api/status",
    "/api/license",
    "/other",
    "/api",
    "/x",
];

fn asp_net_core(case: &Case, rules: &str, actions: &str) -> Verdicts {
    let settings = settings(&case.text);
    let mut models: Vec<_> = [true, false]
        .into_iter()
        .filter_map(|is_ip| Middleware::of(&settings, is_ip))
        .collect();
    let section = if settings.get("clientratelimiting").is_some() {
        "clientratelimiting"
    } else {
        "ipratelimiting"
    };
    let client_header = settings[section]["clientidheader"]
        .as_str()
        .unwrap_or("x-clientid")
        .to_lowercase();
    let is_spelled = !case.says("are counted as clients spell them");
    let is_together = case.says("are checked together");
    let actions = Actions::read(actions);
    let mut decider = Decider::new(rules, super::asp_net_core::DOMAIN);
    let mut rng = SeededRng::of_seed(7);
    let mut now_us = START_US;
    let mut verdicts = Verdicts {
        model: Vec::new(),
        rules: Vec::new(),
    };
    let mut some = [Vec::new(), Vec::new(), Vec::new()];
    for number in 0..REQUESTS {
        if number % 100 == 0 {
            some = [&CLIENTS[..], &ADDRESSES, &PATHS]
                .map(|all| (0..3).map(|_| rng.pick(all)).collect());
        }
        now_us += step_us(&mut rng);
        let (client, address, path) = (rng.pick(&some[0]), rng.pick(&some[1]), rng.pick(&some[2]));
        let verb = rng.pick(&["GET", "GET", "GET", "POST", "PUT"]);
        let mut sent = path.to_owned();
        if is_spelled && rng.once_in(4) {
            sent = sent.to_uppercase();
        }
        if is_spelled && sent.len() > 1 && rng.once_in(4) {
            sent.push('/');
        }
        if rng.once_in(3) {
            sent.push_str("?id=1");
        }
        let mut request = HttpRequest {
            address: address.to_owned(),
            ..HttpRequest::default()
        };
        request.headers.insert(":path".to_owned(), sent);
        request
            .headers
            .insert(":method".to_owned(), verb.to_owned());
        if !client.is_empty() {
            request
                .headers
                .insert(client_header.clone(), client.to_owned());
        }
        let identity = Identity {
            client: if client.is_empty() {
                "anon".to_owned()
            } else {
                client.to_owned()
            },
            address: address.to_owned(),
            verb: verb.to_lowercase(),
            path: path.to_owned(),
        };
        let before = models[0].counters();
        let first = models[0].passes(now_us, &identity);
        let passes = first
            && models[1..]
                .iter_mut()
                .all(|model| model.passes(now_us, &identity));
        if first && !passes && is_together {
            models[0].restore(before);
        }
        verdicts.model.push(passes);
        verdicts
            .rules
            .push(decider.passes(now_us, &actions.descriptors(&request)));
    }
    verdicts
}

pub(super) fn verdicts(case: &Case, rules: &str, actions: &str, domain: &str) -> Verdicts {
    match case.origin {
        Origin::Limitador => limitador(case, rules, actions, domain),
        Origin::AspNetCore => asp_net_core(case, rules, actions),
    }
}

#[test]
fn the_rules_decide_a_thousand_requests_of_each_file_as_the_origin_does() {
    let mut wrong = Vec::new();
    for origin in [Origin::Limitador, Origin::AspNetCore] {
        for case in origin.cases() {
            for converted in &case.conversion.rules {
                let actions = envoy_actions(&converted.text, &Case::key_sources(&converted.text));
                let verdicts = verdicts(&case, &converted.text, &actions, &converted.domain);
                let refused = verdicts.model.iter().filter(|passed| !**passed).count();
                // Hits in a short window that outlasts a long one: stderr says so.
                if case.says("does not divide one of") {
                    continue;
                }
                if let Some(at) = verdicts.first_difference() {
                    wrong.push(format!(
                        "{} ({}): request {at}",
                        case.name, converted.domain
                    ));
                } else if !(5..REQUESTS - 5).contains(&refused) {
                    wrong.push(format!(
                        "{} ({}): {refused} refused",
                        case.name, converted.domain
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
