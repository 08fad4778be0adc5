//! The task that speaks to one server.
//!
//! How: what comes in waits in a line; as long as fewer than a few calls are under way, all that waits goes into the next one,
//! up to a bound. So a lone check goes at once and a flood goes in large calls, and nobody waits for a timer. A batch whose
//! time is over before its turn has come is told so, and was not asked.
//!
//! When the server fails the breaker opens: those who ask are refused by [`Lane`], what waits is told why, and the worker
//! probes until the server decides again. A connection that was merely lost is made anew while what waits goes on waiting, as
//! long as its time allows.
//!
//! What goes back has no deadline and is kept while the server is away, up to a bound and for a while; then it is counted as
//! lost. It is sent once: an answer that does not come may have been carried out, and giving back twice would let too many
//! pass.
//!
//! What it deliberately does not do: end while anybody may still ask, whatever the server does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::breaker::Breaker;
use super::call::{Call, Ended, Part};
use super::connect::Connector;
use super::lane::Lane;
use super::probe::{self, BEAT_EVERY_US, Connected, Failed};
use super::script;
use crate::limiter::Check;
use crate::store::mailbox::{Batch, Message, Question};
use crate::store::{Deadline, StoreError, Trouble};

/// How many calls may be under way.
const CALLS_MAX: usize = 4;

/// How many messages are taken in at a time.
const MESSAGES_MAX: usize = 256;

/// How many checks may wait to be given back while the server is away, and for how long.
const GIVE_BACK_CHECKS_MAX: usize = 16_384;
const GIVE_BACK_WAITS_US: u64 = 60_000_000;

/// How often the cache of refused keys is swept.
const SWEEP_EVERY_US: u64 = 1_000_000;

/// One server's worker, ready to run.
pub(super) struct LaneWorker {
    lane: Arc<Lane>,
    mailbox: mpsc::UnboundedReceiver<Message>,
    connector: Arc<Connector>,
    /// By what name this replica counts.
    replica: Arc<str>,
    /// Whether it is the one whose count of replicas is believed.
    counts_replicas: bool,
    breaker: Breaker,
    /// What the log was told last.
    told: Option<Trouble>,
    /// How many checks the metrics were told wait.
    told_waiting: i64,
    /// None while there is no connection, or one is being looked at.
    connected: Option<Connected>,
    /// Which connection it is, counted from 1.
    connection: u64,
    waiting: VecDeque<Part>,
    giving_back: VecDeque<(Vec<Check>, u64)>,
    giving_back_checks: usize,
    calls: JoinSet<Ended>,
    /// A probe, or a sign of life: at most one.
    probing: JoinSet<Looked>,
    beat_at_us: u64,
    sweep_at_us: u64,
}

/// What came of looking at the server.
struct Looked {
    /// On which connection, or 0 for a probe with one of its own.
    connection: u64,
    result: Result<Connected, Failed>,
}

// === impl LaneWorker ===

impl LaneWorker {
    pub(super) fn new(
        lane: Arc<Lane>,
        mailbox: mpsc::UnboundedReceiver<Message>,
        connector: Connector,
        replica: Arc<str>,
        counts_replicas: bool,
    ) -> Self {
        Self {
            lane,
            mailbox,
            connector: Arc::new(connector),
            replica,
            counts_replicas,
            breaker: Breaker::new(),
            told: None,
            told_waiting: 0,
            connected: None,
            connection: 0,
            waiting: VecDeque::new(),
            giving_back: VecDeque::new(),
            giving_back_checks: 0,
            calls: JoinSet::new(),
            probing: JoinSet::new(),
            beat_at_us: 0,
            sweep_at_us: 0,
        }
    }

    /// Speaks to the server until nobody can ask any more.
    pub(super) async fn run(mut self) {
        let mut messages = Vec::with_capacity(MESSAGES_MAX);
        loop {
            self.look_after();
            self.send();
            self.tell();
            let sleeping = tokio::time::sleep(self.until_next());
            tokio::select! {
                biased;
                Some(ended) = self.calls.join_next() => self.call_ended(ended),
                Some(looked) = self.probing.join_next() => self.looked(looked),
                received = self.mailbox.recv_many(&mut messages, MESSAGES_MAX) => {
                    if received == 0 {
                        break;
                    }
                    self.take_in(&mut messages);
                }
                () = sleeping => {}
            }
            self.expire();
        }
        self.finish().await;
    }

    /// The last things: what is under way and what goes back, as long as an answer may take.
    async fn finish(mut self) {
        let within = Duration::from_micros(self.lane.deadline_us.saturating_mul(2));
        let ending = async {
            self.send();
            while let Some(ended) = self.calls.join_next().await {
                self.call_ended(ended);
                self.send();
            }
        };
        // What is not done by then is counted where it lies.
        let _ = tokio::time::timeout(within, ending).await;
    }

    fn now_us(&self) -> u64 {
        self.lane.clock.uptime_us()
    }

    fn take_in(&mut self, messages: &mut Vec<Message>) {
        let now_us = self.now_us();
        for message in messages.drain(..) {
            match message {
                Message::Ask(batch) => {
                    let part = Part {
                        batch,
                        due_us: now_us.saturating_add(self.lane.deadline_us),
                        gives_back: false,
                    };
                    // Whoever sent it may not have seen the breaker open.
                    match self.lane.trouble() {
                        None => self.waiting.push_back(part),
                        Some(trouble) => self.lane.undecided(part, resting(trouble)),
                    }
                }
                Message::GiveBack(checks) => {
                    for check in &checks {
                        self.lane.refused.forget(check.key);
                    }
                    let more = self.giving_back_checks.saturating_add(checks.len());
                    if more > GIVE_BACK_CHECKS_MAX {
                        self.lane
                            .metrics
                            .give_backs_lost
                            .inc_by(checks.len() as u64);
                    } else {
                        self.giving_back_checks = more;
                        let until_us = now_us.saturating_add(GIVE_BACK_WAITS_US);
                        self.giving_back.push_back((checks, until_us));
                    }
                }
            }
        }
    }

    /// Puts what waits into calls, as long as there may be another.
    fn send(&mut self) {
        while self.calls.len() < CALLS_MAX {
            let Some(connected) = &self.connected else {
                return;
            };
            let connection = connected.connection.clone();
            let now_us = self.now_us();
            let mut parts = VecDeque::new();
            let mut checks = 0_usize;
            // What goes back makes room, so it goes first.
            while checks < script::CHECKS_MAX
                && let Some((undoing, _)) = self.giving_back.pop_front()
            {
                let count = undoing.len();
                self.giving_back_checks = self.giving_back_checks.saturating_sub(count);
                checks = checks.saturating_add(count);
                parts.push_back(self.undoing(undoing, now_us));
            }
            while let Some(part) = self.waiting.front() {
                let more = checks.saturating_add(part.batch.checks.len());
                if more > script::CHECKS_MAX && !parts.is_empty() {
                    break;
                }
                let Some(part) = self.waiting.pop_front() else {
                    break;
                };
                if part.batch.is_abandoned() {
                    let count = part.batch.checks.len() as u64;
                    self.lane.shed_caller_gone.inc_by(count);
                    self.lane.send_back(part);
                    continue;
                }
                checks = more;
                parts.push_back(part);
            }
            if parts.is_empty() {
                return;
            }
            let call = Call {
                lane: Arc::clone(&self.lane),
                parts,
                began_us: now_us,
                connection: self.connection,
            };
            self.calls.spawn(call.run(connection));
        }
    }

    /// A batch that undoes, for which nobody waits.
    fn undoing(&self, checks: Vec<Check>, now_us: u64) -> Part {
        let mut batch = Box::<Batch>::default();
        batch.questions.push(Question {
            ticket: 0,
            checks: checks.len(),
            deadline: Deadline::NEVER,
            on_trial: false,
            is_elsewhere: false,
            trial: None,
        });
        // `send_back` gives back the room of every batch, and this one never took any.
        let waiting = &self.lane.levels.waiting;
        waiting.fetch_add(checks.len(), Ordering::AcqRel);
        batch.checks = checks;
        Part {
            batch,
            due_us: now_us.saturating_add(self.lane.deadline_us),
            gives_back: true,
        }
    }

    /// Tells those whose time is over.
    fn expire(&mut self) {
        let now_us = self.now_us();
        while self
            .waiting
            .front()
            .is_some_and(|part| part.due_us <= now_us)
            && let Some(part) = self.waiting.pop_front()
        {
            self.lane.undecided(part, Trouble::Waited);
        }
        let over = |(_, until_us): &(Vec<Check>, u64)| *until_us <= now_us;
        while self.giving_back.front().is_some_and(over)
            && let Some((checks, _)) = self.giving_back.pop_front()
        {
            self.giving_back_checks = self.giving_back_checks.saturating_sub(checks.len());
            self.lane
                .metrics
                .give_backs_lost
                .inc_by(checks.len() as u64);
        }
        if self.sweep_at_us <= now_us {
            self.sweep_at_us = now_us.saturating_add(SWEEP_EVERY_US);
            self.lane.refused.sweep(now_us);
        }
    }

    /// Probes where that is due, or says that this replica is there.
    fn look_after(&mut self) {
        if !self.probing.is_empty() {
            return;
        }
        let now_us = self.now_us();
        let (lane, connector) = (Arc::clone(&self.lane), Arc::clone(&self.connector));
        let replica = Arc::clone(&self.replica);
        match (self.breaker.probe_at_us(), &self.connected) {
            (Some(due_us), _) if due_us <= now_us => {
                self.probing.spawn(async move {
                    Looked {
                        connection: 0,
                        result: probe::probe(lane, connector, replica).await,
                    }
                });
            }
            (None, Some(connected)) if self.beat_at_us <= now_us => {
                self.beat_at_us = now_us.saturating_add(BEAT_EVERY_US);
                let connected = Connected {
                    connection: connected.connection.clone(),
                    password: connected.password.clone(),
                    replicas: connected.replicas,
                };
                let connection = self.connection;
                self.probing.spawn(async move {
                    Looked {
                        connection,
                        result: probe::keep(lane, connector, connected, replica).await,
                    }
                });
            }
            _ => {}
        }
    }

    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        let probe_at_us = self.breaker.probe_at_us();
        let mut next_us = self.sweep_at_us.max(1);
        if self.probing.is_empty() {
            next_us = next_us.min(probe_at_us.unwrap_or(self.beat_at_us));
        }
        if let Some(part) = self.waiting.front() {
            next_us = next_us.min(part.due_us);
        }
        Duration::from_micros(next_us.saturating_sub(self.now_us()))
    }

    fn call_ended(&mut self, ended: Result<Ended, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Its batches went with it; those who asked see that nobody will answer.
                tracing::error!(%error, "this is a defect in tollgate: a call to the store was lost");
                return;
            }
        };
        match ended.trouble {
            None => self.breaker.answered(),
            // A connection that is gone already says nothing of the present one.
            Some(_) if ended.connection != self.connection => {}
            Some(trouble) => self.failed(trouble, ended.words),
        }
    }

    fn failed(&mut self, trouble: Trouble, words: Option<String>) {
        let now_us = self.now_us();
        let words = words.unwrap_or_else(|| "it did not answer in time".to_owned());
        if trouble == Trouble::NotUnderstood {
            tracing::error!(
                store = self.lane.place,
                words,
                "the store's answer was not understood"
            );
        }
        if !self.breaker.failed(trouble, now_us) {
            return;
        }
        self.connected = None;
        self.connection = self.connection.saturating_add(1);
        // What was lost may be had again before anybody's time is over.
        if trouble != Trouble::Lost {
            self.close(trouble, words);
        }
    }

    /// Has everybody know that the server is not asked, and why.
    fn close(&mut self, trouble: Trouble, words: String) {
        if self.lane.close(trouble) {
            self.lane.metrics.breaker_opened.inc();
        }
        if self.told.replace(trouble) != Some(trouble) {
            tracing::warn!(
                store = self.lane.place,
                words,
                "the store is not asked, --on-store-failure applies: {trouble}"
            );
        }
        self.lane.remember(words);
        while let Some(part) = self.waiting.pop_front() {
            self.lane.undecided(part, resting(trouble));
        }
    }

    fn looked(&mut self, looked: Result<Looked, JoinError>) {
        let now_us = self.now_us();
        let looked = looked.unwrap_or_else(|error| Looked {
            connection: 0,
            result: Err(Failed {
                trouble: Trouble::NotConnected,
                words: format!("this is a defect in tollgate: {error}"),
            }),
        });
        let open = self.breaker.open().is_some();
        match looked.result {
            // A sign of life on a connection that has been given up since.
            _ if looked.connection != 0 && looked.connection != self.connection => {}
            Ok(connected) => {
                if self.counts_replicas {
                    let replicas = i64::try_from(connected.replicas).unwrap_or(1);
                    self.lane.metrics.replicas.set(replicas);
                }
                if open {
                    self.connection = self.connection.saturating_add(1);
                    self.breaker.close(now_us);
                    self.beat_at_us = now_us.saturating_add(BEAT_EVERY_US);
                    self.told = None;
                    if self.lane.open() {
                        tracing::info!(store = self.lane.place, "the store decides");
                    }
                }
                self.connected = Some(connected);
            }
            Err(Failed { trouble, words }) if open => {
                let mut part = [0];
                // Without randomness replicas probe in step.
                let _ = getrandom::fill(&mut part);
                self.breaker.probe_failed(trouble, now_us, part[0]);
                self.close(trouble, words);
            }
            Err(Failed { trouble, words }) => self.failed(trouble, Some(words)),
        }
    }

    /// Tells the metrics how long the line is.
    fn tell(&mut self) {
        let waiting = self.lane.levels.waiting.load(Ordering::Relaxed);
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        // Another server's worker adds its own.
        let more = waiting.saturating_sub(self.told_waiting);
        self.told_waiting = waiting;
        self.lane.metrics.waiting_checks.add(more);
    }
}

impl Drop for LaneWorker {
    /// Whoever ends the worker, nobody is left waiting for it, and nothing is lost unseen.
    fn drop(&mut self) {
        self.mailbox.close();
        let mut lost = self.giving_back_checks;
        while let Ok(message) = self.mailbox.try_recv() {
            match message {
                Message::Ask(batch) => self.waiting.push_back(Part {
                    batch,
                    due_us: 0,
                    gives_back: false,
                }),
                Message::GiveBack(checks) => lost = lost.saturating_add(checks.len()),
            }
        }
        self.lane.metrics.give_backs_lost.inc_by(lost as u64);
        while let Some(mut part) = self.waiting.pop_front() {
            part.batch.answer_all(&StoreError::Stopped);
            self.lane.send_back(part);
        }
    }
}

/// What those are told who come while it is not asked: that it was late concerns those who were asked for.
pub(super) fn resting(trouble: Trouble) -> Trouble {
    if trouble.may_have_taken() {
        Trouble::Resting
    } else {
        trouble
    }
}
