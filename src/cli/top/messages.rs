//! Key presses, what they ask for, and news from the replicas.

use super::TopQuery;
use crate::admin_api::{DecisionRecord, ResetRequest, ShadowRequest, StateEvent, Top};

/// A key press.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
}

/// What the program does because of a key press.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Quit,
    /// Poll `/top` with this query, or stop.
    Poll(Option<TopQuery>),
    /// Read the last decisions by these filters.
    Decisions(DecisionsQuery),
    Reset(ResetRequest),
    Shadow(ShadowRequest),
}

/// Filters of `/decisions`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DecisionsQuery {
    pub(super) domain: String,
    pub(super) rule: String,
    /// `KEY=VALUE,KEY=VALUE`, as the service shows them.
    pub(super) key: Option<String>,
}

/// News from the replicas.
#[derive(Debug)]
pub(super) enum Message {
    /// A replica, or a URL that does not resolve, was found.
    Found(String),
    State(String, Box<StateEvent>),
    Lost(String, String),
    /// A replica is no longer behind its name.
    Gone(String),
    /// The answers of a poll.
    Top(TopQuery, Vec<(String, Top)>),
    /// Decisions of all replicas, newest first, and errors.
    Decisions(DecisionsQuery, Vec<DecisionRecord>, Vec<String>),
    /// What an action did.
    Report(String),
}

/// One replica.
#[derive(Debug, Default)]
pub(super) struct ReplicaRow {
    pub(super) state: Option<Box<StateEvent>>,
    pub(super) connection: Connection,
}

/// A connection to a replica.
#[derive(Debug, Default)]
pub(super) enum Connection {
    #[default]
    Connecting,
    Live,
    Lost {
        since_us: u64,
        error: String,
    },
}

// === impl ReplicaRow ===

impl ReplicaRow {
    /// The state, if it is current.
    pub(super) fn current(&self) -> Option<&StateEvent> {
        match self.connection {
            Connection::Live => self.state.as_deref(),
            Connection::Connecting | Connection::Lost { .. } => None,
        }
    }
}
