//! Probes and heartbeats of one node, and what their results change: the breaker, the connection
//! and the log.

use std::sync::Arc;

use tokio::task::JoinError;

use super::probe::{self, HEARTBEAT_EVERY_US, ProbeError, SENTINEL_HEARTBEAT_EVERY_US};
use super::{NodeWorker, ProbeReport, QUIET_US};
use crate::store::StoreFault;
use crate::store::redis::cluster::Link;

impl NodeWorker {
    pub(super) fn heartbeat_every_us(&self) -> u64 {
        if self.connector.asks_sentinels() {
            SENTINEL_HEARTBEAT_EVERY_US
        } else {
            HEARTBEAT_EVERY_US
        }
    }

    /// Starts a probe or a heartbeat if one is due.
    pub(super) fn start_due_probe(&mut self) {
        if !self.probing.is_empty() || self.is_vacant() {
            return;
        }
        let now_us = self.now_us();
        let address = self.address();
        // Results for another connection, or for the node before this one, are discarded.
        let connection = self.connection;
        let (node, connector) = (Arc::clone(&self.node), Arc::clone(&self.connector));
        let replica = Arc::clone(&self.replica);
        match (self.breaker.probe_at_us(), &self.connected) {
            (Some(due_us), _) if due_us <= now_us => {
                self.probing.spawn(async move {
                    ProbeReport {
                        connection,
                        probe: true,
                        result: probe::probe(node, connector, replica, address).await,
                    }
                });
            }
            (None, Some(connected)) if self.heartbeat_at_us <= now_us => {
                self.heartbeat_at_us = now_us.saturating_add(self.heartbeat_every_us());
                let connected = connected.clone();
                self.probing.spawn(async move {
                    ProbeReport {
                        connection,
                        probe: false,
                        result: probe::heartbeat(node, connector, connected, replica).await,
                    }
                });
            }
            _ => {}
        }
    }

    pub(super) fn failed(&mut self, fault: StoreFault, words: Option<String>) {
        let now_us = self.now_us();
        let words = words.unwrap_or_else(|| "it did not answer in time".to_owned());
        if matches!(
            fault,
            StoreFault::ScriptDenied | StoreFault::UnexpectedReply
        ) {
            self.log_failed_call(fault, &words);
        }
        if !self.breaker.failed(fault, now_us) {
            return;
        }
        self.disconnect();
        self.node.refresh();
        // A lost connection may be made again before any deadline passes.
        if fault != StoreFault::ConnectionLost {
            self.close(fault, words);
        }
    }

    /// Logs a call that failed for a reason that may concern its checks alone, once in a while.
    fn log_failed_call(&mut self, fault: StoreFault, words: &str) {
        let now_us = self.now_us();
        self.failed_calls = self.failed_calls.saturating_add(1);
        if now_us < self.failed_calls_quiet_until_us {
            return;
        }
        self.failed_calls_quiet_until_us = now_us.saturating_add(QUIET_US);
        tracing::error!(
            store = %self.node.place(),
            %fault,
            error = words,
            calls = std::mem::take(&mut self.failed_calls),
            "the store did not decide a call"
        );
    }

    /// Opens the breaker for all callers, and records why.
    pub(super) fn close(&mut self, fault: StoreFault, words: String) {
        if self.node.close(fault) {
            self.node.metrics.breaker_opened.inc();
        }
        self.node.publish(Link::Down(fault));
        let now_us = self.now_us();
        // Probes may pass and calls fail, in turn.
        let is_quiet = self
            .quiet
            .is_some_and(|(quiet, until_us)| quiet == fault && now_us < until_us);
        if self.logged != Some(fault) && !is_quiet {
            self.logged = Some(fault);
            self.quiet = Some((fault, now_us.saturating_add(QUIET_US)));
            tracing::warn!(
                store = %self.node.place(),
                %fault,
                error = words,
                "the store is unavailable; --on-store-failure applies"
            );
        }
        self.node.remember(words);
        while let Some(part) = self.waiting.pop_front() {
            self.node.undecided(part, fault.while_breaker_open());
        }
    }

    /// Logs that the store decides: as a warning after a failure.
    fn log_connected(&self, failure: Option<StoreFault>) {
        let (store, message) = (self.node.place(), "connected to the store");
        if failure.is_none() {
            tracing::info!(%store, "{message}");
        } else {
            tracing::warn!(%store, "{message}");
        }
    }

    pub(super) fn probe_ended(&mut self, report: Result<ProbeReport, JoinError>) {
        let now_us = self.now_us();
        let report = report.unwrap_or_else(|error| ProbeReport {
            connection: self.connection,
            probe: self.breaker.open().is_some(),
            result: Err(ProbeError {
                fault: StoreFault::NotConnected,
                words: format!("this is a defect in tollgate: {error}"),
            }),
        });
        let open = report.probe;
        match report.result {
            // The connection was given up meanwhile, or the slot's node has changed.
            _ if report.connection != self.connection => {}
            Ok(connected) => {
                if self.counts_replicas
                    && let Some(replicas) = connected.replicas
                {
                    let replicas = i64::try_from(replicas).unwrap_or(1);
                    self.node.metrics.replicas.set(replicas);
                }
                if open {
                    self.connection = self.connection.saturating_add(1);
                    self.breaker.close(now_us);
                    self.heartbeat_at_us = now_us.saturating_add(self.heartbeat_every_us());
                    let failure = self.logged.take();
                    self.node.note_success();
                    // The end of a failure that was not logged is not logged either.
                    let is_quiet = failure.is_none()
                        && self.quiet.is_some_and(|(_, until_us)| now_us < until_us);
                    if self.node.open() && !is_quiet {
                        self.log_connected(failure);
                    }
                }
                self.node
                    .publish(Link::Up(connected.opened.connection.clone()));
                self.connected = Some(connected);
            }
            Err(ProbeError { fault, words }) if open => {
                let mut part = [0];
                // Without randomness replicas probe in step.
                let _ = getrandom::fill(&mut part);
                self.breaker.probe_failed(fault, now_us, part[0]);
                self.close(fault, words);
                self.node.refresh();
            }
            Err(ProbeError { fault, words }) => self.failed(fault, Some(words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::probe::tests::{connector, live};
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::redis::node::tests::node;
    use crate::store::redis::target::Password;

    #[tokio::test]
    async fn a_store_that_fails_again_and_again_is_logged_with_its_failures_only() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let lines = || {
            let text = std::fs::read_to_string(log.path()).unwrap();
            let has = |words: &str| text.matches(words).count();
            let failures = has("the store is unavailable");
            (failures, has("connected to the store"))
        };
        let clock = Arc::<ManualClock>::default();
        let node = node(None, Arc::clone(&clock), &Arc::default());
        let (_sender, queue) = mpsc::unbounded_channel();
        let connector = connector(Password::None);
        let mut worker = NodeWorker::new(node, queue, connector, "replica".into(), true);
        let live = live().await;
        let recovers = |worker: &mut NodeWorker| {
            worker.probe_ended(Ok(ProbeReport {
                connection: worker.connection,
                probe: true,
                result: Ok(live.clone()),
            }));
        };
        recovers(&mut worker);
        assert_eq!(lines(), (0, 1));
        for failures in 1..=2 {
            worker.failed(StoreFault::ReadOnly, None);
            recovers(&mut worker);
            assert_eq!(lines(), (failures, failures + 1));
            for _ in 0..9 {
                clock.advance_us(1_000_000);
                worker.failed(StoreFault::ReadOnly, None);
                recovers(&mut worker);
            }
            assert_eq!(lines(), (failures, failures + 1));
            clock.advance_us(1_000_000);
        }
    }
}
