//! Rust and the script on the same history: every outcome is equal, and at the end so are time,
//! registers and marks.
//!
//! `State::step` walks the history and so produces the checks. The server then gets all of them in
//! one transaction (no real time passes in it, so nothing expires), in several calls with several
//! checks.
//!
//! Histories reload the limit, look, deny and set the clock back, so what each side does not write
//! is compared too.

use std::cell::RefCell;
use std::num::NonZeroU64;

use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use redis::Value;
use tollgate::store_redis::script;
use tollgate_limiter::{
    ALGORITHMS, Algorithm, AlgorithmOption, Holder, Mark, Outcome, State, Timestamp,
};
use tollgate_test_model::bucket_histories::{History, Question, Walk, cases_or, histories};
use tollgate_test_support::redis_server::RedisServer;

use super::check_of;
use super::connection::{Call, Connection, decided};

/// Time, registers and marks.
type Kept = (Timestamp, [u64; 2], Vec<Mark>);

type Verdict = Result<(), TestCaseError>;

/// The only bucket.
const KEY: &[u8] = b"bucket";

/// The length of a bucket without marks: see `words.lua`.
const HEAD_LEN: usize = 29;

/// Whether Rust and the script agree on this history.
pub(crate) fn hold(
    connection: &mut Connection,
    sha1: &str,
    algorithm: &'static dyn Algorithm,
    history: &History,
) -> Verdict {
    let mut walk = Walk::new(history, algorithm);
    let mut state = State::default();
    let mut asked: Vec<(Question, Outcome)> = Vec::new();
    let mut calls = vec![Call::default()];
    for (number, step) in history.steps.iter().enumerate() {
        let question = walk.question(step);
        let Question {
            limit, ask, now, ..
        } = question;
        let outcome = state.apply(algorithm, &limit, ask, now);
        walk.answered(&question, &outcome);
        let check = check_of(0, question.limit, algorithm, question.ask);
        // Some calls have one check, some a few.
        if number * 7 % 5 < 2 {
            calls.push(Call::default());
        }
        calls
            .last_mut()
            .unwrap()
            .add(KEY, &check, Some(question.now));
        asked.push((question, outcome));
    }
    calls.retain(|call| !call.keys.is_empty());

    connection.add(&[b"MULTI"]);
    for call in &calls {
        connection.add_call(sha1, call);
    }
    connection.add(&[b"GET", KEY]);
    connection.add(&[b"DEL", KEY]);
    connection.add(&[b"EXEC"]);
    let Some(Value::Array(replies)) = connection.replies().pop() else {
        panic!("no transaction");
    };
    let (last, answered) = (&replies[calls.len()], &replies[..calls.len()]);
    let mut answers = Vec::new();
    for (call, reply) in calls.iter().zip(answered) {
        let Value::BulkString(text) = reply else {
            return Err(TestCaseError::fail(format!("the script failed: {reply:?}")));
        };
        answers.extend(decided(text, &call.terms));
    }
    for (number, ((question, outcome), answer)) in asked.iter().zip(&answers).enumerate() {
        ensure(*answer == Ok(*outcome), || {
            format!("step {number}, {question:?}:\nscript {answer:?}\nrust   {outcome:?}")
        })?;
    }
    let kept = match last {
        Value::BulkString(bucket) => unpacked(bucket, algorithm),
        _ => Kept::default(),
    };
    let State {
        updated_at: seen,
        registers,
        marks,
    } = state;
    let meant = (seen, registers, marks.iter().copied().collect());
    ensure(kept == meant, || {
        format!("at the end:\nscript {kept:?}\nrust   {meant:?}")
    })
}

fn ensure(holds: bool, words: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(TestCaseError::fail(words()))
    }
}

/// Reads a bucket of the script.
fn unpacked(bucket: &[u8], algorithm: &dyn Algorithm) -> Kept {
    let number = |bytes: &[u8]| {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(all)
    };
    let (head, behind) = bucket.split_at(HEAD_LEN);
    let slots = algorithm.facts().options.contains(&AlgorithmOption::Slots);
    let marks = behind.chunks(if slots { 20 } else { 12 }).map(|mark| Mark {
        at: Timestamp::from_us(number(&mark[..7])),
        hits: number(&mark[7..12]),
        holder: NonZeroU64::new(number(&mark[12..])).map(Holder),
    });
    (
        Timestamp::from_us(number(&head[8..15])),
        [number(&head[15..22]), number(&head[22..29])],
        marks.collect(),
    )
}

/// Searches for a history on which they disagree.
pub(crate) fn challenge(
    text: &str,
    algorithm: &'static dyn Algorithm,
    mut runner: TestRunner,
) -> Result<(), TestError<History>> {
    let server = RedisServer::start(&[]);
    let mut connection = Connection::open(&server);
    let sha1 = connection.load(text);
    let connection = RefCell::new(connection);
    runner.run(&histories(), |history| {
        hold(&mut connection.borrow_mut(), &sha1, algorithm, &history)
    })
}

/// The same histories in every run, for a script that differs: none is shortened or kept.
pub(crate) fn repeatable() -> TestRunner {
    let config = Config {
        cases: 4_000,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// The histories that once failed, and then the same in every run; new ones where `PROPTEST_CASES`
/// says how many.
fn searching() -> TestRunner {
    let config = Config {
        cases: cases_or(4_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/twin/regressions.txt",
        ))),
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return TestRunner::new(config);
    }
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// One test per algorithm, so that they run in parallel.
macro_rules! twins_agree {
    ($($algorithm:ident)+) => {
        $(#[test]
        fn $algorithm() {
            let algorithm = tollgate_limiter::algorithm::from_name(stringify!($algorithm)).unwrap();
            if let Err(error) = challenge(script::text(), algorithm, searching()) {
                panic!("{algorithm:?}: {error}");
            }
        })+

        #[test]
        fn no_algorithm_is_left_out() {
            let names: Vec<_> = ALGORITHMS.iter().map(|algorithm| algorithm.name()).collect();
            assert_eq!(names, [$(stringify!($algorithm)),+]);
        }
    };
}

twins_agree! {
    fixed_window
    sliding_window
    sliding_window_segments
    sliding_log
    token_bucket
    token_bucket_interval
    leaky_bucket
    concurrency
}
