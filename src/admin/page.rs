//! The live page: static files in the binary, which show what `/events` streams.
//!
//! The files hold no data, so that they are served without the token that the page then asks for.
//! The page loads nothing from another host, and the headers forbid it: Content-Security-Policy
//! allows scripts, styles and connections of this listener only.
//!
//! What it deliberately does not do: read anything of the service. The page does that, by the same
//! paths as every client.

use ::http::{HeaderName, HeaderValue, header};
use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::get;

/// Path of the page.
const PAGE: &str = "/live";

/// Each file: its path, its content type, its text.
const FILES: [(&str, &str, &str); 8] = [
    (
        PAGE,
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    (
        "/live/page.css",
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    ),
    ("/live/page.js", SCRIPT, include_str!("page/page.js")),
    ("/live/draw.js", SCRIPT, include_str!("page/draw.js")),
    ("/live/format.js", SCRIPT, include_str!("page/format.js")),
    ("/live/quotas.js", SCRIPT, include_str!("page/quotas.js")),
    ("/live/stream.js", SCRIPT, include_str!("page/stream.js")),
    (
        "/live/icon.svg",
        "image/svg+xml",
        include_str!("page/icon.svg"),
    ),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether a path is one of the page's files, which `guard` admits without a token.
pub(super) fn is_page(path: &str) -> bool {
    FILES.iter().any(|(file, _, _)| *file == path)
}

/// Routes of the page's files.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for (path, content_type, text) in FILES {
        let file = move || async move { (headers(content_type), text).into_response() };
        router = router.route(path, get(file));
    }
    router
}

fn headers(content_type: &'static str) -> [(HeaderName, HeaderValue); 5] {
    [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)))
}
