//! What must hold in every run.
//!
//! | law | says |
//! | --- | --- |
//! | `OneGeneration` | the checks that a request sends are those of the rules that were in use when it began, all of them, and on trial if those rules or the service say so |
//! | `Once` | no check is decided twice |
//! | `AllOrNothing` | what was taken goes back once when its request was on trial and did not pass, unless its limit counts what others refuse; nothing else ever goes back |
//! | `NotForTheGone` | no check is decided once its caller has left |
//! | `InTime` | no check is decided once its deadline has passed, and none is called late before |
//! | `Recount` | what is decided is what a naive recount gives, in the order in which it was decided |
//! | `Left` | after the end what is left is the limit without what was admitted and what is to be counted of what was refused |
//! | `TrueAnswers` | the store tells of each check what was decided of that check; what it calls undecided took nothing |
//! | `Capacity` | a request is shed when a mailbox is full, and with one partition only then; and a partition without memory leaves undecided only checks that need memory |
//! | `Statuses` | a request is answered as its checks and the settings say: one status a descriptor, in the order asked; shadow mode never refuses |
//! | `Promise` | what was let pass, added up, never exceeds the one sentence that the algorithm says of itself |
//! | `Answered` | who did not leave is answered |
//! | `Accounted` | after the end no check waits, each that was sent was decided or counted as shed, once, and what went back was counted |
//!
//! How: the run tells the judge what callers do and hands over the journal after every poll. Laws
//! are judged apart and a broken one does not stop a run, so that a planted bug shows all the laws
//! that it breaks. `Promise` and `Left` have no idea of how a bucket works: they add up what
//! callers were told.
//!
//! What it deliberately does not do: know partitions (which key lies where), batches, or when a
//! sweep comes.

mod answer;
mod left;
mod promise;

use std::collections::BTreeMap;
use std::fmt;

use tollgate::pipeline::RequestError;
use tollgate::store::memory::WhenFull;
use tollgate::store::{CheckResult, CommitMode, StoreError};
use tollgate_limiter::{Check, Hits, Operation, Outcome};
use tollgate_test_support::grpc_client::RateLimitResponse;

use self::answer::expected;
use crate::journal::{Entry, Ticket};
use crate::recount::{Account, Asked, Counted};
use crate::scenario::{Bucket, Mode, Rules, Said, Scenario, Terms, Wish};

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Law {
    OneGeneration,
    Once,
    AllOrNothing,
    NotForTheGone,
    InTime,
    Recount,
    Left,
    TrueAnswers,
    Capacity,
    Statuses,
    Promise,
    Answered,
    Accounted,
}

/// A law broken, in words.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) law: Law,
    pub(crate) words: String,
}

/// What the clock shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) now_us: u64,
    pub(crate) uptime_us: u64,
}

/// What was there to see in a run: a simulation that never sheds says nothing about shedding.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sights {
    pub(crate) let_pass: u64,
    pub(crate) refused: u64,
    pub(crate) errors: u64,
    /// Refunds that callers asked for.
    pub(crate) refunded: u64,
    pub(crate) shed: u64,
    pub(crate) late: u64,
    pub(crate) table_full: u64,
    /// Callers that left before their checks were decided, and after.
    pub(crate) left_before: u64,
    pub(crate) left_after: u64,
    /// Requests answered after the rules they were asked under had gone.
    pub(crate) outlived_rules: u64,
    /// Checks of shadow rules that were over their limit.
    pub(crate) shadowed: u64,
    /// Checks that went back, because their request was refused, or because nobody could say that
    /// it passed.
    pub(crate) gone_back: u64,
    pub(crate) gone_back_unheard: u64,
    /// Checks that went back after the window they were taken in, by the clock.
    pub(crate) gone_back_late: u64,
    /// Checks of refused requests whose limits count what others refuse.
    pub(crate) kept: u64,
    /// Checks of shadow rules and of quotas that were over, in requests on trial that passed all
    /// the same.
    pub(crate) spared: u64,
    /// Buckets whose sum was held against what is left.
    pub(crate) added_up: u64,
}

/// One caller and all that is known of it.
struct Caller {
    wishes: Vec<Wish>,
    /// From when on an answer is of no use, in uptime.
    deadline_us: Option<u64>,
    generation: usize,
    /// Whether it asks when all has come to rest.
    asks_at_rest: bool,
    /// Whether it takes all or nothing.
    on_trial: bool,
    checks: Vec<CheckSeen>,
    left: bool,
    /// None until it is answered: nobody says that it passed.
    fate: Option<Fate>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Passed,
    Refused,
    /// Its caller was told an error.
    Failed,
}

/// One check of a caller.
struct CheckSeen {
    wish: Wish,
    terms: Terms,
    /// How often workers had read the clock when it was sent.
    sent: Option<usize>,
    /// The last decision, should there be several.
    decided: Option<Decided>,
    told: Option<CheckResult>,
    /// How often it went back.
    gone_back: usize,
}

#[derive(Clone, Copy)]
struct Decided {
    /// Among all decisions of the run.
    number: usize,
    now_us: u64,
    outcome: Outcome,
}

/// Checks that were sent and may not have reached their workers.
struct Waiting {
    first: Ticket,
    count: usize,
    /// Which workers have run since.
    workers: Vec<bool>,
}

/// Of a caller, what its checks are judged by.
struct Standing {
    left: bool,
    on_trial: bool,
    deadline_us: Option<u64>,
}

pub(crate) struct Judge<'s> {
    scenario: &'s Scenario,
    generations: Vec<Rules>,
    /// By the order in which they came.
    callers: BTreeMap<usize, Caller>,
    accounts: BTreeMap<Bucket, Account>,
    /// What the clock showed whenever a worker ran.
    readings: Vec<u64>,
    waiting: Vec<Waiting>,
    decisions: usize,
    at_rest: bool,
    broken: Vec<Broken>,
    /// How many of those were read along.
    broken_told: usize,
    pub(crate) sights: Sights,
}

fn find(
    callers: &mut BTreeMap<usize, Caller>,
    ticket: Ticket,
) -> Option<(Standing, &mut CheckSeen)> {
    let caller = callers.get_mut(&ticket.caller)?;
    let standing = Standing {
        left: caller.left,
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
            at_rest: false,
            broken: Vec::new(),
            broken_told: 0,
            sights: Sights::default(),
        }
    }

    /// Other rules are in use from now on.
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
            if let Said::Limited(limits) = rules.say(wish) {
                checks.extend(limits.into_iter().map(|terms| CheckSeen {
                    wish: *wish,
                    terms,
                    sent: None,
                    decided: None,
                    told: None,
                    gone_back: 0,
                }));
            }
        }
        let begun = Caller {
            on_trial: rules.all_or_nothing || self.scenario.all_or_nothing,
            checks,
            wishes,
            deadline_us: timeout_us.map(|timeout_us| now.uptime_us + timeout_us),
            generation,
            asks_at_rest: self.at_rest,
            left: false,
            fate: None,
        };
        self.callers.insert(caller, begun);
    }

    /// A caller leaves, maybe before it began.
    pub(crate) fn left(&mut self, caller: usize) {
        let Some(caller) = self.callers.get_mut(&caller) else {
            return;
        };
        caller.left = true;
        let decided = |check: &CheckSeen| check.decided.is_some();
        if caller.checks.iter().any(decided) {
            self.sights.left_after += 1;
        } else if !caller.checks.is_empty() {
            self.sights.left_before += 1;
        }
    }

    /// A worker has run, and read the clock.
    pub(crate) fn worker_ran(&mut self, worker: usize, now: Now) {
        if self.readings.last() != Some(&now.now_us) {
            self.readings.push(now.now_us);
        }
        for waiting in &mut self.waiting {
            waiting.workers[worker] = true;
        }
        self.waiting.retain(|one| one.workers.contains(&false));
    }

    /// The journal of one poll.
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
                Entry::Told {
                    first,
                    count,
                    answers,
                } => self.told(first, count, answers, now),
            }
        }
        let waiting: usize = self.waiting.iter().map(|one| one.count).sum();
        let most = self.scenario.bounds.queue_checks_max;
        self.ensure(
            Law::Capacity,
            self.scenario.bounds.partitions > 1 || waiting <= most,
            || format!("{waiting} checks wait where {most} may"),
        );
    }

    fn sent(&mut self, first: Ticket, checks: &[Check], taken: CommitMode) {
        self.waiting.push(Waiting {
            first,
            count: checks.len(),
            workers: vec![false; self.scenario.bounds.partitions],
        });
        for (ticket, check) in first.following().zip(checks) {
            let caller = self.callers.get_mut(&ticket.caller);
            let readings = self.readings.len();
            let seen = caller.and_then(|caller| {
                let on_trial = caller.on_trial;
                let seen = caller.checks.get_mut(ticket.position)?;
                seen.sent = Some(readings);
                Some((seen.wish, seen.terms, on_trial))
            });
            let holds = seen.is_some_and(|(wish, terms, on_trial)| {
                // Of several limits on one descriptor only those with slots are told whose they
                // are.
                let is_held = wish.holder.is_some() && terms.algorithm == "concurrency";
                check.operation.hits == wish.hits
                    && check.operation.holder.is_some() == is_held
                    && (taken == CommitMode::Tentative) == on_trial
                    && check.limit.count_refused() == terms.count_refused
                    && check.algorithm.name() == terms.algorithm
                    && check.limit.requests() == u64::from(terms.requests)
                    && check.limit.burst() == u64::from(terms.burst)
                    && check.limit.window().as_us() == terms.window_us()
            });
            self.ensure(Law::OneGeneration, holds, || {
                format!("{ticket:?} sends {check:?}, and its rules say {seen:?}")
            });
        }
    }

    fn decided(&mut self, ticket: Ticket, ask: Operation, outcome: Outcome, now: Now) {
        let Some((
            Standing {
                left, deadline_us, ..
            },
            check,
        )) = find(&mut self.callers, ticket)
        else {
            return; // sent by other rules than it may be; said already
        };
        let hits = check.wish.hits;
        // What went back to a time that did not come is only looked at.
        let goes_back_too_late =
            ask.hits == Hits::Refund(0) && check.decided.is_some() && hits.requested() > 0;
        if goes_back_too_late || matches!(ask.hits, Hits::Undo { .. }) {
            return self.gone_back(ticket, outcome, now);
        }
        if ask.hits == Hits::Refund(0) && hits.requested() > 0 {
            // A full partition drops expired marks before it decides.
            let holder = check.wish.holder;
            return self.recount(
                ticket,
                Asked {
                    hits: ask.hits,
                    holder,
                },
                outcome,
                now,
            );
        }
        let number = self.decisions;
        self.decisions += 1;
        let (terms, holder) = (check.terms, check.wish.holder);
        let before = check.decided.replace(Decided {
            number,
            now_us: now.now_us,
            outcome,
        });
        self.ensure(Law::NotForTheGone, !left, || {
            format!("{ticket:?} is decided, and its caller has left")
        });
        let in_time = deadline_us.is_none_or(|deadline_us| now.uptime_us < deadline_us);
        self.ensure(Law::InTime, in_time, || {
            format!(
                "{ticket:?} is decided at uptime {}, and its deadline was {deadline_us:?}",
                now.uptime_us
            )
        });
        self.ensure(Law::Once, before.is_none(), || {
            format!("{ticket:?} is decided twice")
        });
        if before.is_some() {
            return; // the recount takes it once
        }
        if matches!(hits, Hits::Refund(hits) if hits > 0) {
            self.sights.refunded += 1;
        }
        if terms.mode == Mode::Shadow && !outcome.allowed {
            self.sights.shadowed += 1;
        }
        self.recount(ticket, Asked { hits, holder }, outcome, now);
    }

    /// What a check took goes back.
    fn gone_back(&mut self, ticket: Ticket, outcome: Outcome, now: Now) {
        let Some((Standing { on_trial, .. }, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        let (hits, holder) = (check.wish.hits.requested(), check.wish.holder);
        check.gone_back += 1;
        let first = check.gone_back == 1;
        let taken = check.decided.filter(|decided| decided.outcome.allowed);
        let window_us = check.terms.window_us();
        self.ensure(
            Law::AllOrNothing,
            on_trial && first && hits > 0 && taken.is_some(),
            || format!("{ticket:?} goes back; on trial: {on_trial}, for the first time: {first}, taken: {}", taken.is_some()),
        );
        let Some(taken) = taken.filter(|_| first) else {
            return; // the recount gives back once, what was taken
        };
        self.sights.gone_back_late += u64::from(now.now_us / window_us != taken.now_us / window_us);
        let hits = Hits::Undo {
            hits,
            taken_at: taken.outcome.bucket_time,
        };
        self.recount(ticket, Asked { hits, holder }, outcome, now);
    }

    /// Holds what came of a check against what should have.
    fn recount(&mut self, ticket: Ticket, asked: Asked, outcome: Outcome, now: Now) {
        let Some((_, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        let (terms, bucket) = (check.terms, check.wish.bucket(&check.terms));
        let counted = Counted {
            allowed: outcome.allowed,
            remaining: outcome.remaining,
            at: outcome.bucket_time.as_us(),
        };
        let may_be_full = self.scenario.may_be_full();
        let account = self.accounts.entry(bucket).or_insert_with(Account::new);
        let decided = account.decided(
            &terms,
            asked,
            now.now_us,
            &self.readings,
            counted,
            may_be_full,
        );
        if let Err(right) = decided {
            self.break_law(
                Law::Recount,
                format!("{ticket:?}, {asked:?} of {bucket:?} under {terms:?}: {counted:?}, and by the recount {right:?}"),
            );
        }
    }

    fn told(
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
        let answers = answers.unwrap_or_else(|error| vec![Err(error); count]);
        self.ensure(Law::TrueAnswers, answers.len() == count, || {
            format!(
                "{first:?} and those after it: {count} checks, {} answers",
                answers.len()
            )
        });
        for (ticket, answer) in first.following().zip(answers) {
            self.told_one(ticket, &answer, now);
        }
    }

    fn told_one(&mut self, ticket: Ticket, answer: &CheckResult, now: Now) {
        let Some((Standing { deadline_us, .. }, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        check.told = Some(answer.clone());
        let decided = check.decided.map(|decided| decided.outcome);
        match answer {
            Ok(told) if decided.is_none() && self.scenario.may_be_full() => {
                let when_full = self.scenario.bounds.when_full;
                let as_said = match when_full {
                    WhenFull::Allow => told.allowed,
                    WhenFull::Deny => !told.allowed,
                    WhenFull::Error | WhenFull::Share => false,
                };
                self.ensure(Law::TrueAnswers, as_said, || {
                    format!("{ticket:?} finds no memory and gets {told:?} under {when_full:?}")
                });
                self.found_no_room(ticket);
            }
            Ok(told) => {
                let same = decided.is_some_and(|decided| {
                    decided.allowed == told.allowed
                        && decided.remaining == told.remaining
                        && decided.used_before == told.used_before
                });
                self.ensure(Law::TrueAnswers, same, || {
                    format!("{ticket:?} is told {told:?}, and what was decided is {decided:?}")
                });
            }
            Err(StoreError::DeadlineExceeded) => {
                self.sights.late += 1;
                let late = deadline_us.is_some_and(|deadline_us| now.uptime_us >= deadline_us);
                self.ensure(Law::InTime, late, || {
                    format!("{ticket:?} is called late at uptime {}, and its deadline is {deadline_us:?}", now.uptime_us)
                });
            }
            Err(StoreError::Full { .. }) => {
                let when_full = self.scenario.bounds.when_full;
                self.ensure(Law::TrueAnswers, when_full == WhenFull::Error, || {
                    format!("{ticket:?} is reported to find no memory under {when_full:?}")
                });
                self.found_no_room(ticket);
            }
            Err(StoreError::Overloaded { .. }) => {}
            Err(error @ (StoreError::Stopped | StoreError::Unavailable(_))) => {
                self.break_law(
                    Law::TrueAnswers,
                    format!("{ticket:?} is told {error:?}, which never happens here"),
                );
            }
        }
    }

    /// A check was not decided for lack of memory.
    fn found_no_room(&mut self, ticket: Ticket) {
        self.sights.table_full += 1;
        let may_be_full = self.scenario.may_be_full();
        let Some((_, check)) = find(&mut self.callers, ticket) else {
            return;
        };
        let bucket = check.wish.bucket(&check.terms);
        let (terms, sent) = (check.terms, check.sent.unwrap_or_default());
        let account = self.accounts.get_mut(&bucket);
        // Marks may need memory even if the bucket exists.
        let needs_memory = terms.has_marks()
            || account
                .is_none_or(|account| account.may_have_been_absent(&terms, &self.readings, sent));
        self.ensure(Law::Capacity, may_be_full && needs_memory, || {
            format!("{ticket:?} finds no memory; memory may be full: {may_be_full}, it needs some: {needs_memory}")
        });
    }

    /// A request is told that a mailbox is full.
    fn shed(&mut self, first: Ticket, count: usize) {
        self.sights.shed += 1;
        self.waiting.retain(|one| one.first != first);
        let waiting: usize = self.waiting.iter().map(|one| one.count).sum();
        let most = self.scenario.bounds.queue_checks_max;
        self.ensure(Law::Capacity, waiting + count > most, || {
            format!("{first:?} and those after it ({count}) are shed where {most} may wait, and no more than {waiting} do")
        });
    }

    /// A caller has its answer.
    pub(crate) fn answered(
        &mut self,
        number: usize,
        answer: &Result<RateLimitResponse, RequestError>,
    ) {
        let caller = self.callers.get_mut(&number).unwrap();
        if caller.generation + 1 < self.generations.len() {
            self.sights.outlived_rules += 1;
        }
        match answer {
            Ok(answer) if answer.overall_code == answer::OK => self.sights.let_pass += 1,
            Ok(_) => self.sights.refused += 1,
            Err(_) => self.sights.errors += 1,
        }
        let expected = expected(
            caller,
            &self.generations[caller.generation],
            self.scenario.on_overload,
        );
        let fate = match &expected {
            Ok((answer::OK, _)) => Fate::Passed,
            Ok(_) => Fate::Refused,
            Err(_) => Fate::Failed,
        };
        caller.fate = Some(fate);
        if caller.on_trial && fate == Fate::Passed {
            let refused =
                |check: &&CheckSeen| matches!(&check.told, Some(Ok(told)) if !told.allowed);
            self.sights.spared += caller.checks.iter().filter(refused).count() as u64;
        }
        let got = answer::said(answer);
        self.ensure(Law::Statuses, got == expected, || {
            format!("caller {number} is answered {got:?}, and it should be {expected:?}")
        });
    }

    /// All has come to rest: who asks from now on only looks at what is left.
    pub(crate) fn rests(&mut self) {
        self.at_rest = true;
    }

    /// All has been looked at. `waiting`, `shed` and `given_back` are the service's own counts.
    pub(crate) fn rested(&mut self, waiting: u64, shed: u64, given_back: u64) {
        let mut broken = Vec::new();
        let (mut sent, mut decided, mut gone_back) = (0, 0, 0);
        for (number, caller) in &self.callers {
            if !caller.left && caller.fate.is_none() {
                broken.push((Law::Answered, format!("caller {number} waits for ever")));
            }
            for (position, check) in caller.checks.iter().enumerate() {
                gone_back += check.gone_back as u64;
                let (goes_back, kept) = (caller.takes_back(check), caller.keeps(check));
                self.sights.kept += u64::from(kept);
                if goes_back {
                    match caller.fate {
                        Some(Fate::Refused) => self.sights.gone_back += 1,
                        _ => self.sights.gone_back_unheard += 1,
                    }
                }
                if goes_back != (check.gone_back > 0) {
                    broken.push((
                        Law::AllOrNothing,
                        format!("caller {number}, check {position}: went back {} times, and should: {goes_back} ({:?}, on trial: {})", check.gone_back, caller.fate, caller.on_trial),
                    ));
                }
                sent += u64::from(check.sent.is_some());
                decided += u64::from(check.decided.is_some());
                if let (Some(Err(error)), Some(_)) = (&check.told, check.decided) {
                    broken.push((
                        Law::TrueAnswers,
                        format!("caller {number}, check {position}: told {error:?}, and decided"),
                    ));
                }
            }
        }
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
        if gone_back != given_back {
            broken.push((
                Law::Accounted,
                format!("{gone_back} checks went back, and {given_back} are counted"),
            ));
        }
        if self.scenario.promises_hold() {
            let (added_up, wrong) = left::wrong(&self.callers);
            self.sights.added_up += added_up;
            broken.extend(wrong.into_iter().map(|words| (Law::Left, words)));
            let exceeded = promise::exceeded(&self.callers, &self.generations);
            broken.extend(exceeded.into_iter().map(|words| (Law::Promise, words)));
        }
        for (law, words) in broken {
            self.break_law(law, words);
        }
    }

    /// What was broken since the last time, for who reads along.
    pub(crate) fn news(&mut self) -> &[Broken] {
        let from = std::mem::replace(&mut self.broken_told, self.broken.len());
        &self.broken[from..]
    }

    /// All that was broken.
    pub(crate) fn into_broken(self) -> Vec<Broken> {
        self.broken
    }

    fn ensure(&mut self, law: Law, holds: bool, words: impl FnOnce() -> String) {
        if !holds {
            self.break_law(law, words());
        }
    }

    fn break_law(&mut self, law: Law, words: String) {
        self.broken.push(Broken { law, words });
    }
}

// === impl Caller ===

impl Caller {
    /// Whether what a check took must go back.
    fn takes_back(&self, check: &CheckSeen) -> bool {
        self.on_trial && check.took() && self.fate != Some(Fate::Passed) && !self.keeps(check)
    }

    /// Whether what a check took stays taken though its request was refused.
    fn keeps(&self, check: &CheckSeen) -> bool {
        let refused = self.on_trial && self.fate == Some(Fate::Refused);
        refused && check.took() && check.terms.keeps_what_others_refuse()
    }
}

// === impl CheckSeen ===

impl CheckSeen {
    /// Whether hits were allowed and taken.
    fn took(&self) -> bool {
        let allowed = self.decided.is_some_and(|decided| decided.outcome.allowed);
        allowed && self.wish.hits.requested() > 0
    }
}

// === impl Broken ===

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.words)
    }
}

// === impl Sights ===

impl Sights {
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.each().into_iter().zip(other.named()) {
            *mine += theirs.1;
        }
    }

    fn each(&mut self) -> [&mut u64; 17] {
        [
            &mut self.let_pass,
            &mut self.refused,
            &mut self.errors,
            &mut self.refunded,
            &mut self.shed,
            &mut self.late,
            &mut self.table_full,
            &mut self.left_before,
            &mut self.left_after,
            &mut self.outlived_rules,
            &mut self.shadowed,
            &mut self.gone_back,
            &mut self.gone_back_unheard,
            &mut self.gone_back_late,
            &mut self.kept,
            &mut self.spared,
            &mut self.added_up,
        ]
    }

    pub(crate) fn named(&self) -> [(&'static str, u64); 17] {
        [
            ("let pass", self.let_pass),
            ("refused", self.refused),
            ("errors", self.errors),
            ("refunded", self.refunded),
            ("shed", self.shed),
            ("late", self.late),
            ("table full", self.table_full),
            ("left before", self.left_before),
            ("left after", self.left_after),
            ("outlived their rules", self.outlived_rules),
            ("shadowed", self.shadowed),
            ("gone back", self.gone_back),
            ("gone back unheard", self.gone_back_unheard),
            ("gone back late", self.gone_back_late),
            ("kept", self.kept),
            ("spared", self.spared),
            ("added up", self.added_up),
        ]
    }
}
