//! One rule: an endpoint, a period and a limit.
//!
//! An endpoint is `*`, `verb:/path` with `*` and `?`, or a regular expression of that form. The
//! library compares `verb:path` in lower case, without slashes at the end of the path. tollgate
//! gets verb and path as two entries, as the client spelled them.

use std::num::NonZeroU64;

use super::configuration::Setting;
use crate::convert::Finding;
use crate::convert::load_error;
use crate::convert::rules_text::{Level, LimitText, Response, RulesText, Values, escaped};
use tollgate_limiter::{CountRefused, Limit};

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
    /// The period in seconds.
    pub(super) seconds: NonZeroU64,
    pub(super) limit: f64,
    pub(super) is_monitored: bool,
    pub(super) response: Option<Response>,
    pub(super) comment: String,
    /// Its position among all rules, by which equal limits are ordered.
    pub(super) order: usize,
    /// Its name in the rules file.
    pub(super) name: String,
}

/// What an endpoint matches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Endpoint {
    pub(super) method: Values,
    pub(super) path: Values,
    /// The path is one, however it is spelled, so its bucket is shared.
    pub(super) is_one_path: bool,
}

/// Why an endpoint cannot be converted.
pub(super) enum EndpointError {
    /// It matches no request.
    Never(&'static str),
    /// It has no equal.
    NoEqual(String),
}

/// Regular expressions that any verb matches.
const ANY_VERB: [&str; 7] = [".*", ".+", "\\w+", "\\w*", "[a-z]+", "(.*)", "(.+)"];

/// Regular expressions that any path matches.
const ANY_PATH: [&str; 5] = [".*", ".+", "/.*", "(.*)", "(.+)"];

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
    let seconds = match setting.text_of("PeriodTimespan") {
        Some(text) => time_span(text),
        None => period(period_text),
    };
    let Some(seconds) = seconds else {
        let at = setting.get("Period").unwrap_or(setting);
        let message =
            format!("the rule is left out: '{period_text}' is no period of whole seconds");
        let help = "write a number and s, m, h or d that are whole seconds, such as 90s";
        findings.push(at.gap(message, help));
        return None;
    };
    let limit_text = setting.text_of("Limit").unwrap_or("0");
    let limit = limit_text.parse::<f64>().ok().filter(|it| it.is_finite());
    let Some(limit) = limit.filter(|limit| *limit <= 9_007_199_254_740_991.0) else {
        let at = setting.get("Limit").unwrap_or(setting);
        let message = format!(
            "the rule is left out: the limit '{limit_text}' is no number up to {}",
            Limit::REQUESTS_MAX
        );
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
        seconds,
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
    match parse(text, matching.is_regex) {
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
pub(super) fn parse(text: &str, is_regex: bool) -> Result<Endpoint, EndpointError> {
    let endpoint = Endpoint::parse(text, is_regex)?;
    let mut descriptors = Vec::new();
    for (key, values) in [("method", &endpoint.method), ("path", &endpoint.path)] {
        let mut level = Level::new(key, values.clone());
        level.limits.push(LimitText::per_second(1));
        descriptors.push(level);
    }
    let rules = RulesText {
        comments: Vec::new(),
        domain: "check".to_owned(),
        descriptors,
    };
    match load_error(&rules) {
        None => Ok(endpoint),
        Some(error) => Err(EndpointError::NoEqual(error)),
    }
}

/// The finding of an endpoint that could not be read.
pub(super) fn endpoint_finding(
    at: &Setting,
    what: &str,
    text: &str,
    error: &EndpointError,
) -> Finding {
    match error {
        EndpointError::Never(why) => {
            let message = format!("{what} of endpoint '{text}' never applies: {why}");
            at.note(message, "remove it, or correct its endpoint")
        }
        EndpointError::NoEqual(why) => {
            let message = format!("{what} of endpoint '{text}' is left out: {why}");
            at.gap(message, "write verb:/path or *:/path, and convert again")
        }
    }
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
    let help = "set rate_limited_status in the rate limit filter: docs/dotnet.md#envoy-status";
    status.note(message, help)
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

    /// A text that is equal for rules that limit alike.
    pub(super) fn limits_as(&self) -> String {
        let Self {
            endpoint_text,
            period,
            limit,
            is_monitored,
            response,
            ..
        } = self;
        format!(
            "{:?}",
            (endpoint_text, period, limit, is_monitored, response)
        )
    }

    /// Rules of one class have the same levels.
    pub(super) fn is_of_class(&self, other: &Self) -> bool {
        self.endpoint_text == other.endpoint_text
            && self.is_monitored == other.is_monitored
            && self.response == other.response
    }

    /// How many requests pass.
    pub(super) fn requests(&self) -> u64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // at most REQUESTS_MAX, and not negative
        let requests = self.limit.max(0.0).floor() as u64;
        requests
    }

    pub(super) fn limit_text(&self, count_refused: Option<CountRefused>) -> LimitText {
        LimitText {
            comment: self.comment.clone(),
            seconds: self.seconds,
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

// === impl Endpoint ===

impl Endpoint {
    const ALL: Self = Self {
        method: Values::Any,
        path: Values::Any,
        is_one_path: false,
    };

    fn parse(text: &str, is_regex: bool) -> Result<Self, EndpointError> {
        if is_regex {
            return Self::of_regex(text);
        }
        if text == "*" {
            return Ok(Self::ALL);
        }
        let (verb, path) = match text.split_once(':') {
            Some(parts) => parts,
            None if text.starts_with("*/") => ("*", text),
            None => {
                let why = "it has no `:` between verb and path";
                return Err(EndpointError::NoEqual(why.to_owned()));
            }
        };
        let method = match verb {
            "*" => Values::Any,
            verb if is_word(verb) => Values::Text(verb.to_ascii_uppercase()),
            _ => return Err(EndpointError::NoEqual("its verb has wildcards".to_owned())),
        };
        if matches!(path, "*" | "/*") {
            return Ok(Self {
                method,
                ..Self::ALL
            });
        }
        if !path.contains(['*', '?']) {
            return Self::of_path(method, path);
        }
        let regex = path_regex(path);
        Ok(Self {
            method,
            path: Values::Regex(regex),
            is_one_path: false,
        })
    }

    /// One path, in any spelling.
    fn of_path(method: Values, path: &str) -> Result<Self, EndpointError> {
        if !path.starts_with('/') {
            return Err(EndpointError::Never("a path begins with `/`"));
        }
        if path.len() > 1 && path.ends_with('/') {
            let why = "the library removes `/` from the end of a request's path";
            return Err(EndpointError::Never(why));
        }
        let path = if path == "/" {
            Values::Text(path.to_owned())
        } else {
            Values::Regex(format!("(?i){}/*", escaped(path)))
        };
        let is_one_path = path.match_many();
        Ok(Self {
            method,
            path,
            is_one_path,
        })
    }

    fn of_regex(text: &str) -> Result<Self, EndpointError> {
        let text = text.strip_prefix('^').unwrap_or(text);
        let text = text.strip_suffix('$').unwrap_or(text);
        if text.starts_with('*') {
            let why =
                "with EnableRegexRuleMatching it is no regular expression; the library throws";
            return Err(EndpointError::NoEqual(why.to_owned()));
        }
        if ANY_VERB.contains(&text) {
            return Ok(Self::ALL);
        }
        let Some((verb, path)) = split_regex(text) else {
            let why = "its verb and its path are not apart by one `:`";
            return Err(EndpointError::NoEqual(why.to_owned()));
        };
        let method = verb_values(verb);
        if ANY_PATH.contains(&path) {
            return Ok(Self {
                method,
                ..Self::ALL
            });
        }
        if !path.contains(|c| "\\.+*?()|[]{}^$".contains(c)) {
            return Self::of_path(method, path);
        }
        Ok(Self {
            method,
            path: Values::Regex(format!("(?i){path}/*")),
            is_one_path: false,
        })
    }
}

/// A path with wildcards as a regex of the paths that clients send. The library compares without
/// slashes at the end, so what a last wildcard matches ends with another character.
fn path_regex(path: &str) -> String {
    let body = path.trim_end_matches('*');
    let mut regex = "(?i)".to_owned();
    for c in body.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            c => regex.push_str(&escaped(c.encode_utf8(&mut [0; 4]))),
        }
    }
    if body.len() < path.len() {
        regex.push_str(if body.ends_with('/') {
            ".*[^/]"
        } else {
            "(?:.*[^/])?"
        });
    } else if body.ends_with('?') {
        regex.pop();
        regex.push_str("[^/]");
    }
    regex.push_str("/*");
    regex
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The verbs of a regular expression.
fn verb_values(verb: &str) -> Values {
    if ANY_VERB.contains(&verb) {
        return Values::Any;
    }
    let inner = verb.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
    let words: Vec<_> = inner.unwrap_or(verb).split('|').collect();
    if words.iter().all(|word| is_word(word)) {
        let words: Vec<_> = words.iter().map(|it| it.to_ascii_uppercase()).collect();
        return Values::any_of(&words);
    }
    Values::Regex(format!("(?i){verb}"))
}

/// Splits at the only `:` outside of groups and classes. None if there is another one, or a choice
/// between whole expressions.
fn split_regex(text: &str) -> Option<(&str, &str)> {
    let mut depth: u32 = 0;
    let mut at = None;
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' | '[' => depth = depth.saturating_add(1),
            ')' | ']' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return None,
            ':' if depth == 0 && at.is_some() => return None,
            ':' if depth == 0 => at = Some(index),
            _ => {}
        }
    }
    let (verb, path) = text.split_at_checked(at?)?;
    Some((verb, path.strip_prefix(':')?))
}

/// The seconds of a period such as `15m` or `1.5h`; none if they are not whole, or it is none.
fn period(text: &str) -> Option<NonZeroU64> {
    let unit = text.chars().last()?;
    let number = text.strip_suffix(unit)?;
    let seconds: u64 = match unit.to_ascii_lowercase() {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let is_number = !number.is_empty() && number != "." && digits(whole) && digits(fraction);
    if !is_number || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let parse = |digits: &str| match digits {
        "" => Some(0),
        digits => digits.parse::<u64>().ok(),
    };
    let (whole, fraction) = (parse(whole)?, parse(fraction)?);
    let scaled = whole
        .checked_mul(scale)?
        .checked_add(fraction)?
        .checked_mul(seconds)?;
    NonZeroU64::new(scaled / scale).filter(|_| scaled % scale == 0)
}

/// The seconds of a time span `[d.]hh:mm:ss`.
fn time_span(text: &str) -> Option<NonZeroU64> {
    let mut parts = text.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let numbers = [(days, 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)];
    let mut total: u64 = 0;
    for (number, seconds) in numbers {
        let number: u64 = number.parse().ok()?;
        total = total.checked_add(number.checked_mul(seconds)?)?;
    }
    NonZeroU64::new(total).filter(|_| parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_whole_seconds() {
        let seconds = |text| period(text).map(NonZeroU64::get);
        assert_eq!(seconds("1s"), Some(1));
        assert_eq!(seconds("15m"), Some(900));
        assert_eq!(seconds("1.5h"), Some(5_400));
        assert_eq!(seconds("7d"), Some(604_800));
        for text in ["", "s", ".s", "0.5s", "-1s", "1w", "1 s", "1e3s", "0m"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert_eq!(time_span("1.02:03:04").map(NonZeroU64::get), Some(93_784));
        assert_eq!(time_span("00:15"), None);
    }
}
