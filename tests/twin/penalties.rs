//! Penalties: the naive model, the memory store and the script give the same outcomes.
//!
//! How: each walk is of one key of its own. The memory store forgets what can count no more, and is
//! compared on the walks whose clock never steps back and whose limit stays; the script on all.

use tollgate::store_redis::script;
use tollgate_limiter::{ALGORITHMS, Algorithm, Outcome};
use tollgate_test_model::penalties::PenaltyWalk;

use super::check_of;
use super::connection::{Call, results};
use super::resets::{Pair, Step, in_memory};

/// How many walks there are in each algorithm, and how many steps in each.
const WALKS: u64 = 1_500;
const STEPS: usize = 40;

/// Compares them. Returns how many outcomes were blocked.
pub(crate) fn compare(
    text: &str,
    algorithm: &'static dyn Algorithm,
    walks: u64,
) -> Result<usize, String> {
    let mut pair = Pair::with(text);
    let mut blocked = 0;
    for number in 0..walks {
        let mut walk = PenaltyWalk::new(number, algorithm);
        let key = format!("walk {number}");
        let (mut calls, mut asked) = (vec![Call::default()], Vec::new());
        for step in 0..STEPS {
            let (question, expected) = walk.step();
            let check = check_of(number + 1, question.limit, algorithm, question.operation);
            if step * 7 % 5 < 2 {
                calls.push(Call::default());
            }
            if let Some(call) = calls.last_mut() {
                call.add_marked(key.as_bytes(), &check, question.resets, question.now);
            }
            if walk.is_steady {
                pair.clock.set(question.now);
                let steps = [Step {
                    check,
                    resets: question.resets,
                }];
                let outcomes = pair.runtime.block_on(in_memory(&pair.store, &steps));
                let outcome = outcomes.into_iter().next().and_then(Result::ok);
                differ(number, step, &question, (expected, "memory"), outcome)?;
            }
            asked.push((question, expected));
        }
        calls.retain(|call| !call.keys.is_empty());
        for call in &calls {
            pair.connection.add_call(&pair.sha1, call);
        }
        let replies = pair.connection.replies();
        let answers = calls.iter().zip(&replies);
        let answers = answers.flat_map(|(call, reply)| results(reply, &call.terms));
        for (step, ((question, expected), answer)) in asked.iter().zip(answers).enumerate() {
            let answer = answer.map_err(|error| format!("{number}, {step}: {error}"))?;
            let outcome = (!question.resets).then_some(answer);
            differ(number, step, question, (*expected, "script"), outcome)?;
            blocked += usize::from(answer.blocked);
        }
    }
    Ok(blocked)
}

fn differ(
    number: u64,
    step: usize,
    question: &impl std::fmt::Debug,
    (expected, by): (Option<Outcome>, &str),
    outcome: Option<Outcome>,
) -> Result<(), String> {
    if outcome == expected {
        return Ok(());
    }
    Err(format!(
        "walk {number}, step {step}, {question:?}:\n{by} {outcome:?}\nmodel {expected:?}"
    ))
}

#[test]
fn penalties_agree_in_memory_and_redis_with_their_model() {
    for &algorithm in ALGORITHMS {
        if algorithm.name() == "concurrency" {
            continue;
        }
        match compare(script::text(), algorithm, WALKS) {
            Ok(blocked) => assert!(blocked > 1_000, "{algorithm:?}: {blocked}"),
            Err(wrong) => panic!("{algorithm:?}: {wrong}"),
        }
    }
}
