//! `tollgate record`: writes the requests of a running service to a file.
//!
//! The service streams what it decides, and this command compresses and writes it. The service
//! opens no file, and never waits for this command.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::admin::{self, AdminOptions, with_filters};
use super::progress::Progress;
use crate::admin_client::{AdminError, ByteStream};
use crate::cli::Exit;
use crate::cli::output::counted;
use crate::proto::tollgate::recording::v1::item::Item as Kind;
use crate::proto::tollgate::recording::v1::{End, Item, PlainKey, Skipped};
use crate::recording::{ReadError, Received, Writer};
use crate::settings::{memory_size, nonzero_duration};
use crate::visible_text::visible;

/// The end of `record --help`.
const AFTER_HELP: &str = "\
The file has the requests with their values: personal data. Its mode is 0600. With --hash, values
are keyed hashes, except those that rules compare.

Ctrl-C ends the recording. What was written until then can be replayed.

Exit codes:
  0  the recording is complete
  1  the file cannot be written
  2  the command line is invalid
  4  the service does not answer, refuses, or was lost; what came before is in the file";

/// How often what came is written.
const BLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a service is silent at most. It sends a watermark every 50 ms.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Arguments of `record`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Record {
    /// File that the recording is written to
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// How long to record
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = nonzero_duration)]
    lasts: Duration,

    /// End after N requests; those of the last 50 ms may be more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End before the file is larger, such as 100MiB
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    size: Option<u64>,

    /// Most requests that are recorded in a second; more are skipped and counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// Record all requests that share a value of the entry KEY, or none
    ///
    /// --sample says of how many values. Limits whose buckets do not contain KEY cannot be judged
    /// by such a recording.
    #[arg(long, value_name = "KEY")]
    sample_by: Option<String>,

    /// Record 1 in N values of --sample-by
    #[arg(long, value_name = "N", requires = "sample_by", default_value_if("sample_by", clap::builder::ArgPredicate::IsPresent, "10"), value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,

    /// Replace values by keyed hashes, except those that rules compare
    #[arg(long)]
    hash: bool,

    /// With --hash, record nothing if rules compare values
    #[arg(long, requires = "hash")]
    hash_refuse_compared: bool,

    /// Overwrite the file
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    admin: AdminOptions,
}

/// Why a recording has ended before its time, and the exit code.
struct Failure(Exit, String);

/// A recording that is written.
struct Session {
    writer: Writer<File>,
    received: Received,
    size_max: u64,
    progress: Progress,
}

// === impl Record ===

impl Record {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        admin::block_on(self.record())
    }

    async fn record(self) -> anyhow::Result<Exit> {
        let (urls, access) = self.admin.targets()?;
        let (replicas, failures) = admin::resolve(&urls, &access).await;
        if let Some((url, error)) = failures.first() {
            eprintln!("error: {url}: {error}");
            return Ok(Exit::NoAnswer);
        }
        let [replica] = &*replicas else {
            let count = replicas.len();
            eprintln!(
                "error: --admin names {count} replicas, and a recording is of one; give the address of one of them"
            );
            return Ok(Exit::Usage);
        };
        let existed = self.out.exists();
        let opened = self.open().and_then(|file| Ok((file.try_clone()?, file)));
        let (copy, file) = match opened {
            Ok(files) => files,
            Err(error) => {
                eprintln!("error: {}: {error}", self.out.display());
                if error.kind() == io::ErrorKind::AlreadyExists {
                    eprintln!("help: choose another name, or overwrite the file with --force");
                }
                return Ok(Exit::Failure);
            }
        };
        let mut session = Session {
            writer: Writer::new(file),
            received: Received::default(),
            size_max: self.size.unwrap_or(u64::MAX),
            progress: Progress::up_to(self.lasts.as_secs(), "seconds"),
        };
        let ended = match replica.post_for_stream(&self.path()).await {
            // An older file stays until the service has answered.
            Ok(stream) => match empty(&copy) {
                Ok(()) => session.run(stream).await,
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        };
        // An `AdminError` does not name the replica.
        let ended = ended.map_err(|Failure(exit, why)| match exit {
            Exit::NoAnswer => Failure(exit, format!("{}: {why}", replica.name)),
            _ => Failure(exit, why),
        });
        let exit = session.report(ended, &self.out.display());
        if session.received.header.is_none() && !existed {
            // Nothing was recorded: an empty file would only be in the way.
            drop(std::fs::remove_file(&self.out));
        }
        Ok(exit)
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        if self.force {
            options.create(true).truncate(false);
        } else {
            options.create_new(true);
        }
        options.open(&self.out)
    }

    /// The path of the request, with its query.
    fn path(&self) -> String {
        let seconds = self.lasts.as_secs().max(1);
        let count = self.count.map(|count| count.to_string());
        let rate = self.rate.map(|rate| rate.to_string());
        let sample = self.sample.map(|sample| sample.to_string());
        let refuse_compared = self.hash_refuse_compared.then_some("true");
        let filters = [
            ("count_max", count.as_deref()),
            ("requests_per_second_max", rate.as_deref()),
            ("sample_by", self.sample_by.as_deref()),
            ("sample", sample.as_deref()),
            ("hash", self.hash.then_some("true")),
            ("hash_refuse_compared", refuse_compared),
        ];
        with_filters(format!("/record?for_seconds={seconds}"), filters)
    }
}

// === impl Session ===

impl Session {
    /// Receives until the end. Why it ended, if it is not the service's end.
    async fn run(&mut self, mut stream: ByteStream) -> Result<Option<&'static str>, Failure> {
        let mut blocks = tokio::time::interval(BLOCK_INTERVAL);
        let mut seconds = 0_u64;
        let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let piece = tokio::select! {
                piece = tokio::time::timeout(SILENCE_MAX, stream.next()) => piece,
                _ = blocks.tick() => {
                    self.progress.set(seconds);
                    seconds += 1;
                    self.writer.end_block()?;
                    if self.writer.bytes() >= self.size_max {
                        return Ok(Some("size"));
                    }
                    continue;
                }
                _ = &mut stop => return Ok(Some("stopped")),
            };
            let silent = || AdminError::deadline("next part of the recording", SILENCE_MAX);
            let Some(piece) = piece.unwrap_or_else(|_| Err(silent()))? else {
                if self.received.ended.is_some() {
                    return Ok(None);
                }
                return Err(AdminError::ended("the service closed it").into());
            };
            let mut written = Ok(());
            let (writer, received) = (&mut self.writer, &mut self.received);
            received.push(&piece, &mut |items| written = writer.write_encoded(items))?;
            written?;
            let requests = self.received.requests;
            self.progress.say(counted(requests, "request"));
        }
    }

    /// Ends the file, and says what became of the recording.
    fn report(
        &mut self,
        ended: Result<Option<&'static str>, Failure>,
        file: &std::path::Display<'_>,
    ) -> Exit {
        self.progress.hide();
        let (exit, reason) = match ended {
            Ok(reason) => (Exit::Success, reason),
            Err(Failure(exit, failure)) => {
                eprintln!("error: {failure}");
                (exit, None)
            }
        };
        let requests = self.received.requests;
        let end = reason.map(|reason| Item {
            item: Some(Kind::End(End {
                reason: reason.to_owned(),
                requests,
            })),
        });
        let written = end.map_or(Ok(()), |end| self.writer.write(&end));
        if let Err(error) = written.and_then(|()| self.writer.end_block())
            && exit != Exit::Failure
        {
            let Failure(exit, failure) = error.into();
            eprintln!("error: {failure}");
            return exit;
        }
        if exit == Exit::Failure {
            let bytes = self.writer.bytes();
            eprintln!(
                "{file}: what is in its {bytes} bytes can be replayed, of {requests} requests that came"
            );
        } else if self.received.header.is_some() {
            self.describe(reason, file);
        }
        exit
    }

    fn describe(&self, reason: Option<&str>, file: &std::path::Display<'_>) {
        let received = &self.received;
        let reason = match reason.or(received.ended.as_deref()) {
            Some("time") => "the time was over",
            Some("count") => "the number of requests was reached",
            Some("size") => "the size of the file was reached",
            Some("drained") => "the service stops",
            Some("compared") => "new rules compare values",
            Some("stopped") => "it was stopped",
            Some(other) => other,
            None => "it is incomplete",
        };
        let (requests, bytes) = (counted(received.requests, "request"), self.writer.bytes());
        eprintln!("{file}: {requests} in {bytes} bytes; {reason}");
        print_skipped(&received.skipped);
        let header = received.header.as_ref();
        if header.is_some_and(|header| header.hashed) {
            let newest = received.rules.as_ref().map(|rules| &rules.plain_keys);
            let plain = newest.or(header.map(|header| &header.plain_keys));
            for key in plain.into_iter().flatten() {
                eprintln!("{}", plain_key(key));
            }
        }
    }
}

/// Empties a file that exists already, and lets only its owner read it. A device is left as it is.
fn empty(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    }
    Ok(())
}

/// Says what the service did not record.
fn print_skipped(skipped: &Skipped) {
    let print = |count: u64, why: &str| {
        if count > 0 {
            eprintln!("not recorded: {count} requests that {why}");
        }
    };
    print(skipped.rate, "exceeded --rate");
    let slow = "were decided faster than this command reads";
    print(skipped.slow_reader, slow);
    let without = "do not have the entry of --sample-by";
    print(skipped.without_entry, without);
    print(skipped.too_long, "were too long");
    let left = "had no caller any more when they were decided";
    print(skipped.caller_left, left);
}

/// What stayed plain.
fn plain_key(key: &PlainKey) -> String {
    let text = |bytes: &[u8]| visible(&String::from_utf8_lossy(bytes));
    let (domain, name) = (text(&key.domain), text(&key.key));
    if key.which == "all" {
        format!("not hashed: all values of {name} in {domain}, because a rule compares them")
    } else {
        format!("not hashed: values of {name} in {domain} that rules name")
    }
}

// === impl Failure ===

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let words = format!("the file cannot be written: {error}; the service is not affected");
        Self(Exit::Failure, format!("the recording ends here: {words}"))
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        Self(Exit::NoAnswer, error.to_string())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let words = format!("the service sent no recording: {error}");
        Self(Exit::NoAnswer, words)
    }
}
