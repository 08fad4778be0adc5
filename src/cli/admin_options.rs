//! Options of the commands that use the admin listener: addresses, token, TLS, timeout. A request
//! goes to every replica at once; an error of one does not stop the others.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::task::JoinSet;

use super::Exit;
use super::tls_options::TlsOptions;
use crate::admin_client::{
    self, ADMIN_URL_DEFAULT, Access, AdminError, AdminUrl, REPLICAS_MAX, Replica,
};
use crate::settings::nonzero_duration;

/// Addresses and credentials of admin listeners.
#[derive(Args, Debug)]
#[command(next_help_heading = "Admin listener")]
pub(super) struct AdminOptions {
    /// URL of an admin listener; repeat it, or separate URLs by commas
    ///
    /// A host name stands for every address that it resolves to, so the name of a headless Service
    /// is all its replicas. Without a scheme the URL is http, and without a port the port is 6070.
    #[arg(long = "admin", value_name = "URL", default_value = ADMIN_URL_DEFAULT, value_delimiter = ',')]
    urls: Vec<AdminUrl>,

    /// File with the bearer token of the admin listener
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<PathBuf>,

    /// Longest wait for an answer, connection included
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = nonzero_duration)]
    timeout: Duration,

    #[command(flatten)]
    tls: TlsOptions,
}

/// A replica or a URL without an answer.
#[derive(Debug)]
pub(super) struct Failure {
    /// The URL, or the name of the replica.
    pub(super) admin: String,
    pub(super) error: AdminError,
}

/// The answers of all replicas.
#[derive(Debug)]
pub(super) struct Outcomes<T> {
    /// Names of replicas and their answers, in the order of `--admin`.
    pub(super) answers: Vec<(String, T)>,
    pub(super) failures: Vec<Failure>,
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
        if let Some(url) = self.urls.iter().find(|url| !url.is_https())
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
    ///
    /// # Errors
    ///
    /// When options contradict each other.
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
        let mut asking = JoinSet::new();
        for (number, replica) in replicas.into_iter().enumerate() {
            let name = replica.name().to_owned();
            let answer = ask(replica);
            asking.spawn(async move { (number, name, answer.await) });
        }
        let mut found = asking.join_all().await;
        found.sort_by_key(|(number, ..)| *number);
        let mut outcomes = Outcomes {
            answers: Vec::new(),
            failures,
        };
        for (_, admin, answer) in found {
            match answer {
                Ok(answer) => outcomes.answers.push((admin, answer)),
                Err(error) => outcomes.failures.push(Failure { admin, error }),
            }
        }
        Ok(outcomes)
    }
}

/// Every replica of every URL, without duplicates, and the URLs that do not resolve.
pub(super) async fn resolve(urls: &[AdminUrl], access: &Access) -> (Vec<Replica>, Vec<Failure>) {
    let mut replicas: Vec<Replica> = Vec::new();
    let mut failures = Vec::new();
    for url in urls {
        let timeout = access.timeout;
        let resolving = url.replicas(access, admin_client::lookup);
        let found = tokio::time::timeout(timeout, resolving).await;
        match found.unwrap_or(Err(AdminError::Deadline {
            missing: "address of the host",
            timeout,
        })) {
            Ok(found) => {
                for replica in found {
                    let mut known = replicas.iter();
                    let is_known = known.any(|it| it.addresses() == replica.addresses());
                    if !is_known && replicas.len() < REPLICAS_MAX {
                        replicas.push(replica);
                    }
                }
            }
            Err(error) => failures.push(Failure {
                admin: url.to_string(),
                error,
            }),
        }
    }
    (replicas, failures)
}

// === impl Outcomes ===

impl<T> Outcomes<T> {
    /// The exit code.
    pub(super) fn exit(&self) -> Exit {
        match (self.answers.is_empty(), self.failures.is_empty()) {
            (_, true) => Exit::Success,
            (true, false) => Exit::NoAnswer,
            (false, false) => Exit::Partial,
        }
    }

    /// Prints every failure to stderr.
    pub(super) fn report_failures(&self) -> Exit {
        for Failure { admin, error } in &self.failures {
            eprintln!("error: {admin}: {error}");
        }
        self.exit()
    }
}
