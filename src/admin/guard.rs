//! Who may use the admin listener.
//!
//! On loopback without a token, every program of this machine may, and so might any page in a
//! browser of this machine. So the Host header must name loopback or a name of `--admin-host`,
//! which defeats DNS rebinding; a request that a page of another origin made is refused; and a POST
//! must be JSON, which such a page cannot send without a preflight. A token is never sent by a
//! browser on its own, so with a token these rules are not needed, except that a POST must be JSON.
//! A client certificate is sent by a browser on its own: then only the Host rule is not needed,
//! because the certificate of this listener has no name that an attacker owns.
//!
//! The token file is read for each request, which are few, so that a replaced token takes effect at
//! once. If it cannot be read, or holds no token, the last one stays in use. Tokens are compared in
//! constant time.
//!
//! What it deliberately does not do: verify certificates (`tls`), users and roles.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq as _;

use super::http::Client;
use super::page;
use super::query::ApiFailure;
use crate::metrics::{AdminMetrics, AdminRefusal};
use crate::per_thread::lock;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Shortest token, in bytes.
const TOKEN_BYTES_MIN: usize = 16;

/// Bytes of the file that are read.
const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// The rules of access of one admin listener.
#[derive(Clone, Debug)]
pub struct Guard(Arc<GuardRules>);

/// What a guard is made of.
#[derive(Debug)]
pub struct GuardRules {
    /// The token that requests must carry.
    pub token: Option<AdminToken>,
    /// Whether every client has shown a certificate.
    pub client_certificates: bool,
    /// Whether the listener is on loopback.
    pub is_loopback: bool,
    /// Names that the Host header may have, besides those of loopback.
    pub hosts: Vec<String>,
    /// Where refused requests are counted.
    pub metrics: AdminMetrics,
}

/// Why a request is refused.
struct Refusal {
    reason: AdminRefusal,
    message: String,
}

/// Token that requests must carry.
#[derive(Clone, Debug)]
pub struct AdminToken(Arc<Mutex<TokenFile>>);

struct TokenFile {
    path: PathBuf,
    /// The last good token.
    token: Vec<u8>,
    /// The last read failed, and that was logged.
    has_failed: bool,
}

// === impl Guard ===

impl Guard {
    /// A guard with these rules.
    pub fn new(rules: GuardRules) -> Self {
        Self(Arc::new(rules))
    }

    async fn admit(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let rules = &*self.0;
        let is_page = is_page(method, uri);
        if rules.needs_host(is_page) {
            rules.check_host(uri, headers)?;
        }
        if rules.token.is_none() {
            check_origin(uri, headers)?;
            check_site(is_page, headers)?;
        }
        if let Some(token) = &rules.token
            && !is_page
            && !is_health(uri)
            && !token.matches(headers).await
        {
            return Err(Refusal::new(
                AdminRefusal::Token,
                "this listener needs a token; send the header `authorization: Bearer TOKEN`",
            ));
        }
        if method == Method::POST && !is_json(headers) {
            return Err(Refusal::new(
                AdminRefusal::ContentType,
                "a POST must be JSON; send the header `content-type: application/json`",
            ));
        }
        Ok(())
    }
}

// === impl GuardRules ===

impl GuardRules {
    /// Whether the Host header must name this listener.
    fn needs_host(&self, is_page: bool) -> bool {
        match (&self.token, self.client_certificates) {
            // The page is served without the token, so on loopback the token does not protect it.
            (Some(_), _) => is_page && self.is_loopback,
            (None, true) => false,
            (None, false) => true,
        }
    }

    /// Checks the Host header and, in a request to a proxy, the name in its first line.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let authority = uri.authority().map(::http::uri::Authority::as_str);
        let is_one = host.is_some() && hosts.next().is_none();
        let mut names = host.into_iter().chain(authority);
        if is_one && names.all(|name| self.is_known(name)) {
            return Ok(());
        }
        let shown = host.unwrap_or_default();
        Err(Refusal::new(
            AdminRefusal::Host,
            format!(
                "the Host header {shown:?} is not a name of this listener; use localhost, 127.0.0.1 or [::1], or \
                 allow the name with --admin-host"
            ),
        ))
    }

    /// Whether a Host header has a name of loopback, or one that was configured.
    fn is_known(&self, host: &str) -> bool {
        let Some(name) = host_name(host) else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        name == "localhost"
            || name == "[::1]"
            || name.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
            || self.hosts.iter().any(|known| {
                let known = known.trim_start_matches('[').trim_end_matches(']');
                let name = name.trim_start_matches('[').trim_end_matches(']');
                known.eq_ignore_ascii_case(name)
            })
    }
}

/// The name of a Host header, without its port. None if it is malformed.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = if host.starts_with('[') {
        let end = host.find(']')?.checked_add(1)?;
        host.split_at_checked(end)?
    } else {
        host.split_at_checked(host.find(':').unwrap_or(host.len()))?
    };
    let digits = match port.strip_prefix(':') {
        Some(port) => port,
        None if port.is_empty() => port,
        None => return None,
    };
    let is_port = digits.is_empty() || digits.parse::<u16>().is_ok();
    let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && digits_only && !name.is_empty()).then_some(name)
}

/// Checks that no page of another origin made the request, by its Origin header.
fn check_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(());
    };
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(::http::uri::Authority::as_str));
    let origin = origin.to_str().unwrap_or_default();
    let of_origin = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    let is_same = match (of_origin, host) {
        (Some(of_origin), Some(host)) => of_origin.eq_ignore_ascii_case(host),
        _ => false,
    };
    if is_same && origins.next().is_none() {
        return Ok(());
    }
    Err(Refusal::new(
        AdminRefusal::Origin,
        format!(
            "the Origin header {origin:?} is not that of this listener; open its own page, or send no Origin header"
        ),
    ))
}

/// Checks the same by what the browser says. A link to the live page is followed.
fn check_site(is_page: bool, headers: &HeaderMap) -> Result<(), Refusal> {
    let is_link = is_page
        && headers
            .get(SEC_FETCH_MODE)
            .is_some_and(|mode| mode == "navigate");
    let sites = headers.get_all(SEC_FETCH_SITE);
    let is_own = |site: &HeaderValue| site == "same-origin" || site == "none";
    if is_link || sites.iter().all(is_own) {
        return Ok(());
    }
    Err(Refusal::new(
        AdminRefusal::Site,
        "a page of another site made this request; open the page of this listener at /live",
    ))
}

/// Whether a request asks for a part of the live page.
fn is_page(method: &Method, uri: &Uri) -> bool {
    (method == Method::GET || method == Method::HEAD) && page::is_page(uri.path())
}

/// Whether a request asks for health and nothing else.
fn is_health(uri: &Uri) -> bool {
    match uri.path() {
        "/healthcheck" => true,
        "/readyz" => uri.query().is_none_or(str::is_empty),
        _ => false,
    }
}

/// Whether the content type is that of JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let first = types.next().and_then(|first| first.to_str().ok());
    let media = first.and_then(|first| first.split(';').next());
    let is_json = media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"));
    is_json && types.next().is_none()
}

// === impl Refusal ===

impl Refusal {
    fn new(reason: AdminRefusal, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    fn status(&self) -> StatusCode {
        match self.reason {
            AdminRefusal::Token => StatusCode::UNAUTHORIZED,
            AdminRefusal::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            AdminRefusal::Host | AdminRefusal::Origin | AdminRefusal::Site => StatusCode::FORBIDDEN,
        }
    }
}

/// Middleware that refuses requests which the rules do not admit.
pub(super) async fn require_access(
    State(guard): State<Guard>,
    request: Request,
    next: Next,
) -> Response {
    let admitted = guard
        .admit(request.method(), request.uri(), request.headers())
        .await;
    let refusal = match admitted {
        Ok(()) => return next.run(request).await,
        Err(refusal) => refusal,
    };
    guard.0.metrics.refused(refusal.reason);
    let (status, message) = (refusal.status(), refusal.message);
    let client = request.extensions().get::<Client>();
    tracing::debug!(
        peer = ?client.and_then(|client| client.peer),
        status = status.as_u16(),
        "the admin listener refused a request: {message}",
    );
    let response = ApiFailure::new(status, message).into_response();
    if status == StatusCode::UNAUTHORIZED {
        return ([(header::WWW_AUTHENTICATE, "Bearer")], response).into_response();
    }
    response
}

// === impl AdminToken ===

impl AdminToken {
    /// Reads the token of a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or holds no token.
    pub fn read(path: &Path) -> io::Result<Self> {
        let token = read_token(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(Arc::new(Mutex::new(TokenFile {
            path: path.to_owned(),
            token,
            has_failed: false,
        }))))
    }

    /// The current token.
    async fn current(&self) -> Vec<u8> {
        let file = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || {
            let file = &mut *lock(&file);
            match read_token(&file.path) {
                Ok(token) => {
                    file.token = token;
                    if std::mem::take(&mut file.has_failed) {
                        // At the level of the failure.
                        tracing::warn!(path = %file.path.display(), "the admin token was read again");
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut file.has_failed, true) {
                        tracing::warn!(path = %file.path.display(), %error, "cannot read the admin token; the last one stays in use");
                    }
                }
            }
            file.token.clone()
        });
        // An empty token matches no request.
        read.await.unwrap_or_default()
    }

    /// Whether the headers carry the token.
    pub(super) async fn matches(&self, headers: &HeaderMap) -> bool {
        let given = headers
            .get(header::AUTHORIZATION)
            .map(HeaderValue::as_bytes);
        let split = given.and_then(|given| given.split_at_checked(b"Bearer ".len()));
        let Some((scheme, given)) = split else {
            return false;
        };
        let token = self.current().await;
        scheme.eq_ignore_ascii_case(b"Bearer ")
            && token.len() >= TOKEN_BYTES_MIN
            && bool::from(given.ct_eq(&token))
    }
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Reads a token, without surrounding white space.
fn read_token(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = crate::regular_file::read(path, TOKEN_BYTES_MAX)?;
    let token = bytes.trim_ascii();
    if token.len() < TOKEN_BYTES_MIN {
        let words = format!("the file holds no token of at least {TOKEN_BYTES_MIN} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(token.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_host_header_is_what_precedes_its_port() {
        for (host, name) in [
            ("localhost", Some("localhost")),
            ("localhost:6070", Some("localhost")),
            ("localhost:", Some("localhost")),
            ("[::1]:6070", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("", None),
            (":6070", None),
            ("localhost:x", None),
            ("localhost:+1", None),
            ("localhost:65536", None),
            ("localhost:1:2", None),
            ("[::1", None),
            ("[::1]6070", None),
            ("::1", None),
        ] {
            assert_eq!(host_name(host), name, "{host}");
        }
    }
}
