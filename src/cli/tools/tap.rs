//! `tollgate tap`: decisions of running services as they happen, one line each.
//!
//! Each replica sends at most N decisions a second, and this command prints at most N in any second
//! of all replicas. Both count what they leave out.
//!
//! What it deliberately does not do: read past decisions (`decisions`), or every decision. Use
//! `--decision-log` of the service for a record.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::sync::mpsc;

use super::admin::{
    self, AdminOptions, DecisionFilters, Followed, descriptor_text, time_of_day, with_filters,
};
use crate::admin_api::{DecisionRecord, DescriptorRecord, Verdict};
use crate::admin_client::{Event, Replica};
use crate::cli::Exit;
use crate::cli::output::{self, counted};
use crate::clock::{Clock, SystemClock};
use crate::decisions::CandidateFilter;
use crate::settings::decisions::choice;
use crate::visible_text::visible;

/// The end of `tap --help`.
const AFTER_HELP: &str = "\
A line has the time (UTC), the verdict, its reason, the domain, and for each descriptor its entries,
its rule and the hits left. Decisions that are left out are counted on stderr, or in a line of JSON.

Exit codes:
  0  ended by --count, Ctrl-C or a closed stdout
  2  the command line is invalid
  4  no replica can be reached at the start";

/// Longest silence of a stream. The service sends at least a comment in this time.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Decisions that wait to be printed.
const QUEUE_MAX: usize = 1_024;

/// A second, in microseconds.
const SECOND_US: u64 = 1_000_000;

/// Arguments of `tap`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Tap {
    #[command(flatten)]
    filters: DecisionFilters,

    /// Only decisions with this verdict
    #[arg(long, value_parser = choice(VERDICTS))]
    verdict: Option<Verdict>,

    /// Which decisions of a candidate: rules that are tried and not enforced (--candidate)
    #[arg(long, value_name = "WHICH", default_value = "differing", value_parser = choice(CANDIDATES))]
    candidates: CandidateFilter,

    /// Most decisions that are printed in any second
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    per_second_max: u32,

    /// End after N decisions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Format of the lines
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    #[command(flatten)]
    admin: AdminOptions,
}

/// Verdicts as typed.
const VERDICTS: [(&str, Verdict, &str); 3] = [
    ("ok", Verdict::Ok, "The request passed"),
    (
        "over_limit",
        Verdict::OverLimit,
        "The request was over a limit",
    ),
    (
        "error",
        Verdict::Error,
        "The service answered with an error",
    ),
];

/// Which decisions of a candidate, as typed.
const CANDIDATES: [(&str, CandidateFilter, &str); 4] = [
    (
        "differing",
        CandidateFilter::Differing,
        "Those that differ from the answer",
    ),
    ("all", CandidateFilter::All, "All of them"),
    ("only", CandidateFilter::Only, "All of them, and no answers"),
    ("none", CandidateFilter::None, "None of them"),
];

/// A format of output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// A replica, and news of it.
type Message = (String, Followed);

/// What is printed, and what is left out.
#[derive(Default)]
struct Printer {
    format: Format,
    names_shown: bool,
    per_second_max: usize,
    /// When the last lines were printed, oldest first; at most one second back.
    printed: VecDeque<u64>,
    /// Left out by this command since the last report.
    left_out: u64,
    reported_us: u64,
    skipped_total: u64,
    printed_total: u64,
}

// === impl Tap ===

impl Tap {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        admin::block_on(async {
            tokio::select! {
                exit = self.print_decisions() => exit,
                signal = tokio::signal::ctrl_c() => {
                    signal.context("cannot wait for signals")?;
                    Ok(Exit::Success)
                }
            }
        })
    }

    async fn print_decisions(&self) -> anyhow::Result<Exit> {
        let (urls, access) = self.admin.targets()?;
        let (replicas, failures) = admin::resolve(&urls, &access).await;
        for (url, error) in &failures {
            eprintln!("error: {url}: {error}");
        }
        let (sender, mut messages) = mpsc::channel(QUEUE_MAX);
        let mut waiting = replicas.len();
        let clock = SystemClock::new();
        let per_second_max = usize::try_from(self.per_second_max).unwrap_or(usize::MAX);
        let mut printer = Printer {
            format: self.format,
            names_shown: replicas.len() > 1,
            per_second_max,
            ..Printer::default()
        };
        for replica in replicas {
            tokio::spawn(follow(replica, self.path(), sender.clone()));
        }
        drop(sender);
        let mut connected = false;
        while let Some((name, news)) = messages.recv().await {
            match news {
                Followed::Connected => connected = true,
                Followed::Lost(error) => {
                    eprintln!("error: {name}: {error}");
                    waiting = waiting.saturating_sub(1);
                    if !connected && waiting == 0 {
                        return Ok(Exit::NoAnswer);
                    }
                    eprintln!("{name}: trying again");
                }
                Followed::Event(Event::Decision(decision)) => {
                    printer.print(&name, &decision, clock.uptime_us());
                    if printer.printed_total >= self.count.unwrap_or(u64::MAX) {
                        return Ok(Exit::Success);
                    }
                }
                Followed::Event(Event::Skipped(skipped)) => {
                    printer.report_skipped(Some(&name), skipped.skipped);
                }
                Followed::Event(Event::History(_) | Event::State(_)) => {}
            }
            if output::is_lost() {
                return Ok(Exit::Success);
            }
        }
        Ok(Exit::NoAnswer)
    }

    /// The path of the events with the filters.
    fn path(&self) -> String {
        let per_second_max = self.per_second_max;
        let path = format!("/events?state=false&decisions_per_second_max={per_second_max}");
        let verdict = self.verdict.map(Verdict::name);
        let candidates = match self.candidates {
            // An older service does not know the parameter.
            CandidateFilter::Differing => None,
            other => Some(other.name()),
        };
        let filters = [("verdict", verdict), ("candidates", candidates)];
        with_filters(self.filters.add_to(path), filters)
    }
}

/// Sends the news of one replica.
async fn follow(replica: Replica, path: String, messages: mpsc::Sender<Message>) {
    let name = replica.name.clone();
    let mut is_lost = false;
    admin::follow(replica, path, SILENCE_MAX, messages, |news| {
        let was_lost = std::mem::replace(&mut is_lost, matches!(news, Followed::Lost(_)));
        // Once for each outage, and not for each attempt.
        let is_news = !(was_lost && is_lost);
        is_news.then(|| (name.clone(), news))
    })
    .await;
}

// === impl Printer ===

impl Printer {
    fn print(&mut self, replica: &str, decision: &DecisionRecord, now_us: u64) {
        let is_past = |at: &u64| now_us.saturating_sub(*at) >= SECOND_US;
        while self.printed.front().is_some_and(is_past) {
            self.printed.pop_front();
        }
        if self.printed.len() >= self.per_second_max {
            self.left_out += 1;
        } else {
            self.printed.push_back(now_us);
            self.printed_total += 1;
            let line = match self.format {
                Format::Text => text_line(self.names_shown.then_some(replica), decision),
                Format::Json => json_line(replica, decision),
            };
            print_line!("{line}");
        }
        if self.left_out > 0 && now_us.saturating_sub(self.reported_us) >= SECOND_US {
            self.reported_us = now_us;
            let left_out = std::mem::take(&mut self.left_out);
            self.report_skipped(None, left_out);
        }
    }

    /// Says how many decisions were left out, by a replica or by this command.
    fn report_skipped(&mut self, replica: Option<&str>, skipped: u64) {
        self.skipped_total = self.skipped_total.saturating_add(skipped);
        match self.format {
            Format::Json => print_line!("{}", json!({"admin": replica, "skipped": skipped})),
            Format::Text => eprintln!(
                "skipped {}, {} so far; raise --per-second-max, or filter",
                counted(skipped, "decision"),
                self.skipped_total
            ),
        }
    }
}

/// A decision as a line of text.
fn text_line(replica: Option<&str>, decision: &DecisionRecord) -> String {
    let verdict = format!("{:<10}", decision.verdict.name());
    let mut line = format!(
        "{} {} {} {}",
        time_of_day(&decision.at),
        output::painted(verdict, decision.verdict == Verdict::Ok),
        decision.reason.name(),
        visible(&decision.domain),
    );
    if let Some(live) = decision.live_verdict {
        line.extend([" candidate, answer=", live.name()]);
    }
    let several = decision.descriptors.len() > 1;
    for descriptor in &decision.descriptors {
        line.push_str(if several { "; " } else { " " });
        line.push_str(&descriptor_part(descriptor, several));
    }
    if let Some(error) = &decision.error {
        line.extend([": ", &visible(error)]);
    }
    if let Some(replica) = replica {
        line.extend([" from ", replica]);
    }
    line
}

/// A descriptor, its rule and what is left. With several descriptors, each has its own verdict.
fn descriptor_part(descriptor: &DescriptorRecord, with_verdict: bool) -> String {
    let mut part = descriptor_text(&descriptor.entries);
    match (with_verdict, descriptor.verdict) {
        (true, Some(verdict)) => part.extend([" ", verdict.name()]),
        (true, None) => part.extend([" ", descriptor.reason.name()]),
        (false, _) => {}
    }
    let rule = descriptor
        .rule
        .as_deref()
        .map_or("none".to_owned(), visible);
    part.extend([" rule=", &rule]);
    if descriptor.overridden {
        part.push_str(" overridden");
    }
    if descriptor.is_peek() {
        part.push_str(" peek");
    }
    if let Some(reservation) = &descriptor.reservation {
        part.extend([" ", &visible(&reservation.to_string())]);
    }
    if let Some(remaining) = descriptor.remaining {
        part.extend([" remaining=", &remaining.to_string()]);
    }
    if let Some(limit) = &descriptor.limit {
        part.extend([" limit=\"", &visible(&limit.text), "\""]);
    }
    part
}

/// A decision as a line of JSON: the record, and the replica as `admin`.
fn json_line(replica: &str, decision: &DecisionRecord) -> String {
    let mut value = serde_json::to_value(decision).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("admin".to_owned(), replica.into());
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin_api::{Entry, Reason, ReservationRecord};

    fn decision() -> DecisionRecord {
        DecisionRecord {
            candidate: false,
            live_verdict: None,
            descriptors_omitted: 0,
            at: "2026-11-22T20:01:02.003Z".to_owned(),
            domain: "edge".to_owned(),
            verdict: Verdict::OverLimit,
            reason: Reason::OverLimit,
            error: None,
            took_us: 3,
            generation: Some(1),
            descriptors: vec![DescriptorRecord {
                entries: vec![Entry {
                    key: "user".to_owned(),
                    value: "\u{1b}[2J".to_owned(),
                }],
                verdict: Some(Verdict::OverLimit),
                reason: Reason::OverLimit,
                rule: Some("edge.user".to_owned()),
                overridden: false,
                limit: None,
                hits: 1,
                reservation: None,
                remaining: Some(0),
                reset_seconds: Some(7),
            }],
        }
    }

    #[test]
    fn a_line_has_every_field_and_no_control_character() {
        assert_eq!(
            text_line(None, &decision()),
            "20:01:02.003Z OVER_LIMIT over_limit edge user=\\u{1b}[2J rule=edge.user remaining=0"
        );
        let mut two = decision();
        let mut second = two.descriptors[0].clone();
        second.entries[0].value = "b".to_owned();
        second.verdict = Some(Verdict::Ok);
        second.overridden = true;
        two.descriptors.push(second);
        let line = text_line(Some("http://a:1"), &two);
        assert!(
            line.contains("; user=b OK rule=edge.user overridden remaining=0 from http://a:1"),
            "{line}"
        );
    }

    #[test]
    fn a_line_says_what_became_of_a_reservation() {
        let mut commit = decision();
        commit.descriptors[0].reservation = Some(ReservationRecord {
            operation: "commit".to_owned(),
            result: Some("committed".to_owned()),
            reserved: Some(800),
            committed: Some(500),
            returned: Some(300),
        });
        let line = text_line(None, &commit);
        let expected = "rule=edge.user operation=commit result=committed reserved=800 \
                        committed=500 returned=300 remaining=0";
        assert!(line.ends_with(expected), "{line}");
    }

    #[test]
    fn a_look_without_hits_is_a_peek() {
        let mut peek = decision();
        peek.descriptors[0].hits = 0;
        let line = text_line(None, &peek);
        assert!(line.ends_with("rule=edge.user peek remaining=0"), "{line}");
    }

    #[test]
    fn a_candidate_s_decision_says_so_and_has_the_answer() {
        let candidate = DecisionRecord {
            candidate: true,
            live_verdict: Some(Verdict::Ok),
            ..decision()
        };
        assert!(
            text_line(None, &candidate)
                .starts_with("20:01:02.003Z OVER_LIMIT over_limit edge candidate, answer=OK user="),
            "{}",
            text_line(None, &candidate)
        );
        let json: serde_json::Value = serde_json::from_str(&json_line("a", &candidate)).unwrap();
        assert_eq!(
            (&json["candidate"], &json["live_verdict"]),
            (&json!(true), &json!("OK"))
        );
        let answer = json_line("a", &decision());
        assert!(!answer.contains("candidate") && !answer.contains("live_verdict"));
    }

    #[test]
    fn no_second_has_more_lines_than_the_bound() {
        let mut printer = Printer {
            format: Format::Json,
            per_second_max: 2,
            ..Printer::default()
        };
        for at in [0, 900_000, 999_999, 1_000_000, 1_800_000, 1_900_000] {
            printer.print("a", &decision(), at);
        }
        // At 0, 0.9, 1.0 and 1.9 s.
        assert_eq!(printer.printed_total, 4);
        assert_eq!(printer.skipped_total + printer.left_out, 2);
    }
}
