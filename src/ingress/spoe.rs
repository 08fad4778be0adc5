//! The agent for HAProxy's SPOE: a message of HAProxy is one check.
//!
//! The name of the message is the domain, and its arguments are the entries of one descriptor. The
//! answer sets variables of the transaction: `allowed`, `limit`, `remaining`, `reset` and
//! `retry_after`. Checks of one connection are decided side by side (pipelining).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::spoe_frame::{
    Disconnect, FRAME_BYTES_MAX, Frame, NORMAL, Notify, ack, agent_disconnect, agent_hello,
    frame_length, read,
};
use super::{Checked, Checks};
use crate::net::{Connection, ShutdownSignal};

/// Room for one read: some hundred messages, so that those that are sent together are decided side
/// by side.
const READ_BYTES: usize = 8 << 10;

/// Most checks of a connection in progress; then it is not read. The messages of the last read come
/// on top of them.
const CONNECTION_CHECKS_MAX: usize = 1_024;

/// How long HAProxy may take to read answers.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

/// One connection.
struct Agent {
    checks: Arc<Checks>,
    connection: Connection,
    /// Bytes that are no whole frame yet.
    input: Vec<u8>,
    output: Vec<u8>,
    /// The encoded answers.
    in_progress: JoinSet<Vec<u8>>,
    /// The largest frame, once both sides have greeted.
    bytes_max: Option<usize>,
}

/// Serves one connection.
pub(super) async fn serve(
    checks: Arc<Checks>,
    connection: Connection,
    mut stopping: ShutdownSignal,
) {
    let mut agent = Agent {
        checks,
        connection,
        input: Vec::new(),
        output: Vec::new(),
        in_progress: JoinSet::new(),
        bytes_max: None,
    };
    let closed = loop {
        let Agent {
            connection,
            in_progress,
            input,
            ..
        } = &mut agent;
        input.reserve(READ_BYTES);
        tokio::select! {
            () = stopping.wait() => break Some(NORMAL),
            Some(Ok(answer)) = in_progress.join_next() => {
                agent.output.extend(answer);
                // Checks that came together end together: after their tasks, one write has all.
                tokio::task::yield_now().await;
                while let Some(Ok(answer)) = agent.in_progress.try_join_next() {
                    agent.output.extend(answer);
                }
            }
            received = connection.read_buf(input),
                if in_progress.len() < CONNECTION_CHECKS_MAX => {
                if !matches!(received, Ok(1..)) {
                    break None;
                }
                if let Err(closed) = agent.take_frames() {
                    break Some(closed);
                }
            }
        }
        if !agent.flush().await {
            break None;
        }
    };
    let Some(closed) = closed else {
        return;
    };
    if closed != NORMAL {
        agent.checks.invalid.inc();
        tracing::debug!(reason = closed.1, "a connection of HAProxy is closed");
    }
    while let Some(Ok(answer)) = agent.in_progress.join_next().await {
        agent.output.extend(answer);
    }
    agent.output.extend(agent_disconnect(closed));
    agent.flush().await;
}

// === impl Agent ===

impl Agent {
    /// Writes what there is. False if HAProxy has gone or does not read.
    async fn flush(&mut self) -> bool {
        if self.output.is_empty() {
            return true;
        }
        let written = timeout(WRITE_WAIT_MAX, self.connection.write_all(&self.output)).await;
        self.output.clear();
        matches!(written, Ok(Ok(())))
    }

    /// Handles the whole frames that have come.
    fn take_frames(&mut self) -> Result<(), Disconnect> {
        let mut input = std::mem::take(&mut self.input);
        let mut rest = &*input;
        while let Some(length) = frame_length(rest)?
            && let Some((frame, after)) = rest.split_at_checked(length)
        {
            self.take_frame(frame.get(4..).unwrap_or_default())?;
            rest = after;
        }
        let used = input.len().saturating_sub(rest.len());
        input.drain(..used);
        self.input = input;
        Ok(())
    }

    fn take_frame(&mut self, frame: &[u8]) -> Result<(), Disconnect> {
        let invalid = Disconnect(4, "invalid frame received");
        match (read(frame)?, self.bytes_max) {
            (
                Frame::Hello {
                    bytes_max,
                    is_healthcheck,
                },
                None,
            ) => {
                self.bytes_max = Some(bytes_max.min(FRAME_BYTES_MAX));
                self.output.extend(agent_hello(bytes_max));
                if is_healthcheck { Err(NORMAL) } else { Ok(()) }
            }
            (Frame::Disconnect, _) => Err(NORMAL),
            (Frame::Notify(notify), Some(bytes_max)) if frame.len() <= bytes_max => {
                self.notify(&notify);
                Ok(())
            }
            _ => Err(invalid),
        }
    }

    /// Begins the check of a message.
    fn notify(&mut self, notify: &Notify<'_>) {
        let id = notify.id;
        let [(domain, arguments)] = &*notify.messages else {
            self.checks.invalid.inc();
            self.output.extend(ack(id, None, &[]));
            return;
        };
        let entries = arguments
            .iter()
            .map(|(key, value)| Some((key.to_vec(), value.as_ref()?.to_vec())));
        let entries: Option<Vec<_>> = entries.collect();
        let Some(entries) = entries.filter(|entries| !entries.is_empty()) else {
            // HAProxy had no value of an entry.
            self.checks.allowed.inc();
            self.output.extend(ack(id, Some(true), &[]));
            return;
        };
        let (checks, domain) = (Arc::clone(&self.checks), domain.to_vec());
        self.in_progress.spawn_local(async move {
            let entries = entries.iter().map(|(key, value)| (&**key, &**value));
            match checks.check(&domain, entries, 1, None).await {
                Ok(checked) => {
                    let allowed = Some(checked.allowed);
                    ack(id, allowed, &variables(&checked))
                }
                Err(error) => {
                    tracing::debug!(%error, "a message of HAProxy has no decision");
                    ack(id, None, &[])
                }
            }
        });
    }
}

/// The variables of a check that have a value.
fn variables(checked: &Checked) -> Vec<(&'static str, i64)> {
    let all = [
        ("limit", checked.limit),
        ("remaining", checked.remaining),
        ("reset", checked.reset_seconds),
        ("retry_after", checked.retry_seconds),
    ];
    let given = all.into_iter();
    given
        .filter_map(|(name, number)| Some((name, number?)))
        .collect()
}
