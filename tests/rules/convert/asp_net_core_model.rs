//! AspNetCoreRateLimit, by its documentation: white lists, matching rules, the lowest one of each
//! period, and counting until a rule refuses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::expression_model::is_match;

/// A request as the library sees it.
pub(crate) struct Identity {
    pub(crate) client: String,
    pub(crate) address: String,
    pub(crate) verb: String,
    pub(crate) path: String,
}

/// Requests by client or address, period, window and endpoint.
pub(crate) type Counters = BTreeMap<(String, String, u64, String), f64>;

/// One middleware.
pub(crate) struct Middleware {
    is_ip: bool,
    options: Value,
    policies: Vec<Value>,
    counters: Counters,
}

#[derive(Clone)]
struct Rule {
    endpoint: String,
    period: String,
    seconds: u64,
    limit: f64,
    is_monitored: bool,
}

fn list<'v>(value: &'v Value, name: &str) -> Vec<&'v str> {
    let items = value[name].as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(Value::as_str).collect()
}

fn is_true(value: &Value, name: &str) -> bool {
    value[name]
        .as_str()
        .is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// The rules of a list, without those whose period, limit or endpoint the library throws at or
/// which stderr says are left out.
fn rules(value: &Value) -> Vec<Rule> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let rule = |item: &Value| {
        let period = item["period"].as_str()?.to_owned();
        let (number, unit) = period.split_at(period.len() - 1);
        let unit = match unit {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let mut seconds = number.parse::<f64>().ok()? * unit;
        if let Some(span) = item["periodtimespan"].as_str() {
            let parts: Vec<f64> = span.split(':').map(|part| part.parse().unwrap()).collect();
            seconds = parts[0] * 3_600.0 + parts[1] * 60.0 + parts[2];
        }
        Some(Rule {
            endpoint: item["endpoint"].as_str()?.to_lowercase(),
            // Whole seconds: others are left out, as stderr says.
            seconds: seconds.to_string().parse().ok()?,
            limit: item["limit"].as_str()?.parse().ok()?,
            is_monitored: is_true(item, "monitormode"),
            period,
        })
    };
    items.iter().filter_map(rule).collect()
}

/// Whether `*` and `?` in a pattern can stand for the rest of a text.
fn is_wildcard_match(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => is_wildcard_match(rest, text),
        (Some((b'*', rest)), Some((_, shorter))) => {
            is_wildcard_match(rest, text) || is_wildcard_match(pattern, shorter)
        }
        (Some((b'?', rest)), Some((_, shorter))) => is_wildcard_match(rest, shorter),
        (Some((one, rest)), Some((other, shorter))) => {
            one == other && is_wildcard_match(rest, shorter)
        }
        _ => false,
    }
}

fn number(address: &str) -> Option<(bool, u128)> {
    Some(match address.trim().parse().ok()? {
        IpAddr::V4(address) => (false, u128::from(u32::from(address))),
        IpAddr::V6(address) => (true, u128::from(address)),
    })
}

/// Whether a range holds an address: `a`, `a/len`, `a/mask`, `a-b`.
fn holds(range: &str, address: &str) -> bool {
    let Some((is_v6, bits)) = number(address) else {
        return false;
    };
    if let Some((begin, end)) = range.split_once('-') {
        return match (number(begin), number(end)) {
            (Some((one, begin)), Some((other, end))) => {
                one == is_v6 && other == is_v6 && (begin..=end).contains(&bits)
            }
            _ => false,
        };
    }
    let (base, length) = range.split_once('/').unwrap_or((range, ""));
    let width = if is_v6 { 128 } else { 32 };
    let Some((base_is_v6, base)) = number(base) else {
        return false;
    };
    let length = match (length, number(length)) {
        ("", _) => width,
        (_, Some((_, mask))) => mask.count_ones(),
        (text, None) => text.parse().unwrap(),
    };
    let host = width - length;
    base_is_v6 == is_v6 && (host >= 128 || base >> host == bits >> host)
}

impl Middleware {
    /// The middleware of a section, if the settings have it.
    pub(crate) fn of(settings: &Value, is_ip: bool) -> Option<Self> {
        let (section, policies, items) = if is_ip {
            ("ipratelimiting", "ipratelimitpolicies", "iprules")
        } else {
            (
                "clientratelimiting",
                "clientratelimitpolicies",
                "clientrules",
            )
        };
        let options = settings.get(section)?.clone();
        let policies = settings[policies][items].as_array().cloned();
        Some(Self {
            is_ip,
            options,
            policies: policies.unwrap_or_default(),
            counters: BTreeMap::new(),
        })
    }

    /// Whether `text` is the endpoint of the request, by verb and by `*`.
    fn matches(&self, endpoint: &str, identity: &Identity) -> bool {
        let is_regex = is_true(&self.options, "enableregexrulematching");
        let any = if is_regex { ".+" } else { "*" };
        [identity.verb.as_str(), any].iter().any(|verb| {
            let text = format!("{verb}:{}", identity.path);
            if is_regex {
                is_match(&format!("(?i)^(?:{endpoint})$"), &text)
            } else {
                is_wildcard_match(endpoint.as_bytes(), text.as_bytes())
            }
        })
    }

    fn is_whitelisted(&self, identity: &Identity) -> bool {
        let endpoints = list(&self.options, "endpointwhitelist");
        list(&self.options, "clientwhitelist").contains(&identity.client.as_str())
            || list(&self.options, "ipwhitelist")
                .iter()
                .any(|range| holds(range, &identity.address))
            || endpoints
                .iter()
                .any(|it| self.matches(&it.to_lowercase(), identity))
    }

    /// The matching rules of a list, the lowest of each period, in the list's order.
    fn lowest(&self, rules: Vec<Rule>, identity: &Identity) -> Vec<Rule> {
        let by_endpoint = is_true(&self.options, "enableendpointratelimiting");
        let applies = |rule: &Rule| {
            if by_endpoint {
                self.matches(&rule.endpoint, identity)
            } else {
                rule.endpoint == "*"
            }
        };
        let mut lowest: Vec<Rule> = Vec::new();
        for rule in rules.into_iter().filter(applies) {
            match lowest.iter_mut().find(|known| known.period == rule.period) {
                Some(known) if rule.limit < known.limit => *known = rule,
                Some(_) => {}
                None => lowest.push(rule),
            }
        }
        lowest
    }

    fn matching_rules(&self, identity: &Identity) -> Vec<Rule> {
        let mut specific = Vec::new();
        if self.is_ip {
            for policy in &self.policies {
                if policy["ip"]
                    .as_str()
                    .is_some_and(|range| holds(range, &identity.address))
                {
                    specific.extend(rules(&policy["rules"]));
                }
            }
        } else {
            let mut policies = self.policies.iter().rev();
            if let Some(policy) = policies.find(|it| it["clientid"] == *identity.client) {
                specific = rules(&policy["rules"]);
            }
        }
        let mut limits = self.lowest(specific, identity);
        for general in self.lowest(rules(&self.options["generalrules"]), identity) {
            if !limits.iter().any(|limit| limit.period == general.period) {
                limits.push(general);
            }
        }
        limits.sort_by_key(|limit| limit.seconds);
        if is_true(&self.options, "stackblockedrequests") {
            limits.reverse();
        }
        limits
    }

    /// Whether a request passes. Counts rule by rule, until one refuses.
    pub(crate) fn passes(&mut self, now_us: u64, identity: &Identity) -> bool {
        if self.is_whitelisted(identity) {
            return true;
        }
        let by_endpoint = is_true(&self.options, "enableendpointratelimiting");
        for rule in self.matching_rules(identity) {
            let who = if self.is_ip {
                &identity.address
            } else {
                &identity.client
            };
            let endpoint = format!("{}:{}", identity.verb, identity.path);
            let endpoint = if by_endpoint { endpoint } else { String::new() };
            let window = now_us / 1_000_000 / rule.seconds;
            let key = (who.clone(), rule.period.clone(), window, endpoint);
            let count = self.counters.entry(key).or_default();
            *count += 1.0;
            let refuses = rule.limit <= 0.0 || *count > rule.limit;
            if refuses && !rule.is_monitored {
                return false;
            }
        }
        true
    }

    /// The counters, to undo what a request that the other middleware refused has counted.
    pub(crate) fn counters(&self) -> Counters {
        self.counters.clone()
    }

    pub(crate) fn restore(&mut self, counters: Counters) {
        self.counters = counters;
    }
}
