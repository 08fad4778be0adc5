//! Makes a case that fails as small as it can be, and reports it.
//!
//! How: every way to leave one part out is a candidate. All candidates run in one batch, and the
//! first that still fails is the next case, until none fails.
//!
//! What it deliberately does not do: keep the failure the same. A smaller case with another failure
//! is accepted.

use std::path::Path;

use crate::oracle::case::{Case, Domain, Node};
use crate::oracle::run::{Outcome, Setup, run};

/// How many rounds at most, and how many candidates in one.
const ROUNDS: usize = 60;
const CANDIDATES: usize = 150;

/// Shrinks a case that differs and panics with what is left.
pub(crate) fn report(program: &Path, setup: Setup, case: &Case, differs: &str) -> ! {
    let (mut case, mut differs) = (case.clone(), differs.to_owned());
    for _ in 0..ROUNDS {
        let mut candidates = smaller(&case);
        candidates.truncate(CANDIDATES);
        let outcomes = run(program, setup, &candidates);
        let failing =
            candidates
                .into_iter()
                .zip(outcomes)
                .find_map(|(case, outcome)| match outcome {
                    Outcome::Differs(text) => Some((case, text)),
                    Outcome::Agreed(_) | Outcome::Crossed => None,
                });
        match failing {
            Some(smaller) => (case, differs) = smaller,
            None => break,
        }
    }
    let requests = case.requests.iter().map(|asked| format!("{asked:?}\n"));
    panic!(
        "seed {}: {setup:?}\n--- rules ---\n{}--- requests ---\n{}--- what differs ---\n{differs}",
        case.seed,
        case.yaml(&case.domain(0)),
        requests.collect::<String>()
    );
}

/// The smallest case that still fails.
pub(crate) fn smallest(mut case: Case, mut fails: impl FnMut(&Case) -> bool) -> Case {
    while let Some(smaller) = smaller(&case).into_iter().find(|case| fails(case)) {
        case = smaller;
    }
    case
}

/// The case with one thing less, the largest things first.
pub(crate) fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        if smaller != *case {
            all.push(smaller);
        }
    };
    let requests = case.requests.len();
    with(&|case| drop(case.requests.drain(..requests / 2)));
    with(&|case| case.requests.truncate(requests / 2));
    for place in 0..requests {
        with(&|case| drop(case.requests.remove(place)));
    }
    let nodes = case.nodes().len();
    for number in 0..nodes {
        with(&|case| remove(&mut case.descriptors, &mut number.clone()));
    }
    for (place, asked) in case.requests.iter().enumerate() {
        for descriptor in 0..asked.descriptors.len() {
            with(&|case| drop(case.requests[place].descriptors.remove(descriptor)));
            with(&|case| case.requests[place].descriptors[descriptor].hits = None);
            with(&|case| case.requests[place].descriptors[descriptor].negative = false);
            with(&|case| case.requests[place].descriptors[descriptor].limit = None);
        }
        with(&|case| case.requests[place].hits_addend = 0);
        with(&|case| case.requests[place].domain = Domain::Own);
    }
    for number in 0..nodes {
        let mut edit = |change: &dyn Fn(&mut Node)| {
            with(&|case| change(nth(&mut case.descriptors, &mut number.clone()).unwrap()));
        };
        edit(&|node| node.limit = None);
        edit(&|node| node.shadow_mode = false);
        edit(&|node| node.quota_mode = false);
        edit(&|node| node.detailed_metric = false);
        edit(&|node| node.value_to_metric = false);
        edit(&|node| node.share_threshold = false);
        edit(&|node| node.extra.clear());
        edit(&|node| {
            if let Some(limit) = &mut node.limit {
                limit.extra.clear();
            }
        });
        edit(&|node| {
            if let Some(limit) = &mut node.limit {
                limit.name = "";
            }
        });
        edit(&|node| {
            if let Some(limit) = &mut node.limit {
                limit.replaces.clear();
            }
        });
        edit(&|node| {
            if let Some(limit) = &mut node.limit {
                limit.unit = 6;
            }
        });
        edit(&|node| {
            if let Some(limit) = &mut node.limit {
                limit.requests_per_unit = 1;
            }
        });
    }
    with(&|case| case.extra.clear());
    with(&|case| case.domain = "d");
    with(&|case| case.spelling = 5);
    all
}

/// The node of this number, counted as [`Case::nodes`] lists them.
fn nth<'n>(nodes: &'n mut [Node], number: &mut usize) -> Option<&'n mut Node> {
    for node in nodes {
        if *number == 0 {
            return Some(node);
        }
        *number -= 1;
        if let Some(found) = nth(&mut node.children, number) {
            return Some(found);
        }
    }
    None
}

fn remove(nodes: &mut Vec<Node>, number: &mut usize) {
    for place in 0..nodes.len() {
        if *number == 0 {
            nodes.remove(place);
            // No other node has this number.
            *number = usize::MAX;
            return;
        }
        *number -= 1;
        remove(&mut nodes[place].children, number);
        if *number == usize::MAX {
            return;
        }
    }
}
