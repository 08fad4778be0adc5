//! Follows every replica: its stream of states, a poll of `/top`, and requests on demand.
//!
//! Names are resolved again every few seconds, so that a replica that joins a headless Service
//! appears. A connection that ends is opened again with backoff.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::detail::DecisionsQuery;
use super::model::{Effect, Message, TopQuery};
use crate::admin_api::{DecisionRecord, Decisions, ResetResponse, ShadowResponse, Top};
use crate::admin_client::{Access, AdminError, AdminUrl, Event, Replica};
use crate::cli::tools::admin::{self, Followed, ask_each, with_filters};

/// The path of the stream. Decisions are read on demand.
const EVENTS: &str = "/events?decisions_per_second_max=0";

/// Longest silence of a stream, which has a state every second.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Pause between two resolutions of the names.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);

/// Pause between two polls of `/top`.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// Decisions in a detail.
const DECISIONS_MAX: usize = 20;

/// The tasks that follow replicas. They end when this is dropped.
pub(super) struct Feed {
    messages: mpsc::Sender<Message>,
    replicas: watch::Receiver<Vec<Replica>>,
    poll: watch::Sender<Option<TopQuery>>,
    tasks: JoinSet<()>,
}

// === impl Feed ===

impl Feed {
    pub(super) fn start(
        urls: Vec<AdminUrl>,
        access: Access,
        messages: mpsc::Sender<Message>,
        query: Option<TopQuery>,
    ) -> Self {
        let (known, replicas) = watch::channel(Vec::new());
        let (poll, polled) = watch::channel(query);
        let mut tasks = JoinSet::new();
        tasks.spawn(discover(urls, access, messages.clone(), known));
        tasks.spawn(poll_top(polled, replicas.clone(), messages.clone()));
        Self {
            messages,
            replicas,
            poll,
            tasks,
        }
    }

    /// Starts what a key press asks for. The answer is a message.
    pub(super) fn perform(&mut self, effect: Effect) {
        while self.tasks.try_join_next().is_some() {}
        let replicas = self.replicas.borrow().clone();
        let messages = self.messages.clone();
        match effect {
            Effect::Quit => {}
            Effect::Poll(query) => {
                self.poll.send_replace(query);
            }
            Effect::Decisions(query) => {
                self.tasks.spawn(read_decisions(replicas, query, messages));
            }
            Effect::Reset(request) => {
                let ask = move |replica: Replica| replica.post("/reset", request.clone());
                let asked = ask_each::<ResetResponse, _>(replicas, ask);
                let done = async move { send(&messages, report("reset", asked.await)).await };
                self.tasks.spawn(done);
            }
            Effect::Shadow(request) => {
                let ask = move |replica: Replica| replica.post("/shadow", request.clone());
                let asked = ask_each::<ShadowResponse, _>(replicas, ask);
                let done = async move { send(&messages, report("shadow", asked.await)).await };
                self.tasks.spawn(done);
            }
        }
    }
}

/// Resolves the names again and again, and follows each replica that they name.
async fn discover(
    urls: Vec<AdminUrl>,
    access: Access,
    messages: mpsc::Sender<Message>,
    known: watch::Sender<Vec<Replica>>,
) {
    let mut tasks = JoinSet::new();
    let mut followed: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let mut unresolved: Vec<String> = Vec::new();
    loop {
        let (replicas, failures) = admin::resolve(&urls, &access).await;
        for replica in &replicas {
            let name = replica.name.clone();
            if let Entry::Vacant(entry) = followed.entry(name) {
                send(&messages, Message::Found(entry.key().clone())).await;
                entry.insert(tasks.spawn(follow(replica.clone(), messages.clone())));
            }
        }
        for name in unresolved.drain(..) {
            if !failures.iter().any(|(url, _)| *url == name) {
                send(&messages, Message::Gone(name)).await;
            }
        }
        // While a name does not resolve, its replicas stay.
        if failures.is_empty() {
            let is_known = |name: &String| replicas.iter().any(|it| it.name == *name);
            let gone: Vec<_> = followed
                .keys()
                .filter(|name| !is_known(name))
                .cloned()
                .collect();
            for name in gone {
                if let Some(task) = followed.remove(&name) {
                    task.abort();
                }
                send(&messages, Message::Gone(name)).await;
            }
            known.send_replace(replicas);
        } else if !replicas.is_empty() {
            known.send_replace(replicas);
        }
        for (url, error) in failures {
            unresolved.push(url.clone());
            send(&messages, Message::Lost(url, error)).await;
        }
        tokio::time::sleep(RESOLVE_EVERY).await;
    }
}

/// Sends every state of one replica.
async fn follow(replica: Replica, messages: mpsc::Sender<Message>) {
    let name = replica.name.clone();
    let events = EVENTS.to_owned();
    admin::follow(replica, events, SILENCE_MAX, messages, |news| match news {
        Followed::Event(Event::History(history)) => {
            Some(Message::History(name.clone(), history.samples))
        }
        Followed::Event(Event::State(state)) => Some(Message::State(name.clone(), state)),
        Followed::Lost(error) => Some(Message::Lost(name.clone(), error.to_string())),
        Followed::Connected | Followed::Event(_) => None,
    })
    .await;
}

/// Polls `/top` of every replica while there is a query.
async fn poll_top(
    mut query: watch::Receiver<Option<TopQuery>>,
    replicas: watch::Receiver<Vec<Replica>>,
    messages: mpsc::Sender<Message>,
) {
    loop {
        let current = query.borrow_and_update().clone();
        if let Some(current) = current {
            let known = replicas.borrow().clone();
            let asked = ask_each::<Top, _>(known, |replica| replica.get(current.path()));
            let answers = asked.await.into_iter();
            let answers = answers.filter_map(|(name, top)| Some((name, top.ok()?)));
            send(&messages, Message::Top(current, answers.collect())).await;
        }
        tokio::select! {
            changed = query.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
    }
}

async fn read_decisions(
    replicas: Vec<Replica>,
    query: DecisionsQuery,
    messages: mpsc::Sender<Message>,
) {
    let filters = [
        ("domain", Some(query.domain.as_str())),
        ("rule", Some(query.rule.as_str())),
        ("key", query.key.as_deref()),
    ];
    let path = with_filters(format!("/decisions?n={DECISIONS_MAX}"), filters);
    let asked = ask_each::<Decisions, _>(replicas, |replica| replica.get(path.clone()));
    let mut found: Vec<DecisionRecord> = Vec::new();
    let mut errors = Vec::new();
    for (name, answer) in asked.await {
        match answer {
            Ok(answer) => found.extend(answer.decisions),
            Err(error) => errors.push(format!("{name}: {error}")),
        }
    }
    found.sort_by(|one, other| other.at.cmp(&one.at));
    found.truncate(DECISIONS_MAX);
    send(&messages, Message::Decisions(query, found, errors)).await;
}

/// What an action did on all replicas.
fn report<T>(action: &str, answers: Vec<(String, Result<T, AdminError>)>) -> Message {
    let all = answers.len();
    let done = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
    let mut words = format!("{action}: done on {done} of {all} replicas");
    let mut failures = answers.into_iter();
    let failure = failures.find_map(|(name, answer)| Some((name, answer.err()?)));
    if let Some((name, error)) = failure {
        words.extend(["; ", &name, ": ", &error.to_string()]);
    }
    Message::Report(words)
}

/// Sends a message. Without a receiver the program ends, and this task with it.
async fn send(messages: &mpsc::Sender<Message>, message: Message) {
    let _ = messages.send(message).await;
}
