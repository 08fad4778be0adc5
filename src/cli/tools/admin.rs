//! What the commands that use the admin listener share: options, requests to every replica,
//! queries, and values of the admin API in words.
//!
//! A request goes to every replica at once; an error of one does not stop the others.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::arguments::{DescriptorArgument, TlsOptions, parse_descriptor};
use crate::admin_api::{Entry, LimitFigures};
use crate::admin_client::{
    ADMIN_URL_DEFAULT, Access, AdminError, AdminUrl, Event, EventStream, REPLICAS_MAX, Replica,
};
use crate::cli::Exit;
use crate::settings::nonzero_duration;
use crate::visible_text::visible;

/// Pauses between attempts to connect: they double from the least to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// Addresses and credentials of admin listeners.
#[derive(Args, Debug)]
#[command(next_help_heading = "Admin listener")]
pub(super) struct AdminOptions {
    /// URL of an admin listener; repeat it, or separate URLs by commas
    ///
    /// A host name stands for every address that it resolves to, so the name of a headless Service
    /// is all its replicas. Without a scheme the URL is http, and without a port the port is 6070.
    #[arg(long = "admin", value_name = "URL", default_value = ADMIN_URL_DEFAULT, value_delimiter = ',')]
    pub(super) urls: Vec<AdminUrl>,

    /// File with the bearer token of the admin listener
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_TOKEN_FILE")]
    pub(super) admin_token_file: Option<PathBuf>,

    /// Longest wait for an answer, connection included
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = nonzero_duration)]
    pub(super) timeout: Duration,

    #[command(flatten)]
    pub(super) tls: TlsOptions,
}

/// Filters of decisions.
#[derive(Args, Debug)]
pub(super) struct DecisionFilters {
    /// Only decisions of this domain
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Only decisions by this rule: its full name, as /limits and `tollgate top` show it
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,

    /// Only decisions about a descriptor with these entries, KEY=VALUE,KEY=VALUE
    #[arg(long, value_name = "DESCRIPTOR", value_parser = parse_descriptor)]
    key: Option<DescriptorArgument>,
}

/// News of the events of a replica.
pub(super) enum Followed {
    Connected,
    Event(Event),
    /// The connection failed or ended; it is tried again.
    Lost(AdminError),
}

/// The answers of all replicas.
#[derive(Debug)]
pub(super) struct Outcomes<T> {
    /// Names of replicas and their answers, in the order of `--admin`.
    pub(super) answers: Vec<(String, T)>,
    /// Replicas and URLs without an answer, and why.
    pub(super) failures: Vec<(String, String)>,
}

/// Runs a command on a runtime of one thread.
pub(super) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(command)
}

// === impl AdminOptions ===

impl AdminOptions {
    /// The URLs, and what every request shares.
    ///
    /// # Errors
    ///
    /// When options of TLS are set, and a URL is http.
    pub(super) fn targets(&self) -> anyhow::Result<(Vec<AdminUrl>, Access)> {
        if let Some(url) = self.urls.iter().find(|url| !url.https)
            && self.tls.tls().is_some()
        {
            let https = url.to_string().replacen("http", "https", 1);
            bail!("--tls and --cacert need an https URL; write --admin {https}");
        }
        let access = Access {
            token_file: self.admin_token_file.clone(),
            tls: self.tls.https(),
            timeout: self.timeout,
        };
        Ok((self.urls.clone(), access))
    }

    /// Sends a request to every replica, all at once.
    pub(super) async fn ask_all<T, F>(
        &self,
        ask: impl Fn(Replica) -> F,
    ) -> anyhow::Result<Outcomes<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AdminError>> + Send + 'static,
    {
        let (urls, access) = self.targets()?;
        let (replicas, failures) = resolve(&urls, &access).await;
        let mut outcomes = Outcomes {
            answers: Vec::new(),
            failures,
        };
        for (replica, answer) in ask_each(replicas, ask).await {
            match answer {
                Ok(answer) => outcomes.answers.push((replica, answer)),
                Err(error) => outcomes.failures.push((replica, error.to_string())),
            }
        }
        Ok(outcomes)
    }
}

/// Every replica of every URL, without duplicates, and the URLs that do not resolve, with the
/// reasons.
pub(super) async fn resolve(
    urls: &[AdminUrl],
    access: &Access,
) -> (Vec<Replica>, Vec<(String, String)>) {
    let mut replicas: Vec<Replica> = Vec::new();
    let mut failures = Vec::new();
    for url in urls {
        let timeout = access.timeout;
        let found = tokio::time::timeout(timeout, url.replicas(access)).await;
        let late = || AdminError::deadline("address of the host", timeout);
        match found.unwrap_or_else(|_| Err(late())) {
            Ok(found) => {
                for replica in found {
                    let mut known = replicas.iter();
                    let is_known = known.any(|it| it.addresses == replica.addresses);
                    if !is_known && replicas.len() < REPLICAS_MAX {
                        replicas.push(replica);
                    }
                }
            }
            Err(error) => failures.push((url.to_string(), error.to_string())),
        }
    }
    (replicas, failures)
}

/// Asks every replica at once. The answers are in the order of the replicas.
pub(super) async fn ask_each<T, F>(
    replicas: Vec<Replica>,
    ask: impl Fn(Replica) -> F,
) -> Vec<(String, Result<T, AdminError>)>
where
    T: Send + 'static,
    F: Future<Output = Result<T, AdminError>> + Send + 'static,
{
    let mut asking = JoinSet::new();
    for (number, replica) in replicas.into_iter().enumerate() {
        let name = replica.name.clone();
        let answer = ask(replica);
        asking.spawn(async move { (number, name, answer.await) });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(number, ..)| *number);
    let answers = answers.into_iter().map(|(_, name, answer)| (name, answer));
    answers.collect()
}

/// Follows the events at a path of one replica, and connects again after an end. Ends when nobody
/// receives the messages.
pub(super) async fn follow<M>(
    replica: Replica,
    path: String,
    silence_max: Duration,
    messages: mpsc::Sender<M>,
    mut message: impl FnMut(Followed) -> Option<M>,
) {
    let mut pause = PAUSE_MIN;
    let mut stream: Option<EventStream> = None;
    loop {
        let news = match &mut stream {
            Some(events) => events.next(silence_max).await.map(Followed::Event),
            None => replica.events(&path).await.map(|events| {
                stream = Some(events);
                pause = PAUSE_MIN;
                Followed::Connected
            }),
        };
        let is_lost = news.is_err();
        if let Some(message) = message(news.unwrap_or_else(Followed::Lost))
            && messages.send(message).await.is_err()
        {
            return;
        }
        if is_lost {
            stream = None;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

// === impl Outcomes ===

impl<T> Outcomes<T> {
    /// Prints every failure to stderr, and gives the exit code.
    pub(super) fn report_failures(&self) -> Exit {
        for (admin, error) in &self.failures {
            eprintln!("error: {admin}: {error}");
        }
        match (self.answers.is_empty(), self.failures.is_empty()) {
            (_, true) => Exit::Success,
            (true, false) => Exit::NoAnswer,
            (false, false) => Exit::Partial,
        }
    }
}

// === impl DecisionFilters ===

impl DecisionFilters {
    /// A path with a query, and these filters added to it.
    pub(super) fn add_to(&self, path: String) -> String {
        let filters = [
            ("domain", self.domain.as_deref()),
            ("rule", self.rule.as_deref()),
            ("key", self.key.as_ref().map(|key| key.text.as_str())),
        ];
        with_filters(path, filters)
    }
}

/// A path with a query, and the filters that are set added to it.
pub(super) fn with_filters<'f>(
    mut path: String,
    filters: impl IntoIterator<Item = (&'f str, Option<&'f str>)>,
) -> String {
    for (name, value) in filters {
        if let Some(value) = value {
            path.extend(["&", name, "=", &percent_encoded(value)]);
        }
    }
    path
}

/// The bytes of a value that are escaped: all but letters, digits and `-._~`.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn percent_encoded(value: &str) -> String {
    utf8_percent_encode(value, &ESCAPED).to_string()
}

/// A descriptor as `KEY=VALUE,KEY=VALUE`.
pub(super) fn descriptor_text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "(text not kept)".to_owned();
    }
    let entries = entries.iter().map(|entry| {
        if entry.value.is_empty() {
            visible(&entry.key)
        } else {
            format!("{}={}", visible(&entry.key), visible(&entry.value))
        }
    });
    entries.collect::<Vec<_>>().join(",")
}

/// The time of day of a time in RFC 3339, without its date: `20:01:02.003Z`.
pub(super) fn time_of_day(at: &str) -> String {
    visible(at.split_once('T').map_or(at, |(_, time)| time))
}

/// A time of day without milliseconds: `20:01:02Z`.
pub(super) fn second_of_day(at: &str) -> String {
    let time = time_of_day(at);
    let seconds: String = time.chars().take_while(|c| *c != '.').collect();
    if seconds.ends_with('Z') {
        seconds
    } else {
        seconds + "Z"
    }
}

/// A limit in words.
pub(super) fn limit_words(limit: Option<&LimitFigures>) -> String {
    limit.map_or("unlimited".to_owned(), |limit| visible(&limit.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_of_a_filter_are_escaped() {
        assert_eq!(percent_encoded("a-1._~"), "a-1._~");
        assert_eq!(percent_encoded("k=v, é&#"), "k%3Dv%2C%20%C3%A9%26%23");
    }
}
