//! Parameters of a URL, strictly: an unknown, repeated or malformed one is an error that says what
//! is allowed. And errors of the admin API: a status, and a body that says what is wrong and what
//! to do.

use std::borrow::Cow;
use std::fmt::Display;

use ::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::AdminState;
use super::http::{Client, in_pieces};
use crate::admin_api::{ApiError, parse_entries};

/// Parameters of one request, decoded.
#[derive(Debug)]
pub(super) struct Query {
    allowed: &'static [&'static str],
    parameters: Vec<(&'static str, String)>,
}

/// A request that was not carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ApiFailure {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

/// Headers of a response in JSON.
pub(super) const JSON_HEADERS: [(HeaderName, &str); 3] = uncached("application/json");

/// Headers of a response that no cache may keep.
pub(super) const fn uncached(content_type: &'static str) -> [(HeaderName, &'static str); 3] {
    [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ]
}

/// A value as one line of JSON.
pub(super) fn json_bytes(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A response in JSON.
pub(super) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    match json_bytes(value) {
        Ok(body) => (status, JSON_HEADERS, body).into_response(),
        Err(error) => {
            tracing::error!(error, "cannot write a response of the admin listener");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn list(allowed: &[&str]) -> String {
    if allowed.is_empty() {
        return "this path has no parameters".to_owned();
    }
    format!("the parameters are {}", allowed.join(", "))
}

/// Decodes `%XX` and `+`.
fn decode(text: &str) -> Result<String, ApiFailure> {
    let invalid = || {
        ApiFailure::invalid(format!(
            "the query has {text:?}; encode it as UTF-8 with %XX, such as %26 for &"
        ))
    };
    let mut escapes = text.split('%').skip(1).map(|rest| rest.get(..2));
    let is_digits = |two: &str| two.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !escapes.all(|two| two.is_some_and(is_digits)) {
        return Err(invalid());
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| invalid())
}

/// Runs what may take long on a thread that may block: the threads here also decide.
pub(super) async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiFailure> {
    let ran = tokio::task::spawn_blocking(run).await;
    ran.map_err(|error| ApiFailure::internal(&error))
}

/// A response that may be megabytes.
pub(super) async fn long_json<T: Serialize>(
    state: AdminState,
    client: Client,
    value: impl FnOnce(&AdminState) -> T + Send + 'static,
) -> Result<Response, ApiFailure> {
    let permit = state.long_response()?;
    let written = blocking(move || json_bytes(&value(&state))).await?;
    let body = written.map_err(|error| ApiFailure::internal(&error))?;
    let body = in_pieces(body.into(), client, permit);
    Ok((StatusCode::OK, JSON_HEADERS, body).into_response())
}

// === impl Query ===

impl Query {
    /// Parses a query. The parameters are those of `allowed`, each once at most.
    pub(super) fn parse(
        raw: Option<&str>,
        allowed: &'static [&'static str],
    ) -> Result<Self, ApiFailure> {
        let mut parameters: Vec<(&'static str, String)> = Vec::new();
        let raw = raw.unwrap_or_default();
        for part in raw.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decode(name)?;
            let Some(name) = allowed.iter().find(|known| **known == name) else {
                return Err(ApiFailure::invalid(format!(
                    "unknown parameter {name:?}; {}",
                    list(allowed)
                )));
            };
            if parameters.iter().any(|(known, _)| known == name) {
                let message = format!("the parameter {name} is given twice; give it once");
                return Err(ApiFailure::invalid(message));
            }
            parameters.push((name, decode(value)?));
        }
        Ok(Self {
            allowed,
            parameters,
        })
    }

    /// The value of a parameter; none if it is absent or empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        debug_assert!(self.allowed.contains(&name), "{name} is not declared");
        let mut known = self.parameters.iter();
        let (_, value) = known.find(|(known, _)| *known == name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// A number up to `most`.
    pub(super) fn number(&self, name: &str, most: u64) -> Result<Option<u64>, ApiFailure> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && *number <= most);
        number.map(Some).ok_or_else(|| {
            ApiFailure::invalid(format!(
                "{name}={text:?} is invalid; use a whole number from 0 to {most}"
            ))
        })
    }

    /// One of these choices.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[T],
        word: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, ApiFailure> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let found = choices.iter().find(|choice| word(**choice) == text);
        found.map(|choice| Some(*choice)).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|choice| word(*choice)).collect();
            ApiFailure::invalid(format!(
                "{name}={text:?} is invalid; use {}",
                names.join(" or ")
            ))
        })
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ApiFailure> {
        self.choice(
            name,
            &[true, false],
            |is_set| if is_set { "true" } else { "false" },
        )
    }

    /// Entries, as [`parse_entries`] takes them.
    pub(super) fn entries(&self, name: &str) -> Result<Option<Vec<(String, String)>>, ApiFailure> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        parse_entries(text).map(Some).map_err(|entry| {
            ApiFailure::invalid(format!(
                "{name}: the entry {entry:?} is invalid; write KEY=VALUE,KEY=VALUE, or KEY= for an empty value"
            ))
        })
    }
}

// === impl ApiFailure ===

impl ApiFailure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// The request is invalid.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A defect of tollgate.
    pub(super) fn internal(error: &dyn Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// It cannot be done now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl IntoResponse for ApiFailure {
    fn into_response(self) -> Response {
        let error = ApiError {
            error: self.message,
        };
        json_response(self.status, &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_api::RankBy;

    const ALLOWED: &[&str] = &["n", "rule", "by", "key"];

    fn error(raw: &str) -> String {
        Query::parse(Some(raw), ALLOWED).unwrap_err().message
    }

    #[test]
    fn parameters_are_decoded() {
        let raw = "rule=d.a%2Fb+name%3Dx&&n=7&key=a=%00,b=é,c=";
        let query = Query::parse(Some(raw), ALLOWED).unwrap();
        assert_eq!(query.text("rule"), Some("d.a/b name=x"));
        assert_eq!(query.number("n", 7).unwrap(), Some(7));
        assert_eq!(query.text("by"), None);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let entries = vec![pair("a", "\0"), pair("b", "é"), pair("c", "")];
        assert_eq!(query.entries("key").unwrap(), Some(entries));
        assert!(query.number("n", 6).is_err());
        let none = Query::parse(None, ALLOWED).unwrap();
        assert_eq!(none.number("n", 6).unwrap(), None);
    }

    #[test]
    fn what_is_unknown_repeated_or_malformed_is_refused() {
        assert_eq!(
            error("nn=1"),
            "unknown parameter \"nn\"; the parameters are n, rule, by, key"
        );
        assert_eq!(
            error("n=1&n=1"),
            "the parameter n is given twice; give it once"
        );
        for raw in ["rule=%", "rule=%4", "rule=%zz", "rule=%ff", "%ff=1"] {
            assert!(error(raw).contains("encode it as UTF-8"), "{raw}");
        }
        for raw in ["n=+7", "n=-1", "n=1.0", "n=x", "n=99999999999999999999"] {
            let query = Query::parse(Some(raw), ALLOWED).unwrap();
            assert!(query.number("n", 100).is_err(), "{raw}");
        }
        let query = Query::parse(Some("by=size&key=a"), ALLOWED).unwrap();
        let why = query.choice("by", &RankBy::ALL, RankBy::name);
        let why = why.unwrap_err().message;
        assert_eq!(why, "by=\"size\" is invalid; use refused or asked");
        assert!(query.entries("key").is_err());
    }
}
