//! The laws that hold in every run.
//!
//! | law | meaning |
//! | --- | --- |
//! | `OneGeneration` | all checks that a request sends are those of the rules in use when it began; they are tentative if those rules or the service require it |
//! | `DecidedOnce` | no check is decided twice |
//! | `AllOrNothing` | a take is refunded once when its request was tentative and did not pass, unless its limit counts what other limits deny; no other take is refunded |
//! | `BeforeDeadline` | no check is decided after its deadline, and none is called late before it |
//! | `Recount` | every decision equals that of a naive recount in the order of the decisions |
//! | `Remaining` | at the end, the remaining hits are the limit minus admitted hits and minus denied hits that count |
//! | `FaithfulReplies` | the store's reply for each check is that check's decision; a check reported as undecided took nothing |
//! | `Capacity` | a request is shed when a mailbox is full, and with one partition only then; a partition without memory leaves undecided only checks that need memory |
//! | `Statuses` | the response follows from the checks and the settings: one status per descriptor, in the order of the request; shadow mode never refuses |
//! | `Promise` | the sum of admitted hits never exceeds the algorithm's promise, which starts anew when its bucket is reset |
//! | `Answered` | every caller that did not leave gets an answer |
//! | `Accounted` | at the end no check waits; each sent check was either decided or counted as shed, once; refunds were counted |
//!
//! How: the run reports callers' actions to the judge and passes it the journal after every poll.
//! Laws are judged separately and a violation does not stop a run, so a planted fault shows all the
//! laws that it breaks. `Promise` and `Remaining` do not model buckets: they add up the answers
//! that callers received.
//!
//! What it deliberately does not do: know partitions (which key is where), batches, or when a sweep
//! runs.

mod answer;
mod promise;
mod remaining;
mod resets;

use std::collections::BTreeMap;
use std::fmt;

use tollgate::pipeline::RequestError;
use tollgate::store::memory::WhenFull;
use tollgate::store::{CheckResult, Purpose, StoreError};
use tollgate_limiter::{Check, Hits, Operation, Outcome};
use tollgate_test_support::grpc_client::RateLimitResponse;

use self::answer::expected;
use self::resets::Resets;
use crate::simulation::journal::{Entry, Ticket};
use crate::simulation::recount::{Account, Counted};
use crate::simulation::scenario::{Bucket, Mode, RuleEntry, Rules, Scenario, Terms, Wish};

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Law {
    OneGeneration,
    DecidedOnce,
    AllOrNothing,
    BeforeDeadline,
    Recount,
    Remaining,
    FaithfulReplies,
    Capacity,
    Statuses,
    Promise,
    Answered,
    Accounted,
}

/// A violation of a law, with a description.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) law: Law,
    pub(crate) words: String,
}

/// A reading of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) now_us: u64,
    pub(crate) uptime_us: u64,
}

/// Counts of events in a run, by name. A simulation that never sheds would test nothing about
/// shedding.
#[derive(Clone, Debug)]
pub(crate) struct EventCounts(pub(crate) BTreeMap<&'static str, u64>);

/// The events that are counted, each of which must be frequent in the default seeds.
const COUNTED: [&str; 19] = [
    "passed",
    "refused",
    "errors",
    "refunds by callers",
    "shed",
    "late",
    "table full",
    "left before the decision",
    "left after the decision",
    "answered after a reload",
    "over in shadow mode",
    "refunded because the request was refused",
    "refunded because the caller left",
    "refunded after the end of the window",
    // By limits that count what other limits deny.
    "kept although the request was refused",
    // Checks of shadow rules and of quotas, in tentative requests that passed nevertheless.
    "over in a request that passed",
    "remaining compared",
    "resets",
    "refunds made void by a reset",
];

/// The state of one caller.
struct Caller {
    wishes: Vec<Wish>,
    /// Uptime after which an answer is of no use.
    deadline_us: Option<u64>,
    generation: usize,
    /// Whether it reads buckets at the end of the run.
    reads_at_end: bool,
    /// Whether its request takes all or nothing.
    on_trial: bool,
    checks: Vec<CheckRecord>,
    left: bool,
    /// None until it is answered; a caller without an answer has not passed.
    result: Option<RequestOutcome>,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RequestOutcome {
    Passed,
    Refused,
    /// The caller got an error.
    Failed,
}

/// One check of a caller.
struct CheckRecord {
    wish: Wish,
    terms: Terms,
    /// How many clock readings workers had made when it was sent.
    sent: Option<usize>,
    /// The last decision, if there are several.
    decided: Option<Decided>,
    reply: Option<CheckResult>,
    /// How many times it was refunded.
    refunded_takes: usize,
}

#[derive(Clone, Copy)]
struct Decided {
    /// Its number among all decisions of the run.
    number: usize,
    now_us: u64,
    outcome: Outcome,
}

/// Checks that were sent and may not have reached their workers.
struct Waiting {
    first: Ticket,
    count: usize,
    /// Which workers have run since then.
    workers: Vec<bool>,
}

/// The state of a caller that its checks are judged by.
struct CallerState {
    on_trial: bool,
    deadline_us: Option<u64>,
}

pub(crate) struct Judge<'s> {
    scenario: &'s Scenario,
    generations: Vec<Rules>,
    /// By their numbers, which are in the order of arrival.
    callers: BTreeMap<usize, Caller>,
    accounts: BTreeMap<Bucket, Account>,
    /// The clock's readings by what decides.
    readings: Vec<u64>,
    waiting: Vec<Waiting>,
    decisions: usize,
    resets: Resets,
    at_rest: bool,
    broken: Vec<Violation>,
    /// How many of those were printed.
    broken_reported: usize,
    pub(crate) event_counts: EventCounts,
}

fn find(
    callers: &mut BTreeMap<usize, Caller>,
    ticket: Ticket,
) -> Option<(CallerState, &mut CheckRecord)> {
    let caller = callers.get_mut(&ticket.caller)?;
    let standing = CallerState {
        on_trial: caller.on_trial,
        deadline_us: caller.deadline_us,
    };
    Some((standing, caller.checks.get_mut(ticket.position)?))
}

// === impl Judge ===

impl<'s> Judge<'s> {
    pub(crate) fn new(scenario: &'s Scenario) -> Self {
        Self {
            scenario,
            generations: vec![scenario.rules.clone()],
            callers: BTreeMap::new(),
            accounts: BTreeMap::new(),
            readings: Vec::new(),
            waiting: Vec::new(),
            decisions: 0,
            resets: Resets::default(),
            at_rest: false,
            broken: Vec::new(),
            broken_reported: 0,
            event_counts: EventCounts::default(),
        }
    }

    /// New rules are in use from now on.
    pub(crate) fn reloaded(&mut self, rules: &Rules) {
        self.generations.push(rules.clone());
    }

    /// A caller is polled for the first time.
    pub(crate) fn began(
        &mut self,
        caller: usize,
        wishes: Vec<Wish>,
        timeout_us: Option<u64>,
        now: Now,
    ) {
        let generation = self.generations.len() - 1;
        let rules = &self.generations[generation];
        let mut checks = Vec::new();
        for wish in &wishes {
            if let RuleEntry::Limited(limits) = rules.say(wish) {
                checks.extend(limits.into_iter().map(|terms| CheckRecord {
                    wish: *wish,
                    terms,
                    sent: None,
                    decided: None,
                    reply: None,
                    refunded_takes: 0,
                }));
            }
        }
        let begun = Caller {
            on_trial: rules.all_or_nothing || self.scenario.all_or_nothing,
            checks,
            wishes,
            deadline_us: timeout_us.map(|timeout_us| now.uptime_us + timeout_us),
            generation,
            reads_at_end: self.at_rest,
            left: false,
            result: None,
        };
        self.callers.insert(caller, begun);
    }

    /// A caller leaves, perhaps before its first poll.
    pub(crate) fn left(&mut self, caller: usize) {
        let Some(caller) = self.callers.get_mut(&caller) else {
            return;
        };
        caller.left = true;
        // A request that was refused is refused, also when its caller does not read that.
        let is_ended = caller.checks.iter().all(|check| check.reply.is_some());
        let rules = &self.generations[caller.generation];
        let refused = expected(caller, rules, self.scenario.on_overload);
        let is_refused = refused.is_ok_and(|(code, _)| code != answer::OK);
        caller.result = (is_ended && is_refused).then_some(RequestOutcome::Refused);
        let decided = |check: &CheckRecord| check.decided.is_some();
        if caller.checks.iter().any(decided) {
            self.event_counts.add("left after the decision", 1);
        } else if !caller.checks.is_empty() {
            self.event_counts.add("left before the decision", 1);
        }
    }

    /// A worker ran, or the batcher, which may have decided in its place.
    pub(crate) fn clock_was_read(&mut self, now: Now) {
        if self.readings.last() != Some(&now.now_us) {
            self.readings.push(now.now_us);
        }
    }

    /// A worker has run and read the clock.
    pub(crate) fn worker_ran(&mut self, worker: usize, now: Now) {
        self.clock_was_read(now);
        for waiting in &mut self.waiting {
            waiting.workers[worker] = true;
        }
        self.waiting.retain(|one| one.workers.contains(&false));
    }

    /// Reads the journal of one poll.
    pub(crate) fn read(&mut self, entries: Vec<Entry>, now: Now) {
        for entry in entries {
            match entry {
                Entry::Sent {
                    first,
                    checks,
                    terms,
                } => self.sent(first, &checks, terms),
                Entry::Decided {
                    ticket,
                    ask,
                    outcome,
                } => self.decided(ticket, ask, outcome, now),
                Entry::Replied {
                    first,
                    count,
                    answers,
                } => self.read_reply(first, count, answers, now),
            }
        }
        let waiting: usize = self.waiting.iter().map(|one| one.count).sum();
        let most = self.scenario.bounds.queue_checks_max;
        self.ensure(
            Law::Capacity,
            self.scenario.bounds.partitions > 1 || waiting <= most,
            || format!("{waiting} checks wait; the bound is {most}"),
        );
    }

    fn sent(&mut self, first: Ticket, checks: &[Check], taken: Purpose) {
        self.waiting.push(Waiting {
            first,
            count: checks.len(),
            workers: vec![false; self.scenario.bounds.partitions],
        });
        for (ticket, check) in first.and_after().zip(checks) {
            let caller = self.callers.get_mut(&ticket.caller);
            let readings = self.readings.len();
            let seen = caller.and_then(|caller| {
                let on_trial = caller.on_trial;
                let seen = caller.checks.get_mut(ticket.position)?;
                seen.sent = Some(readings);
                Some((seen.wish, seen.terms, on_trial))
            });
            let holds = seen.is_some_and(|(wish, terms, on_trial)| {
                // Of several limits on one descriptor, only those with slots get the holder.
                let is_held = wish.holder.is_some() && terms.algorithm == "concurrency";
                check.operation.hits == wish.hits
                    && check.operation.holder.is_some() == is_held
                    && (taken == Purpose::DecideTentatively) == on_trial
                    && check.limit.count_refused() == terms.count_refused
                    && check.algorithm.name() == terms.algorithm
                    && check.limit.requests() == u64::from(terms.requests)
                    && check.limit.burst() == u64::from(terms.burst)
                    && check.limit.window().as_us() == terms.window_us()
            });
            self.ensure(Law::OneGeneration, holds, || {
                format!("{ticket:?} sends {check:?}; by its rules it should be {seen:?}")
            });
        }
    }

    fn decided(&mut self, ticket: Ticket, ask: Operation, outcome: Outcome, now: Now) {
        if let Some(number) = ticket.reset() {
            return self.was_reset(number, outcome, now);
        }
        let Some((CallerState { deadline_us, .. }, check)) = find(&mut self.callers, ticket) else {
            return; // sent by the wrong rules, which is already reported
        };
        let hits = check.wish.hits;
        // The undo of a take in a lost future is only a peek.
        let goes_back_too_late =
            ask.hits == Hits::Refund(0) && check.decided.is_some() && hits.requested() > 0;
        if goes_back_too_late || matches!(ask.hits, Hits::Undo { .. }) {
            return self.refunded_takes(ticket, outcome, now);
        }
        if ask.hits == Hits::Refund(0) && hits.requested() > 0 {
            // A full partition drops expired marks before it decides.
            let operation = check.wish.operation(ask.hits);
            return self.recount(ticket, operation, outcome, now);
        }
        let number = self.decisions;
        self.decisions += 1;
        let (terms, operation) = (check.terms, check.wish.operation(hits));
        let before = check.decided.replace(Decided {
            number,
            now_us: now.now_us,
            outcome,
        });
        let in_time = deadline_us.is_none_or(|deadline_us| now.uptime_us < deadline_us);
        self.ensure(Law::BeforeDeadline, in_time, || {
            format!(
                "{ticket:?} is decided at uptime {}; its deadline was {deadline_us:?}",
                now.uptime_us
            )
        });
        self.ensure(Law::DecidedOnce, before.is_none(), || {
            format!("{ticket:?} is decided twice")
        });
        if before.is_some() {
            return; // the recount applies it once
        }
        if matches!(hits, Hits::Refund(hits) if hits > 0) {
            self.event_counts.add("refunds by callers", 1);
        }
        if terms.mode == Mode::Shadow && !outcome.allowed {
            self.event_counts.add("over in shadow mode", 1);
        }
        self.recount(ticket, operation, outcome, now);
    }

    /// A check is refunded.
    fn refunded_takes(&mut self, ticket: Ticket, outcome: Outcome, now: Now) {
        let Some((CallerState { on_trial, .. }, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        let (wish, hits) = (check.wish, check.wish.hits.requested());
        check.refunded_takes += 1;
        let first = check.refunded_takes == 1;
        let taken = check.decided.filter(|decided| decided.outcome.allowed);
        let window_us = check.terms.window_us();
        let bucket = check.wish.bucket(&check.terms);
        self.ensure(
            Law::AllOrNothing,
            on_trial && first && hits > 0 && taken.is_some(),
            || format!("{ticket:?} is refunded; tentative: {on_trial}, for the first time: {first}, taken: {}", taken.is_some()),
        );
        let Some(taken) = taken.filter(|_| first) else {
            return; // the recount undoes each take once
        };
        let is_late = now.now_us / window_us != taken.now_us / window_us;
        let late = "refunded after the end of the window";
        self.event_counts.add(late, u64::from(is_late));
        let taken_at = taken.outcome.bucket_time;
        let hits = if self.resets.void(bucket, taken_at.as_us(), now) {
            self.event_counts.add("refunds made void by a reset", 1);
            Hits::Refund(0)
        } else {
            Hits::Undo { hits, taken_at }
        };
        self.recount(ticket, wish.operation(hits), outcome, now);
    }

    /// Compares an outcome with the recount.
    fn recount(&mut self, ticket: Ticket, asked: Operation, outcome: Outcome, now: Now) {
        let Some((_, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        let (terms, bucket) = (check.terms, check.wish.bucket(&check.terms));
        let counted = Counted::from(&outcome);
        let may_be_full = self.scenario.may_be_full();
        let account = self.accounts.entry(bucket);
        let account = account.or_insert_with(|| Account::new(terms.algorithm));
        let decided = account.decided(
            &terms.of_model(),
            asked,
            now.now_us,
            &self.readings,
            counted,
            may_be_full,
        );
        if let Err(right) = decided {
            self.break_law(
                Law::Recount,
                format!("{ticket:?}, {asked:?} of {bucket:?} under {terms:?}: got {counted:?}, the recount gives {right:?}"),
            );
        }
    }

    fn read_reply(
        &mut self,
        first: Ticket,
        count: usize,
        answers: Result<Vec<CheckResult>, StoreError>,
        now: Now,
    ) {
        if answers
            .as_ref()
            .is_err_and(|error| matches!(error, StoreError::Overloaded { .. }))
        {
            self.shed(first, count);
        }
        self.waiting.retain(|one| one.first != first);
        let answers = answers.unwrap_or_else(|error| vec![Err(error); count]);
        self.ensure(Law::FaithfulReplies, answers.len() == count, || {
            format!(
                "{first:?} and the following: {count} checks, {} answers",
                answers.len()
            )
        });
        for (ticket, answer) in first.and_after().zip(answers) {
            self.read_check_reply(ticket, &answer, now);
        }
    }

    fn read_check_reply(&mut self, ticket: Ticket, answer: &CheckResult, now: Now) {
        let Some((CallerState { deadline_us, .. }, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        check.reply = Some(answer.clone());
        let decided = check.decided.map(|decided| decided.outcome);
        match answer {
            Ok(reply) if decided.is_none() && self.scenario.may_be_full() => {
                let when_full = self.scenario.bounds.when_full;
                let as_said = match when_full {
                    WhenFull::Allow => reply.allowed,
                    WhenFull::Deny => !reply.allowed,
                    WhenFull::Error | WhenFull::Share => false,
                };
                self.ensure(Law::FaithfulReplies, as_said, || {
                    format!("{ticket:?} finds no memory and gets {reply:?} under {when_full:?}")
                });
                self.was_shed(ticket);
            }
            Ok(reply) => {
                let same = decided.is_some_and(|decided| {
                    decided.allowed == reply.allowed
                        && decided.remaining == reply.remaining
                        && decided.used_before == reply.used_before
                });
                self.ensure(Law::FaithfulReplies, same, || {
                    format!("{ticket:?} is reported as {reply:?}; the decision is {decided:?}")
                });
            }
            Err(StoreError::DeadlineExceeded) => {
                self.event_counts.add("late", 1);
                let late = deadline_us.is_some_and(|deadline_us| now.uptime_us >= deadline_us);
                self.ensure(Law::BeforeDeadline, late, || {
                    format!(
                        "{ticket:?} is called late at uptime {}; its deadline is {deadline_us:?}",
                        now.uptime_us
                    )
                });
            }
            Err(StoreError::Full { .. }) => {
                let when_full = self.scenario.bounds.when_full;
                self.ensure(Law::FaithfulReplies, when_full == WhenFull::Error, || {
                    format!("{ticket:?} is reported to find no memory under {when_full:?}")
                });
                self.was_shed(ticket);
            }
            Err(StoreError::Overloaded { .. }) => {}
            Err(
                error @ (StoreError::Stopped
                | StoreError::TooManyResets { .. }
                | StoreError::Unavailable(_)),
            ) => {
                self.break_law(
                    Law::FaithfulReplies,
                    format!("{ticket:?} is reported as {error:?}, which never happens here"),
                );
            }
        }
    }

    /// A check was not decided for lack of memory.
    fn was_shed(&mut self, ticket: Ticket) {
        self.event_counts.add("table full", 1);
        let may_be_full = self.scenario.may_be_full();
        let Some((_, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        let bucket = check.wish.bucket(&check.terms);
        let (terms, sent) = (check.terms, check.sent.unwrap_or_default());
        let account = self.accounts.get_mut(&bucket);
        // Marks may need memory even if the bucket exists.
        let needs_memory = terms.has_marks()
            || account.is_none_or(|account| account.may_have_been_absent(&self.readings, sent));
        self.ensure(Law::Capacity, may_be_full && needs_memory, || {
            format!("{ticket:?} finds no memory; memory may be full: {may_be_full}, it needs some: {needs_memory}")
        });
    }

    /// A request is shed because a mailbox is full.
    fn shed(&mut self, first: Ticket, count: usize) {
        self.event_counts.add("shed", 1);
        self.waiting.retain(|one| one.first != first);
        let waiting: usize = self.waiting.iter().map(|one| one.count).sum();
        let most = self.scenario.bounds.queue_checks_max;
        self.ensure(Law::Capacity, waiting + count > most, || {
            format!("{first:?} and the following ({count}) are shed; the bound is {most} and at most {waiting} wait")
        });
    }

    /// A caller gets its answer.
    pub(crate) fn answered(
        &mut self,
        number: usize,
        answer: &Result<RateLimitResponse, RequestError>,
    ) {
        let caller = self.callers.get_mut(&number).unwrap();
        if caller.generation + 1 < self.generations.len() {
            self.event_counts.add("answered after a reload", 1);
        }
        match answer {
            Ok(answer) if answer.overall_code == answer::OK => self.event_counts.add("passed", 1),
            Ok(_) => self.event_counts.add("refused", 1),
            Err(_) => self.event_counts.add("errors", 1),
        }
        let expected = expected(
            caller,
            &self.generations[caller.generation],
            self.scenario.on_overload,
        );
        let result = match &expected {
            Ok((answer::OK, _)) => RequestOutcome::Passed,
            Ok(_) => RequestOutcome::Refused,
            Err(_) => RequestOutcome::Failed,
        };
        caller.result = Some(result);
        if caller.on_trial && result == RequestOutcome::Passed {
            let refused =
                |check: &&CheckRecord| matches!(&check.reply, Some(Ok(reply)) if !reply.allowed);
            let spared = caller.checks.iter().filter(refused).count() as u64;
            self.event_counts
                .add("over in a request that passed", spared);
        }
        let got = answer::compared(answer);
        self.ensure(Law::Statuses, got == expected, || {
            format!("caller {number} is answered {got:?}; expected {expected:?}")
        });
    }

    /// The run has come to rest: later requests only read the remaining hits.
    pub(crate) fn begin_final_reads(&mut self) {
        self.at_rest = true;
    }

    /// The final reads are complete. `waiting`, `shed` and `given_back` are the service's own
    /// counts.
    pub(crate) fn finish(&mut self, waiting: usize, shed: u64, given_back: u64) {
        let mut broken = Vec::new();
        let (mut sent, mut decided, mut refunded_takes) = (0, 0, 0);
        for (number, caller) in &self.callers {
            if !caller.left && caller.result.is_none() {
                broken.push((
                    Law::Answered,
                    format!("caller {number} never gets an answer"),
                ));
            }
            for (position, check) in caller.checks.iter().enumerate() {
                refunded_takes += check.refunded_takes as u64;
                let (refunded_hits, kept) = (caller.must_refund(check), caller.keeps(check));
                let count = u64::from(kept);
                self.event_counts
                    .add("kept although the request was refused", count);
                if refunded_hits {
                    match caller.result {
                        Some(RequestOutcome::Refused) => self
                            .event_counts
                            .add("refunded because the request was refused", 1),
                        _ => self.event_counts.add("refunded because the caller left", 1),
                    }
                }
                if refunded_hits != (check.refunded_takes > 0) {
                    broken.push((
                        Law::AllOrNothing,
                        format!("caller {number}, check {position}: refunded {} times; must be refunded: {refunded_hits} ({:?}, tentative: {})", check.refunded_takes, caller.result, caller.on_trial),
                    ));
                }
                sent += u64::from(check.sent.is_some());
                decided += u64::from(check.decided.is_some());
                if let (Some(Err(error)), Some(_)) = (&check.reply, check.decided) {
                    broken.push((
                        Law::FaithfulReplies,
                        format!("caller {number}, check {position}: reported as {error:?} although decided"),
                    ));
                }
            }
        }
        sent += self.resets.sent();
        decided += self.resets.done();
        if waiting != 0 {
            broken.push((
                Law::Accounted,
                format!("{waiting} checks still count as waiting"),
            ));
        }
        if sent != decided + shed {
            broken.push((
                Law::Accounted,
                format!("{sent} checks were sent, {decided} decided and {shed} counted as shed"),
            ));
        }
        if refunded_takes != given_back {
            broken.push((
                Law::Accounted,
                format!("{refunded_takes} checks were refunded; {given_back} are counted"),
            ));
        }
        if self.scenario.promises_hold() {
            let (remaining_compared, wrong) = remaining::mismatches(&self.callers, &self.resets);
            self.event_counts
                .add("remaining compared", remaining_compared);
            broken.extend(wrong.into_iter().map(|words| (Law::Remaining, words)));
            let exceeded = promise::exceeded(&self.callers, &self.generations, &self.resets);
            broken.extend(exceeded.into_iter().map(|words| (Law::Promise, words)));
        }
        for (law, words) in broken {
            self.break_law(law, words);
        }
    }

    /// Violations since the last call, to be printed.
    pub(crate) fn new_violations(&mut self) -> &[Violation] {
        let from = std::mem::replace(&mut self.broken_reported, self.broken.len());
        &self.broken[from..]
    }

    /// All violations.
    pub(crate) fn into_broken(self) -> Vec<Violation> {
        self.broken
    }

    fn ensure(&mut self, law: Law, holds: bool, words: impl FnOnce() -> String) {
        if !holds {
            self.break_law(law, words());
        }
    }

    fn break_law(&mut self, law: Law, words: String) {
        self.broken.push(Violation { law, words });
    }
}

// === impl Caller ===

impl Caller {
    /// Whether the hits of a check must be refunded.
    fn must_refund(&self, check: &CheckRecord) -> bool {
        self.on_trial
            && check.took()
            && self.result != Some(RequestOutcome::Passed)
            && !self.keeps(check)
    }

    /// Whether the hits of a check stay taken although its request was refused.
    fn keeps(&self, check: &CheckRecord) -> bool {
        let refused = self.on_trial && self.result == Some(RequestOutcome::Refused);
        refused && check.took() && check.terms.keeps_what_others_refuse()
    }
}

// === impl CheckRecord ===

impl CheckRecord {
    /// Whether hits were allowed and taken.
    fn took(&self) -> bool {
        let allowed = self.decided.is_some_and(|decided| decided.outcome.allowed);
        allowed && self.wish.hits.requested() > 0
    }
}

// === impl Violation ===

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.words)
    }
}

// === impl EventCounts ===

impl Default for EventCounts {
    fn default() -> Self {
        Self(COUNTED.map(|event| (event, 0)).into())
    }
}

impl EventCounts {
    fn add(&mut self, event: &'static str, count: u64) {
        *self.0.get_mut(event).expect("a counted event") += count;
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (event, count) in &other.0 {
            self.add(event, *count);
        }
    }
}
