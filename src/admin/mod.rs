//! HTTP endpoints for people, probes and Prometheus.
//!
//! Two ports, because they have two audiences. Port 8080 faces the network: health, `/json`,
//! `/metrics`, and nothing else about rules or stores. Port 6070 shows the rules, so it stays on
//! loopback unless a token (`token`) or client certificates protect it. A third port serves metrics
//! only, at the reference's address.
//!
//! What it deliberately does not do: decide (`pipeline`), accept connections (`net`), count
//! (`metrics`).

mod http;
mod json;
mod page;
mod protobuf_json;
mod readiness;
mod token;

use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use ::http::{StatusCode, Uri, header};
use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{RawQuery, State};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, put};

pub use self::http::serve;
pub use self::protobuf_json::JsonService;
#[cfg(fuzzing)]
pub use self::protobuf_json::round_trip;
pub use self::readiness::Readiness;
pub use self::token::AdminToken;
use crate::metrics::Metrics;
use crate::pipeline::Generations;
use tollgate_limiter::{Allowance, Rule};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder};

/// State that the endpoints read.
#[derive(Clone)]
pub struct AdminState {
    /// Readiness of the service.
    pub readiness: Readiness,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// The rules in use.
    pub generations: Arc<Generations>,
    /// Decisions over JSON; none when `/json` is disabled.
    pub json: Option<Arc<JsonService>>,
    /// Changes the log filter; none when it cannot be changed.
    pub log_level: Option<LogLevelSwitch>,
}

/// Sets the log filter, or returns why it cannot.
pub type LogLevelSwitch = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Most requests for decisions or metrics in progress; further ones get 503 at once. Probes are not
/// limited: they must be answered under overload.
const WORK_MAX: usize = 64;

/// Timeout of such a request, including its body.
const WORK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Endpoints of port 8080.
pub fn public_router(state: AdminState) -> Router {
    let shed = state.metrics.connections.http_shed.clone();
    let bounds = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(move |uri: Uri, _: BoxError| {
            shed.inc();
            ready(match uri.path() {
                json::PATH => json::shed(),
                _ => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            })
        }))
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(WORK_MAX))
        .timeout(WORK_WAIT_MAX);
    let mut router = Router::new().route("/metrics", get(metrics));
    if let Some(json) = state.json.clone() {
        router = router.route(json::PATH, any(move |request| json::decide(json, request)));
    }
    router
        .layer(bounds)
        .route("/healthcheck", any(healthcheck))
        .route("/livez", any(|| async { "OK" }))
        .route("/readyz", any(healthcheck))
        .with_state(state)
}

/// Endpoints of the Prometheus port.
pub fn metrics_router(state: AdminState, path: &str) -> Router {
    Router::new().route(path, get(metrics)).with_state(state)
}

/// Endpoints of port 6070; with a token, only requests that carry it are served.
pub fn admin_router(state: AdminState, token: Option<AdminToken>) -> Router {
    let router = Router::new()
        .route("/", get(index))
        .route("/rlconfig", get(rlconfig))
        .route("/metrics", get(metrics))
        .route("/healthcheck", any(healthcheck))
        .route("/readyz", get(readyz))
        .route("/log-level", put(log_level))
        .with_state(state);
    let router = match token {
        None => router,
        Some(token) => router.layer(middleware::from_fn_with_state(token, token::require_token)),
    };
    // Without the token: the page asks for it.
    router.merge(page::router())
}

/// Health as the reference reports it: 200 and `OK`, or 500 and no body.
async fn healthcheck(State(state): State<AdminState>) -> Response {
    if state.readiness.ready() {
        "OK".into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Readiness; `?verbose` adds the reasons.
async fn readyz(State(state): State<AdminState>, RawQuery(query): RawQuery) -> Response {
    let status = if state.readiness.ready() {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let verbose = query.is_some_and(|query| query == "verbose" || query.starts_with("verbose="));
    let body = if verbose {
        state.readiness.report()
    } else {
        String::new()
    };
    (status, body).into_response()
}

async fn log_level(State(state): State<AdminState>, level: String) -> Response {
    let Some(switch) = &state.log_level else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match switch(level.trim()) {
        Ok(()) => format!("log level: {}\n", level.trim()).into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(state): State<AdminState>) -> Response {
    // On a blocking thread: the text may be megabytes, and the threads here also decide.
    let rendered = tokio::task::spawn_blocking(move || state.metrics.render()).await;
    match rendered
        .map_err(|error| error.to_string())
        .and_then(|text| text.map_err(|error| error.to_string()))
    {
        Ok(text) => (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            text,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}

async fn index() -> &'static str {
    "/: print this list\n\
     /healthcheck: 200 when ready, 500 when not\n\
     /live: a page that shows who is limited, live\n\
     /log-level: PUT a level or a filter, as --log-level takes it\n\
     /metrics: counters for Prometheus\n\
     /readyz?verbose: whether this is ready, and why\n\
     /rlconfig: print the limits in use\n"
}

async fn rlconfig(State(state): State<AdminState>) -> String {
    let Some(generation) = state.generations.current() else {
        return String::new();
    };
    generation.rules.rules().iter().map(rlconfig_line).collect()
}

/// One limit in the reference's format; fields that the reference lacks follow.
fn rlconfig_line(rule: &Rule) -> String {
    let mut line = match rule.allowance {
        Allowance::Unlimited => format!("{}: unit=UNKNOWN requests_per_unit=0", rule.full_name()),
        Allowance::Limited { limit, .. } => format!(
            "{}: unit={} requests_per_unit={}",
            rule.full_name(),
            limit
                .unit()
                // The wire has no window either.
                .map_or("unknown", tollgate_limiter::Unit::name)
                .to_ascii_uppercase(),
            limit.requests_per_unit(),
        ),
    };
    let mut say = |more: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = line.write_fmt(more);
    };
    say(format_args!(
        ", shadow_mode: {}, quota_mode: {}",
        rule.shadow_mode, rule.quota_mode
    ));
    match rule.allowance {
        Allowance::Unlimited => say(format_args!(", unlimited: true")),
        Allowance::Limited { limit, algorithm } => {
            if limit.unit().is_some() && limit.unit_multiplier().get() != 1 {
                say(format_args!(
                    ", unit_multiplier: {}",
                    limit.unit_multiplier()
                ));
            }
            say(format_args!(", algorithm: {}", algorithm.name()));
            if limit.burst() != limit.requests() {
                say(format_args!(", burst: {}", limit.burst()));
            }
            if let Some(segments) = limit.segments() {
                say(format_args!(", segments: {segments}"));
            }
            if let Some(calendar) = limit.calendar() {
                say(format_args!(", calendar: {}", calendar.name()));
            }
            if let Some(count_refused) = limit.count_refused() {
                say(format_args!(", count_refused: {}", count_refused.name()));
            }
            if limit.unit().is_none() {
                let seconds = limit.window().as_us() / 1_000_000;
                say(format_args!(", slot_seconds: {seconds}"));
            }
            if let Some(key) = &rule.holder_key {
                say(format_args!(", holder_key: {key}"));
            }
        }
    }
    if !rule.name.is_empty() {
        say(format_args!(", name: {}", rule.name));
    }
    line.push('\n');
    line
}
