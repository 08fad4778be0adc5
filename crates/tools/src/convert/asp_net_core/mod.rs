//! Settings of AspNetCoreRateLimit as rules files.
//!
//! | file | what |
//! | --- | --- |
//! | `configuration` | .NET's configuration: JSON with comments, from several files |
//! | `rate_rule` | one rule, with its endpoint and its period |
//! | `policies` | policies, to whom which of them apply, and addresses as they are written |
//! | `middleware` | the rules by address or by client, and their levels |
//! | `whitelist` | white lists of another key than the one counted by |
//!
//! Envoy sends the address, the client's ID, and where endpoints count, verb and path without the
//! query. A refused request counts as in the library, in every window that can still refuse.

mod configuration;
mod middleware;
mod policies;
mod rate_rule;
mod whitelist;

use std::fmt::Write as _;

use self::configuration::{KINDS, Kind, Setting};
use self::middleware::Middleware;
use crate::convert::rules_text::RulesText;
use crate::convert::{Conversion, ConvertError, Finding};
use tollgate_rules::path::Source;
use tollgate_rules::yaml::{Position, Span};

/// The domain of the rules, if none is given.
pub const DOMAIN: &str = "api";

/// The default of `ClientIdHeader`, and of the key `client_id` in `envoy_actions`.
const CLIENT_ID_HEADER: &str = "x-clientid";

/// Options besides lists that are converted, or need no equal.
const OPTIONS: [&str; 9] = [
    "ClientIdHeader",
    "RealIpHeader",
    "HttpStatusCode",
    "QuotaExceededMessage",
    "QuotaExceededResponse",
    "StackBlockedRequests",
    "EnableEndpointRateLimiting",
    "EnableRegexRuleMatching",
    "DisableRateLimitHeaders",
];

/// Options that are lists.
const LISTS: [&str; 4] = [
    "GeneralRules",
    "EndpointWhitelist",
    "ClientWhitelist",
    "IpWhitelist",
];

/// Sections and their lists, and where the library reads them.
const PLACES: [(&str, &str); 7] = [
    ("GeneralRules", "in IpRateLimiting and ClientRateLimiting"),
    ("IpRules", "in IpRateLimitPolicies"),
    ("ClientRules", "in ClientRateLimitPolicies"),
    ("IpRateLimiting", "at the root"),
    ("IpRateLimitPolicies", "at the root"),
    ("ClientRateLimiting", "at the root"),
    ("ClientRateLimitPolicies", "at the root"),
];

/// Options without an equal: why, and what to do.
const WITHOUT_EQUAL: [(&str, &str); 4] = [
    (
        "RateLimitCounterPrefix",
        "tollgate separates counters by domain; set another one with --domain",
    ),
    (
        "IpPolicyPrefix",
        "policies are in the rules file, not in a store",
    ),
    (
        "ClientPolicyPrefix",
        "policies are in the rules file, not in a store",
    ),
    (
        "RequestBlockedBehaviorAsync",
        "a service cannot run your code; /metrics counts refusals by rule",
    ),
];

/// Converts settings files, each over those before it.
///
/// # Errors
///
/// When a file is not JSON, or no file has a section of the library.
pub fn convert(sources: &[Source], domain: Option<&str>) -> Result<Conversion, ConvertError> {
    let Some(root) = configuration::read(sources)? else {
        return Err(no_section(sources));
    };
    let mut findings = Vec::new();
    let mut descriptors = Vec::new();
    let mut read = Vec::new();
    // Without its section, each option of a middleware has its default.
    let defaults = root.without_members();
    for kind in KINDS {
        let (policies_section, ..) = kind.policies();
        let policies = root.get(policies_section);
        let options = match (root.get(kind.section()), policies) {
            (Some(options), _) => options,
            (None, Some(_)) => &defaults,
            (None, None) => continue,
        };
        note_options(kind, options, &mut findings);
        note_policies(kind, policies, &mut findings);
        let middleware = Middleware::read(kind, options, policies, &mut findings);
        descriptors.extend(middleware.levels(&mut findings));
        read.push(middleware);
    }
    let Some(last) = read.last() else {
        return Err(no_section(sources));
    };
    note_misplaced(&root, true, &mut findings);
    if read.len() > 1 {
        let message = "limits by address and by client are checked together";
        let help = "a request that one refuses counts in none; in the library it counts in the middleware that ran first";
        findings.push(last.options.note(message, help));
    }
    let comments = vec![
        "Converted from AspNetCoreRateLimit by `tollgate convert --from aspnetcoreratelimit`."
            .to_owned(),
        "Windows begin at the full second, minute, hour or day, not with the first hit.".to_owned(),
        actions_comment(&read),
    ];
    Conversion::checked(
        vec![RulesText {
            comments,
            domain: domain.unwrap_or(DOMAIN).to_owned(),
            descriptors,
        }],
        findings,
    )
}

fn no_section(sources: &[Source]) -> ConvertError {
    let name = sources.first().map_or("", |source| source.name.as_str());
    let message = "no section of AspNetCoreRateLimit";
    let help = "give the file with IpRateLimiting or ClientRateLimiting";
    let start = Span {
        at: Position { line: 1, column: 1 },
        ..Span::default()
    };
    ConvertError::Input(Finding::gap(name, start, message, help))
}

/// Notes options that Envoy sets, that have no equal, or that do not exist.
fn note_options(kind: Kind, options: &Setting, findings: &mut Vec<Finding>) {
    for (name, value) in options.members() {
        let is = |known: &&str| known.eq_ignore_ascii_case(name);
        if LISTS.iter().any(is) {
            findings.extend(value.is_no_list(name));
        }
        if let Some((known, help)) = WITHOUT_EQUAL.iter().find(|(known, _)| is(known)) {
            findings.push(value.note(format!("{known} has no equal"), *help));
        } else if is(&"RealIpHeader") {
            let message = format!(
                "Envoy finds the client's address, not the header {}",
                value.text().unwrap_or_default()
            );
            let help = "set use_remote_address and xff_num_trusted_hops in Envoy: docs/dotnet.md#envoy-real-ip";
            findings.push(value.note(message, help));
        } else if !LISTS.iter().chain(&OPTIONS).any(is) {
            findings.push(not_read(name, value, kind.section()));
        }
    }
}

/// Names what a section of policies has besides its list.
fn note_policies(kind: Kind, policies: Option<&Setting>, findings: &mut Vec<Finding>) {
    let (section, list, _) = kind.policies();
    for (name, value) in policies.into_iter().flat_map(Setting::members) {
        if name.eq_ignore_ascii_case(list) {
            findings.extend(value.is_no_list(list));
        } else {
            findings.push(not_read(name, value, section));
        }
    }
}

/// Names the sections and lists of the library in other sections, of which it reads nothing.
fn note_misplaced(above: &Setting, is_root: bool, findings: &mut Vec<Finding>) {
    for (name, value) in above.members() {
        let is_section = KINDS.iter().any(|kind| kind.has_section(name));
        if is_section && is_root {
            continue;
        }
        match place_of(name) {
            Some(place) => findings.push(misplaced(name, value, place)),
            None => note_misplaced(value, false, findings),
        }
    }
}

/// A member that the library does not read in this section.
fn not_read(name: &str, value: &Setting, section: &str) -> Finding {
    if let Some(place) = place_of(name) {
        misplaced(name, value, place)
    } else {
        let message = format!("`{name}` is no option of {section}");
        value.note(message, "the library ignores it too; remove it")
    }
}

fn misplaced(name: &str, value: &Setting, place: &str) -> Finding {
    let message = format!("`{name}` is left out: the library reads it {place} only");
    value.gap(message, "move it there and convert again, or remove it")
}

/// Where the library reads a section, or a list of rules or policies.
fn place_of(name: &str) -> Option<&'static str> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    PLACES
        .iter()
        .find(|(known, _)| is(known))
        .map(|(_, place)| *place)
}

/// The command that prints Envoy's actions.
fn actions_comment(read: &[Middleware<'_>]) -> String {
    let mut command = "tollgate convert --envoy RULES".to_owned();
    let mut by_client = read
        .iter()
        .filter(|it| it.kind == Kind::Client || it.options.get("ClientWhitelist").is_some());
    if let Some(middleware) = by_client.next_back() {
        command.push_str(" --absent client_id=anon");
        let header = middleware.options.text_of("ClientIdHeader");
        let header = header.unwrap_or(CLIENT_ID_HEADER).to_lowercase();
        if header != CLIENT_ID_HEADER {
            let _ = write!(command, " --header client_id={header}");
        }
    }
    format!("Envoy's actions: {command}")
}
