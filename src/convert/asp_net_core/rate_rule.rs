//! One rule: an endpoint, a period and a limit.

use super::configuration::Setting;
use super::endpoint::{Endpoint, EndpointError};
use super::period::{period, time_span};
use crate::convert::Finding;
use crate::convert::load_error;
use crate::convert::rules_text::{Level, LimitText, Response, RulesText, Values};
use crate::convert::window::Window;
use tollgate_limiter::CountRefused;

/// The fields of a rule.
const FIELDS: [&str; 6] = [
    "Endpoint",
    "Period",
    "PeriodTimespan",
    "Limit",
    "QuotaExceededResponse",
    "MonitorMode",
];

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct RateRule {
    /// The endpoint as it was written, in lower case.
    pub(super) endpoint_text: String,
    pub(super) endpoint: Endpoint,
    /// The period as it was written: rules override each other by this text.
    pub(super) period: String,
    pub(super) window: Window,
    pub(super) limit: f64,
    pub(super) is_monitored: bool,
    pub(super) response: Option<Response>,
    pub(super) comment: String,
    /// Its position among all rules, by which equal limits are ordered.
    pub(super) order: usize,
    /// Its name in the rules file.
    pub(super) name: String,
}

/// The options that change how a rule is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Matching {
    pub(super) by_endpoint: bool,
    pub(super) is_regex: bool,
}

/// Reads a rule of `list`. None if no request matches it.
pub(super) fn read(
    setting: &Setting,
    list: &str,
    matching: Matching,
    findings: &mut Vec<Finding>,
) -> Option<RateRule> {
    for (name, value) in setting.members() {
        if !FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name)) {
            let message = format!("`{name}` is no option of a rule");
            findings.push(value.note(message, "the library ignores it too; remove it"));
        }
    }
    let endpoint_text = setting.text_of("Endpoint").unwrap_or_default();
    let endpoint_text = endpoint_text.to_lowercase();
    let endpoint = endpoint(setting, &endpoint_text, matching, findings)?;
    let period_text = setting.text_of("Period").unwrap_or_default();
    let window = match setting.text_of("PeriodTimespan") {
        Some(text) => time_span(text),
        None => period(period_text),
    };
    let Some(window) = window else {
        let at = setting.get("Period").unwrap_or(setting);
        let message =
            format!("the rule is left out: '{period_text}' is no period of whole seconds");
        let help = "write a number and s, m, h or d that are whole seconds, such as 90s";
        findings.push(at.gap(message, help));
        return None;
    };
    let limit_text = setting.text_of("Limit").unwrap_or("0");
    let limit = limit_text.parse::<f64>().ok().filter(|it| it.is_finite());
    let Some(limit) = limit.filter(|limit| *limit <= f64::from(u32::MAX)) else {
        let at = setting.get("Limit").unwrap_or(setting);
        let message =
            format!("the rule is left out: the limit '{limit_text}' is no number up to 4294967295");
        findings.push(at.gap(message, "write a number of requests"));
        return None;
    };
    let response = setting
        .get("QuotaExceededResponse")
        .and_then(|response| read_response(response, findings));
    Some(RateRule {
        comment: format!("{list}: {endpoint_text} {limit_text} in {period_text}"),
        endpoint_text,
        endpoint,
        period: period_text.to_owned(),
        window,
        limit,
        is_monitored: setting.is_true("MonitorMode"),
        response,
        order: 0,
        name: String::new(),
    })
}

fn endpoint(
    setting: &Setting,
    text: &str,
    matching: Matching,
    findings: &mut Vec<Finding>,
) -> Option<Endpoint> {
    let at = setting.get("Endpoint").unwrap_or(setting);
    if !matching.by_endpoint {
        if text == "*" {
            return Some(Endpoint::ALL);
        }
        let message = format!(
            "the rule of endpoint '{text}' never applies, since EnableEndpointRateLimiting is off"
        );
        findings.push(at.note(
            message,
            "remove the rule, or turn the option on and convert again",
        ));
        return None;
    }
    let parsed = parse(text, matching.is_regex);
    match parsed {
        Ok(endpoint) => {
            if !endpoint.is_one_path && endpoint.path.exact().is_none() {
                let message =
                    format!("the paths of endpoint '{text}' are counted as clients spell them");
                let help = "the library counts /A and /a/ as one; normalize paths in Envoy, or set share_threshold to count all of them together";
                findings.push(at.note(message, help));
            }
            Some(endpoint)
        }
        Err(error) => {
            findings.push(endpoint_finding(at, "the rule", text, &error));
            None
        }
    }
}

/// Reads an endpoint, and checks that its patterns load.
pub(super) fn parse(text: &str, is_regex: bool) -> Result<Endpoint, (bool, String)> {
    let endpoint = Endpoint::parse(text, is_regex).map_err(|error| match error {
        EndpointError::Never(why) => (true, why.to_owned()),
        EndpointError::NoEqual(why) => (false, why.to_owned()),
    })?;
    let mut levels = Vec::new();
    for (key, values) in [("method", &endpoint.method), ("path", &endpoint.path)] {
        let mut level = Level::new(key, values.clone());
        if let Some(window) = Window::of_seconds(1) {
            level.limits.push(LimitText {
                comment: String::new(),
                window,
                requests: 1,
                name: String::new(),
                count_refused: None,
                replaces: Vec::new(),
            });
        }
        levels.push(level);
    }
    let rules = RulesText {
        comments: Vec::new(),
        domain: "check".to_owned(),
        descriptors: levels.into(),
    };
    match load_error(&rules.to_string()) {
        None => Ok(endpoint),
        Some(error) => Err((false, error)),
    }
}

/// The finding of an endpoint that could not be read.
pub(super) fn endpoint_finding(
    at: &Setting,
    what: &str,
    text: &str,
    (is_never, why): &(bool, String),
) -> Finding {
    if *is_never {
        let message = format!("{what} of endpoint '{text}' never applies: {why}");
        return at.note(message, "remove it, or correct its endpoint");
    }
    let message = format!("{what} of endpoint '{text}' is left out: {why}");
    at.gap(message, "write verb:/path or *:/path, and convert again")
}

/// Reads a `QuotaExceededResponse`.
pub(super) fn read_response(setting: &Setting, findings: &mut Vec<Finding>) -> Option<Response> {
    if let Some(status) = setting.get("StatusCode")
        && status.text().is_some_and(|text| text != "429")
    {
        findings.push(status_note(status));
    }
    let body = setting.text_of("Content")?;
    Some(Response {
        body: template(body),
        content_type: setting.text_of("ContentType").map(str::to_owned),
    })
}

/// The note of a status, which only Envoy can set.
pub(super) fn status_note(status: &Setting) -> Finding {
    let text = status.text().unwrap_or_default();
    let message = format!("the status {text} is set in Envoy, for all refusals alike");
    let help = "set rated_limited_status in the rate limit filter: docs/dotnet.md#envoy-status";
    status.note(
        message,
        help.replace("rated_limited_status", "rate_limited_status"),
    )
}

/// A text of `string.Format` as a body: `{0}` is the limit, `{1}` the period, `{2}` the wait.
pub(super) fn template(text: &str) -> String {
    let mut body = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let replaced = [
            ("{{", "{"),
            ("}}", "}"),
            ("{0}", "{limit}"),
            ("{1}", "{window}"),
            ("{2}", "{retry_after_seconds}"),
        ];
        let found = replaced.iter().find(|(from, _)| rest.starts_with(from));
        if let Some((from, to)) = found {
            body.push_str(to);
            rest = rest.get(from.len()..).unwrap_or_default();
        } else {
            body.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    body
}

// === impl RateRule ===

impl RateRule {
    /// Whether this one applies where both match the same period.
    pub(super) fn is_lower_than(&self, other: &Self) -> bool {
        let order = self.limit.total_cmp(&other.limit);
        order.then(self.order.cmp(&other.order)).is_lt()
    }

    /// Rules of one class have the same levels.
    pub(super) fn is_of_class(&self, other: &Self) -> bool {
        self.endpoint_text == other.endpoint_text
            && self.is_monitored == other.is_monitored
            && self.response == other.response
    }

    /// How many requests pass.
    pub(super) fn requests(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // within u32, and not negative
        let requests = self.limit.max(0.0).floor() as u32;
        requests
    }

    pub(super) fn limit_text(&self, count_refused: Option<CountRefused>) -> LimitText {
        LimitText {
            comment: self.comment.clone(),
            window: self.window,
            requests: self.requests(),
            name: self.name.clone(),
            count_refused,
            replaces: Vec::new(),
        }
    }

    /// The levels of verb and path, with what is at the end.
    pub(super) fn endpoint_levels(&self, mut end: Level) -> Level {
        "url_path".clone_into(&mut end.key);
        end.values = self.endpoint.path.clone();
        end.is_shared = self.endpoint.is_one_path;
        let mut method = Level::new("method", self.endpoint.method.clone());
        method.below.push(end);
        method
    }
}

impl Values {
    /// The exact values; none if there are others.
    pub(super) fn exact(&self) -> Option<Vec<String>> {
        match self {
            Self::Text(text) => Some(vec![text.clone()]),
            Self::List(texts) => Some(texts.clone()),
            Self::Any | Self::Pattern(_) | Self::Regex(_) | Self::Prefixes(_) => None,
        }
    }
}
