//! Timers of a connection: shutdown, maximum age, keepalive, and stalled calls.
//!
//! They run in a separate task, because a connection is polled for every batch of checks, and
//! polling three timers each time would be too expensive. The task changes the state of the HTTP/2
//! connection, which wakes the connection's task.
//!
//! What it deliberately does not do: read from or write to the socket.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tollgate_http2::ServerConnection;

use crate::grpc::context::{ConnectionLimits, ServerContext};
use crate::net::ShutdownSignal;

/// How many calls are reset before the task yields.
const RESETS_PER_TURN_MAX: usize = 16;

/// Supervises a connection. The caller aborts the task when the connection ends.
///
/// Only one connection of a worker thread at a time resets stalled calls: the one that holds
/// `resetting`. A client that opened thousands of calls at once has them all stall at once, and
/// resetting all of them in one turn would delay the requests of other clients.
pub(crate) async fn supervise(
    http2: Rc<RefCell<ServerConnection>>,
    mut stopping: ShutdownSignal,
    server: ServerContext,
    resetting: Rc<Semaphore>,
) {
    let (limits, metrics) = (server.limits, &server.metrics);
    let graceful_shutdown = || http2.borrow_mut().graceful_shutdown();
    let abort = || http2.borrow_mut().abort();
    let end_of_life = async {
        tokio::select! {
            () = stopping.wait() => graceful_shutdown(),
            () = sleep_if_limited(limits.random_age()) => {
                metrics.connections.aged.inc();
                graceful_shutdown();
                sleep_if_limited(limits.age_grace).await;
                abort();
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = end_of_life => {}
        () = reset_stalled_calls(limits.body_wait, &http2, &server, &resetting) => {}
        () = keep_alive(limits, &http2) => {
            metrics.connections.silent.inc();
            abort();
        }
    }
}

/// Sleeps for the limit. Never ends without a limit.
async fn sleep_if_limited(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Resets calls whose request body stalls or whose response the client does not read. Never ends.
async fn reset_stalled_calls(
    wait: Option<Duration>,
    http2: &RefCell<ServerConnection>,
    server: &ServerContext,
    resetting: &Semaphore,
) {
    let Some(wait) = wait else {
        return std::future::pending().await;
    };
    let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    loop {
        // A stalled call is reset after one and a half times `wait` at most.
        sleep(wait / 2).await;
        loop {
            // The semaphore is never closed.
            let _permit = resetting.acquire().await.ok();
            let now_us = server.pipeline.uptime_us();
            let stalled = http2
                .borrow_mut()
                .reset_stalled(now_us, wait_us, RESETS_PER_TURN_MAX);
            let (requests, responses) = (stalled.requests as u64, stalled.responses as u64);
            server.metrics.connections.calls_late.inc_by(requests);
            server.metrics.connections.answers_unread.inc_by(responses);
            if requests.saturating_add(responses) > 0 {
                yield_now().await;
            }
            if !stalled.more {
                break;
            }
        }
    }
}

/// Sends keepalive pings. Ends when one is not acknowledged in time.
async fn keep_alive(limits: ConnectionLimits, http2: &RefCell<ServerConnection>) {
    let Some(interval) = limits.keepalive_interval else {
        return std::future::pending().await;
    };
    loop {
        sleep(interval).await;
        http2.borrow_mut().send_keepalive_ping();
        let acknowledged = async {
            // Most clients acknowledge at once. Poll with backoff for the others.
            let mut wait = Duration::from_millis(10);
            while !http2.borrow().is_keepalive_acknowledged() {
                sleep(wait).await;
                wait = wait.saturating_mul(2).min(Duration::from_secs(1));
            }
        };
        if timeout(limits.keepalive_timeout, acknowledged)
            .await
            .is_err()
        {
            return;
        }
    }
}
