//! Starts and ends of reservations in a plan, prices, and limits that share a budget.
//!
//! What they deliberately do not do: settle (the ledger's own tests do), or read rules files.

use std::num::NonZeroU32;

use tollgate_limiter::key::hash_holder;
use tollgate_limiter::{
    Check, Code, Cost, Decision, Estimate, EstimateScope, Hits, Limit, Modes, Operation, Otherwise,
    Override, Plan, Request, ReserveAmount, Rule, Step, Unit,
};

use tollgate_test_model::fixtures::{
    Buckets, EXPIRY, Path, Tree, TwoHashes, at, called, concluded, counted, entries, limited, per,
    quota, replacing, reserving, shadow,
};

/// One descriptor: its entries, its hits, and whether they are explicit.
type Sent<'p> = (Path<'p>, Hits, bool);

/// A thousand a minute, and 800 reserved.
fn tokens() -> Rule {
    reserving(ReserveAmount::Hits(800), limited(1_000, Unit::Minute))
}

fn priced(cost: &str, rule: Rule) -> Rule {
    Rule {
        cost: Cost::parse(cost).unwrap(),
        ..rule
    }
}

fn of_budget(name: &str, rule: Rule) -> Rule {
    Rule {
        budget: Some(name.into()),
        ..rule
    }
}

fn sent<'p>(descriptors: &[Sent<'p>]) -> Request<'p> {
    sent_within(descriptors, None)
}

fn sent_within<'p>(descriptors: &[Sent<'p>], limit: Option<Override>) -> Request<'p> {
    let mut request = Request::new(Tree::DOMAIN.as_bytes());
    for (path, hits, explicit) in descriptors {
        request.push_descriptor(entries(path), *hits, limit);
        if *explicit {
            request.set_explicit_hits();
        }
    }
    request
}

/// The checks, and whether the request is all or nothing.
fn planned(tree: &Tree, request: &Request<'_>) -> (Vec<Check>, bool) {
    let plan = Plan::new(&tree.rules, request, &TwoHashes);
    assert_eq!(plan.has_starts(), plan.all_or_nothing());
    (plan.checks().to_vec(), plan.all_or_nothing())
}

fn operations(tree: &Tree, descriptors: &[Sent<'_>]) -> Vec<Operation> {
    let (checks, _) = planned(tree, &sent(descriptors));
    checks.iter().map(|check| check.operation).collect()
}

fn step(id: &str, step: Step) -> Operation {
    Operation {
        hits: Hits::Reservation(step),
        holder: Some(hash_holder(id.as_bytes(), &TwoHashes)),
    }
}

fn start(id: &str, hits: u64, remember_refused: bool) -> Operation {
    let reserve = Step::Reserve {
        hits,
        expiry: EXPIRY,
        remember_refused,
    };
    step(id, reserve)
}

fn end(id: &str, hits: u64) -> Operation {
    let otherwise = Otherwise::Charge;
    step(id, Step::Commit { hits, otherwise })
}

const LOOK: Hits = Hits::PEEK;
const BOB: Path<'static> = &[("user", "bob")];
const BOB_1: Path<'static> = &[("user", "bob"), ("id", "1")];
const BOB_2: Path<'static> = &[("user", "bob"), ("id", "2")];

#[test]
fn explicit_hits_with_an_id_start_and_end_a_reservation() {
    let tree = Tree::new().with(&[("user", "")], tokens());
    for (path, hits, explicit, operation) in [
        (BOB_1, LOOK, true, start("1", 800, true)),
        (BOB_1, Hits::Take(7), true, end("1", 7)),
        (BOB_1, Hits::Take(u64::MAX), true, end("1", u64::MAX)),
        // Nothing explicit, or no id.
        (BOB_1, Hits::Take(1), false, Hits::Take(1).into()),
        (BOB_1, LOOK, false, LOOK.into()),
        (BOB, LOOK, true, LOOK.into()),
        (BOB, Hits::Take(7), true, Hits::Take(7).into()),
        (BOB_1, Hits::Refund(3), false, Hits::Refund(3).into()),
    ] {
        let planned = operations(&tree, &[(path, hits, explicit)]);
        assert_eq!(planned, [operation], "{path:?} {hits:?} {explicit}");
    }
}

#[test]
fn the_id_is_no_part_of_the_bucket() {
    let tree = Tree::new().with(&[("user", "")], tokens());
    let of = |path| planned(&tree, &sent(&[(path, LOOK, true)])).0[0].key;
    assert_eq!(of(BOB_1), of(BOB));
    assert_eq!(of(BOB_1), of(BOB_2));
    assert_ne!(of(BOB), of(&[("user", "eve")]));
}

#[test]
fn only_a_start_makes_a_request_all_or_nothing() {
    let tree = Tree::new()
        .with(&[("user", "")], tokens())
        .with(&[("plain", "")], limited(5, Unit::Minute));
    let plain: Sent<'_> = (&[("plain", "v")], Hits::Take(1), false);
    let all = |descriptors: &[Sent<'_>]| planned(&tree, &sent(descriptors)).1;
    assert!(all(&[plain, (BOB_1, LOOK, true)]));
    assert!(!all(&[plain, (BOB_1, Hits::Take(3), true)]));
    assert!(!all(&[plain, (BOB_1, LOOK, false)]));
    assert!(!all(&[plain]));
}

#[test]
fn a_learnt_amount_is_its_floor_until_it_is_set() {
    let estimate = Estimate {
        percent: 95,
        floor: 40,
        ceiling: 900,
        scope: EstimateScope::Key,
    };
    let rule = reserving(
        ReserveAmount::Learnt(estimate),
        limited(1_000, Unit::Minute),
    );
    let tree = Tree::new()
        .with(&[("user", "")], rule)
        .with(&[("plain", "")], limited(5, Unit::Minute));
    let request = sent(&[
        (&[("plain", "v")], Hits::Take(1), true),
        (BOB_1, LOOK, true),
        (BOB_2, Hits::Take(9), true),
    ]);
    let mut plan = Plan::new(&tree.rules, &request, &TwoHashes);
    assert_eq!(plan.checks()[1].operation, start("1", 40, true));
    let mut starts = 0;
    for (rule, check) in plan.starts_mut() {
        assert!(rule.reserve.is_some());
        let Hits::Reservation(Step::Reserve { hits, .. }) = &mut check.operation.hits else {
            panic!("it starts a reservation");
        };
        *hits = 123;
        starts += 1;
    }
    assert_eq!(starts, 1, "neither the plain limit nor the end");
    assert_eq!(plan.checks()[1].operation, start("1", 123, true));
}

#[test]
fn a_price_multiplies_hits_and_not_the_reserved_amount() {
    let tree = Tree::new().with(&[("user", "")], priced("0.4", tokens()));
    for (hits, explicit, operation) in [
        (LOOK, true, start("1", 800, true)),
        (Hits::Take(1_000), true, end("1", 400)),
        (Hits::Take(3), true, end("1", 2)),
        (Hits::Take(1), false, Hits::Take(1).into()),
        (Hits::Refund(5), false, Hits::Refund(2).into()),
    ] {
        assert_eq!(operations(&tree, &[(BOB_1, hits, explicit)]), [operation]);
    }
}

#[test]
fn limits_that_need_not_refuse_remember_no_refusal() {
    for rule in [shadow(tokens()), quota(tokens())] {
        let tree = Tree::new().with(&[("user", "")], rule);
        let planned = operations(&tree, &[(BOB_1, LOOK, true)]);
        assert_eq!(planned, [start("1", 800, false)]);
    }
    // So does every limit of a service in shadow mode.
    let tree = Tree::new().with(&[("user", "")], tokens());
    let request = sent(&[(BOB_1, LOOK, true)]);
    let mut plan = Plan::new(&tree.rules, &request, &TwoHashes);
    plan.forget_refused_starts();
    assert_eq!(plan.checks()[0].operation, start("1", 800, false));
}

#[test]
fn limits_beside_it_without_reservations_look_and_take_as_always() {
    let plain = called("plain", limited(50, Unit::Hour));
    let tree = Tree::new().with_all(&[("user", "")], [tokens(), plain]);
    let started = operations(&tree, &[(BOB_1, LOOK, true)]);
    assert_eq!(started, [start("1", 800, true), LOOK.into()]);
    let ended = operations(&tree, &[(BOB_1, Hits::Take(9), true)]);
    assert_eq!(ended, [end("1", 9), Hits::Take(9).into()]);
}

#[test]
fn a_replaced_limit_reserves_nothing() {
    let tree = Tree::new()
        .with(&[("user", "")], called("tokens", tokens()))
        .with(&[("vip", "")], replacing(&["tokens"], tokens()));
    let vip: Path<'_> = &[("vip", "v"), ("id", "1")];
    let planned = operations(&tree, &[(BOB_1, LOOK, true), (vip, LOOK, true)]);
    assert_eq!(planned, [start("1", 800, true)]);
}

#[test]
fn a_limit_of_the_request_has_no_reservations() {
    let tree = Tree::new().with(&[("user", "")], tokens());
    let limit = Some(Override::Limit(per(5, Unit::Second)));
    for hits in [LOOK, Hits::Take(3)] {
        let request = sent_within(&[(BOB_1, hits, true)], limit);
        let (checks, all_or_nothing) = planned(&tree, &request);
        assert_eq!(checks[0].operation, hits.into());
        assert!(!all_or_nothing);
    }
    // One without a unit is ignored.
    let request = sent_within(&[(BOB_1, LOOK, true)], Some(Override::Invalid));
    assert_eq!(
        planned(&tree, &request).0[0].operation,
        start("1", 800, true)
    );
}

#[test]
fn nothing_used_of_one_limit_ends_there_what_the_request_ends_elsewhere() {
    let tree = Tree::new()
        .with(&[("in", "")], tokens())
        .with(&[("out", "")], tokens());
    let [input, output]: [Path<'_>; 2] =
        [&[("in", "v"), ("id", "1")], &[("out", "v"), ("id", "1")]];
    let other: Path<'_> = &[("out", "v"), ("id", "2")];
    for order in [[0, 1], [1, 0]] {
        let both = [(input, Hits::Take(9), true), (output, LOOK, true)];
        let ends = [end("1", 9), end("1", 0)];
        let request = order.map(|index: usize| both[index]);
        assert_eq!(
            operations(&tree, &request),
            order.map(|index: usize| ends[index])
        );
        assert!(!planned(&tree, &sent(&request)).1, "it starts nothing");
    }
    // Another id is another stream.
    let mixed = [(input, Hits::Take(9), true), (other, LOOK, true)];
    assert_eq!(
        operations(&tree, &mixed),
        [end("1", 9), start("2", 800, true)]
    );
    assert!(planned(&tree, &sent(&mixed)).1);
}

// === budgets ===

const IN: Path<'static> = &[("user", "bob"), ("kind", "in"), ("id", "1")];
const OUT: Path<'static> = &[("user", "bob"), ("kind", "out"), ("id", "1")];

/// Input and output tokens of one budget, at these prices.
fn budget(prices: [&str; 2]) -> Tree {
    let rule = |price| of_budget("spend", priced(price, tokens()));
    Tree::new()
        .with(&[("user", ""), ("kind", "in")], rule(prices[0]))
        .with(&[("user", ""), ("kind", "out")], rule(prices[1]))
}

#[test]
fn limits_of_one_budget_and_one_parent_share_a_bucket() {
    let tree = budget(["1", "4"]);
    let key = |path| planned(&tree, &sent(&[(path, LOOK, true)])).0[0].key;
    assert_eq!(key(IN), key(OUT));
    assert_eq!(key(IN), key(&[("user", "bob"), ("kind", "out")]));
    assert_ne!(key(IN), key(&[("user", "eve"), ("kind", "in")]));
    // Neither the last level nor the name decides, but the budget's name does.
    let rule = |budget: &str, name: &str| of_budget(budget, called(name, tokens()));
    let tree = Tree::new()
        .with(&[("a", "")], rule("spend", "one"))
        .with(&[("b", "")], rule("spend", "two"))
        .with(&[("c", "")], rule("other", "one"))
        .with(&[("d", "")], called("spend", tokens()));
    let key = |name| planned(&tree, &sent(&[(&[(name, "v")], LOOK, false)])).0[0].key;
    assert_eq!(key("a"), key("b"));
    assert_ne!(key("a"), key("c"));
    assert_ne!(key("a"), key("d"));
    // A limit of the level above with the budget's name is another bucket.
    let tree = Tree::new()
        .with(&[("user", "")], called("spend", tokens()))
        .with(&[("user", ""), ("kind", "")], rule("spend", ""));
    let key = |path| planned(&tree, &sent(&[(path, LOOK, false)])).0[0].key;
    assert_ne!(key(BOB), key(&[("user", "bob"), ("kind", "in")]));
}

#[test]
fn a_settle_of_one_budget_is_rounded_up_once() {
    let tree = budget(["0.3", "1.2"]);
    let both = [(IN, Hits::Take(1), true), (OUT, Hits::Take(1), true)];
    // 0.3 and 1.2 are 1.5, and not 1 and 2.
    assert_eq!(operations(&tree, &both), [end("1", 2), LOOK.into()]);
    // A start reserves the amount of the budget once.
    let both = [(IN, LOOK, true), (OUT, LOOK, true)];
    assert_eq!(
        operations(&tree, &both),
        [start("1", 800, true), LOOK.into()]
    );
    // Nothing of one kind is part of the end.
    for both in [
        [(IN, LOOK, true), (OUT, Hits::Take(5), true)],
        [(OUT, Hits::Take(5), true), (IN, LOOK, true)],
    ] {
        assert_eq!(operations(&tree, &both), [end("1", 6), LOOK.into()]);
    }
    // Takes and refunds, too; different things stay apart.
    let taken = [(IN, Hits::Take(1), false), (OUT, Hits::Take(1), false)];
    assert_eq!(
        operations(&tree, &taken),
        [Hits::Take(2).into(), LOOK.into()]
    );
    let mixed = [(IN, Hits::Take(1), false), (OUT, Hits::Refund(1), false)];
    assert_eq!(
        operations(&tree, &mixed),
        [Hits::Take(1).into(), Hits::Refund(2).into()]
    );
    let other: Path<'_> = &[("user", "bob"), ("kind", "out"), ("id", "2")];
    let streams = [(IN, Hits::Take(1), true), (other, Hits::Take(1), true)];
    assert_eq!(operations(&tree, &streams), [end("1", 1), end("2", 2)]);
    let other: Path<'_> = &[("user", "eve"), ("kind", "out"), ("id", "1")];
    let users = [(IN, Hits::Take(1), true), (other, Hits::Take(1), true)];
    assert_eq!(operations(&tree, &users), [end("1", 1), end("1", 2)]);
}

#[test]
fn a_sum_of_many_prices_is_exact() {
    let tree = budget(["0.1", "0.1"]);
    let many: Vec<_> = [(IN, Hits::Take(1), true)].repeat(10);
    let planned = operations(&tree, &many);
    assert_eq!(planned[0], end("1", 1));
    assert!(planned[1..].iter().all(|one| *one == LOOK.into()));
    let most = [
        (IN, Hits::Take(u64::MAX), true),
        (OUT, Hits::Take(u64::MAX), true),
    ];
    let dear = budget(["1000000", "1000000"]);
    assert_eq!(operations(&dear, &most)[0], end("1", u64::MAX));
}

#[test]
fn descriptors_of_one_budget_have_one_verdict() {
    let rule = |price| {
        let limit = counted(per(10, Unit::Minute), "sliding_window");
        of_budget("spend", priced(price, limit))
    };
    let tree = Tree::new()
        .with(&[("user", ""), ("kind", "in")], called("in", rule("1")))
        .with(&[("user", ""), ("kind", "out")], called("out", rule("4")));
    let mut buckets = Buckets::default();
    let mut decide = |hits: [u64; 2]| {
        let request = sent(&[
            (IN, Hits::Take(hits[0]), true),
            (OUT, Hits::Take(hits[1]), true),
        ]);
        let request = request_without_ids(&request);
        let plan = Plan::new(&tree.rules, &request, &TwoHashes);
        let outcomes = buckets.apply(plan.checks(), at(60));
        said(&concluded(&plan, &outcomes, Modes::default()))
    };
    assert_eq!(decide([1, 1]), ["in Ok 5", "out Ok 5"]);
    // 2 + 4 do not fit, though each alone would.
    assert_eq!(decide([2, 1]), ["in OverLimit 0", "out OverLimit 0"]);
    assert_eq!(decide([1, 1]), ["in Ok 0", "out Ok 0"]);
}

fn request_without_ids<'a>(request: &Request<'a>) -> Request<'a> {
    let mut without = Request::new(request.domain);
    for descriptor in request.descriptors() {
        let (_, entries) = descriptor.entries.split_last().unwrap();
        without.push_descriptor(entries.iter().copied(), descriptor.hits, None);
    }
    without
}

fn said(decision: &Decision<'_>) -> Vec<String> {
    let statuses = decision.statuses.iter();
    let said = statuses.map(|status| {
        let name = status.current_limit.map_or("", |limit| limit.name);
        format!("{name} {:?} {}", status.code, status.remaining)
    });
    said.collect()
}

#[test]
fn a_budget_beside_another_limit_keeps_its_place() {
    let day = || {
        of_budget(
            "day",
            priced(
                "2",
                counted(Limit::per(90, Unit::Day, NonZeroU32::MIN), "fixed_window"),
            ),
        )
    };
    let hourly = || called("plain", limited(7, Unit::Hour));
    let tree = Tree::new()
        .with_all(&[("user", ""), ("kind", "in")], [hourly(), day()])
        .with_all(&[("user", ""), ("kind", "out")], [day(), hourly()]);
    let [input, output]: [Path<'_>; 2] = [&IN[..2], &OUT[..2]];
    let request = sent(&[
        (input, Hits::Take(1), false),
        (output, Hits::Take(2), false),
    ]);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    let operations: Vec<_> = plan.checks().iter().map(|it| it.operation.hits).collect();
    let take = Hits::Take;
    assert_eq!(operations, [take(1), take(6), LOOK, take(2)]);
    let outcomes = Buckets::default().apply(plan.checks(), at(60));
    let decision = concluded(&plan, &outcomes, Modes::default());
    assert_eq!(decision.code, Code::Ok);
    assert_eq!(said(&decision), ["plain Ok 6", "plain Ok 5"]);
}
