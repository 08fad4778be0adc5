//! HTTP endpoints for people, probes and Prometheus.
//!
//! Two ports, because they have two audiences. Port 8080 faces the network: health, `/json`,
//! `/v1`, `/metrics`, and nothing else about rules or stores. Port 6070 shows the rules, so it
//! stays on loopback unless a token (`token`) or client certificates protect it; `guard` says which
//! requests it admits. A third port serves metrics only, at the reference's address.
//!
//! | file | what |
//! | --- | --- |
//! | `http` | connections, bodies, and bodies in pieces |
//! | `guard` | who may use port 6070 |
//! | `api` | what the endpoints of port 6070 share |
//! | `query` | parameters and errors |
//! | `limits`, `rates` | `GET /limits`, and hits a second |
//! | `history` | the hits of the last minute |
//! | `quotas` | `GET /quotas` |
//! | `state` | `GET /partitions`, `GET /top`, and the `state` event |
//! | `events` | `GET /events`, `GET /decisions` |
//! | `changes` | `POST /reset`, `POST /shadow`, their bodies and audit |
//! | `overrides` | `/overrides` |
//! | `record` | `POST /record` |
//! | `json` | `/json` |
//! | `v1` | `/v1` |
//! | `readiness` | readiness and its report |
//! | `rlconfig` | the rules in the reference's format |
//! | `page` | the live page, and the list of paths |
//!
//! `docs/admin.md` describes the endpoints.
//!
//! What it deliberately does not do: decide (`pipeline`), accept connections (`net`), count
//! (`metrics`).

mod api;
mod changes;
mod events;
mod guard;
mod history;
mod http;
mod json;
mod limits;
mod overrides;
mod page;
mod query;
mod quotas;
mod rates;
mod readiness;
mod record;
mod rlconfig;
mod state;
mod v1;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, StatusCode, Uri, header};
use axum::error_handling::HandleErrorLayer;
use axum::extract::{RawQuery, State};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use axum::{Extension, Router};

pub use self::api::{AdminApi, AdminParts};
pub use self::guard::{AdminToken, Guard, GuardRules};
pub use self::http::serve;
use self::http::{in_pieces, send_long_in_pieces};
pub use self::json::JsonService;
pub use self::readiness::Readiness;
pub use self::record::RecordingSetup;
pub use self::state::run_states;
pub(crate) use self::v1::OPENAPI;
#[cfg(fuzzing)]
pub use crate::protobuf_json::round_trip;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{BoxError, ServiceBuilder};

/// What the endpoints read and change.
pub type AdminState = Arc<AdminApi>;

/// Sets the log filter, or returns why it cannot.
pub type LogLevelSwitch = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Most requests for decisions or metrics in progress; further ones get 503 at once. Probes are not
/// limited: they must be answered under overload.
const WORK_MAX: usize = 64;

/// Timeout of such a request, and of its body.
const WORK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Endpoints of port 8080.
pub fn public_router(state: AdminState) -> Router {
    let shed = state.parts.engine.metrics.connections.http_shed.clone();
    let memory = Arc::clone(&state.parts.answers);
    let reader = json::BodyReader {
        memory: Arc::clone(&memory),
        wait_max: WORK_WAIT_MAX,
        shed: shed.clone(),
    };
    let api = state.parts.json.clone();
    let api = api.map(|json| v1::router(json, Arc::clone(&memory), shed.clone()));
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
    let mut router = Router::new();
    if let Some(json) = state.parts.json.clone() {
        router = router.route(json::PATH, any(move |request| json::decide(json, request)));
    }
    router
        .layer(bounds.clone())
        .layer(middleware::from_fn_with_state(reader, json::read_body))
        .merge(api.unwrap_or_default())
        .layer(middleware::from_fn_with_state(memory, send_long_in_pieces))
        .route("/metrics", get(metrics).layer(bounds))
        .route("/", get(public_index))
        .route("/healthcheck", any(healthcheck))
        .route("/livez", any(|| async { "OK" }))
        .route("/readyz", any(healthcheck))
        .fallback(no_such_path)
        .with_state(state)
}

/// Endpoints of the Prometheus port.
pub fn metrics_router(state: AdminState, path: &str) -> Router {
    Router::new().route(path, get(metrics)).with_state(state)
}

/// Endpoints of port 6070, for requests that the guard admits.
pub fn admin_router(state: AdminState, guard: Guard) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/rlconfig", get(rlconfig::rlconfig))
        .route("/metrics", get(metrics))
        .route("/healthcheck", any(healthcheck))
        .route("/readyz", get(readyz))
        .route("/log-level", put(log_level))
        .route("/limits", get(limits::limits))
        .route("/top", get(state::top))
        .route(
            "/overrides",
            put(overrides::put)
                .get(overrides::get)
                .delete(overrides::delete),
        )
        .route("/partitions", get(state::partitions))
        .route("/quotas", get(quotas::quotas))
        .route("/decisions", get(events::decisions))
        .route("/events", get(events::events))
        .route("/record", post(record::record))
        .route("/reset", post(changes::reset))
        .route("/shadow", post(changes::shadow))
        .merge(page::router())
        .fallback(no_such_path)
        .with_state(state)
        .layer(middleware::from_fn_with_state(guard, guard::require_access))
}

async fn no_such_path() -> (StatusCode, &'static str) {
    let why = "there is no such path; / lists those of this port\n";
    (StatusCode::NOT_FOUND, why)
}

/// Health as the reference reports it: 200 and `OK`, or 500 and no body.
async fn healthcheck(State(state): State<AdminState>) -> Response {
    if state.parts.readiness.ready() {
        "OK".into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Readiness; `?verbose` adds the reasons.
async fn readyz(State(state): State<AdminState>, RawQuery(query): RawQuery) -> Response {
    let status = if state.parts.readiness.ready() {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let verbose = query.is_some_and(|query| query == "verbose" || query.starts_with("verbose="));
    let body = if verbose {
        state.parts.readiness.report()
    } else {
        String::new()
    };
    (status, body).into_response()
}

async fn log_level(State(state): State<AdminState>, level: String) -> Response {
    let Some(switch) = &state.parts.log_level else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match switch(level.trim()) {
        Ok(()) => format!("log level: {}\n", level.trim()).into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

async fn metrics(
    State(state): State<AdminState>,
    client: Option<Extension<http::Client>>,
) -> Response {
    let Ok(permit) = Arc::clone(&state.scrapes).try_acquire_owned() else {
        let why = "too many scrapes are in progress; try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let client = client.map(|Extension(client)| client).unwrap_or_default();
    // On a blocking thread: the text may be megabytes, and the threads here also decide.
    let rendered = tokio::task::spawn_blocking(move || state.parts.engine.metrics.render()).await;
    match rendered
        .map_err(|error| error.to_string())
        .and_then(|text| text.map_err(|error| error.to_string()))
    {
        Ok(text) => (
            [
                (
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
                ),
                (header::CONTENT_LENGTH, text.len().into()),
            ],
            in_pieces(text.into(), client, permit),
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}

async fn public_index(State(state): State<AdminState>) -> String {
    let decisions = match state.parts.json {
        Some(_) => {
            "/json: POST a RateLimitRequest as JSON\n\
             /v1/check and others: POST a call of tollgate's API; /v1/openapi.json describes them\n"
        }
        None => "",
    };
    format!(
        "/: print this list\n\
         /healthcheck, /readyz: 200 when ready, 500 when not\n\
         {decisions}\
         /livez: 200 while the process runs\n\
         /metrics: counters for Prometheus\n"
    )
}

async fn index() -> &'static str {
    "/: print this list\n\
     /decisions: the last decisions, and why\n\
     /events: stream of the state each second and of sampled decisions\n\
     /healthcheck: 200 when ready, 500 when not\n\
     /limits: the rules in use, their hits and rates\n\
     /live: a page that shows who is limited, live\n\
     /log-level: PUT a level or a filter, as --log-level takes it\n\
     /metrics: counters for Prometheus\n\
     /overrides: limits of single descriptors for a time; PUT and DELETE change them\n\
     /partitions: the store, its partitions, leases and servers\n\
     /quotas: limits that the quota service apportions, their buckets and streams\n\
     /readyz?verbose: whether this is ready, and why\n\
     /record: POST; stream of requests as they are decided, with the answers\n\
     /reset: POST a descriptor whose buckets are forgotten\n\
     /rlconfig: print the limits in use\n\
     /shadow: POST a rule that is kept in shadow mode until a time\n\
     /top: the keys with the most hits\n"
}
