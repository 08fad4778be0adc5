//! The answer: one complete status for each descriptor, in the order sent.
//!
//! How: requests run from rules to decision, at 1234 seconds, 26 before the minute ends. The table
//! is the reference service's:
//!
//! | case | code | current limit | remaining | duration |
//! | --- | --- | --- | --- | --- |
//! | no match, replaced, unknown domain | OK | – | 0 | – |
//! | unlimited | OK | – | 4294967295 | – |
//! | under | OK | yes | limit − after | yes |
//! | over | OVER_LIMIT | yes | 0 | yes |
//! | over, rule in shadow mode | OK | yes | 0 | yes |
//!
//! What it deliberately does not do: quotas, headers, or the plan (`planning` does).

use tollgate_limiter::{
    Code, CurrentLimit, Hits, Limit, Override, Plan, Request, Status, Timestamp, Unit,
};

use tollgate_test_model::fixtures::{
    Asked, Buckets, Tree, TwoHashes, at, called, conclude, conclude_unasked, counted, entries,
    limited, per, replacing, request, request_in, shadow, take, take_within, unlimited,
};

const PASS: Status<'static> = Status {
    quota: false,
    code: Code::Ok,
    current_limit: None,
    remaining: 0,
    until_reset_us: None,
    can_retry: false,
    check_index: None,
};

const UNLIMITED: Status<'static> = Status {
    remaining: 4_294_967_295,
    ..PASS
};

const NOW: u64 = 1_234;

/// 1260 − 1234, in microseconds.
const TO_EDGE_US: u64 = 26_000_000;

fn status(code: Code, name: &str, limit: Limit, remaining: u64, until_us: u64) -> Status<'_> {
    Status {
        quota: false,
        code,
        current_limit: Some(CurrentLimit { name, limit }),
        remaining,
        until_reset_us: Some(until_us),
        can_retry: code == Code::OverLimit,
        check_index: None,
    }
}

fn statuses<'r>(tree: &'r Tree, buckets: &mut Buckets, asked: &[Asked<'_>]) -> Vec<Status<'r>> {
    let decision = buckets.decide(&tree.rules, &request(asked), at(NOW));
    let over = decision
        .statuses
        .iter()
        .any(|status| status.code == Code::OverLimit);
    assert_eq!(decision.code == Code::OverLimit, over);
    told(decision.statuses)
}

/// The statuses without the index of the check, which callers do not see.
fn told(statuses: Vec<Status<'_>>) -> Vec<Status<'_>> {
    let told = |status| Status {
        check_index: None,
        ..status
    };
    statuses.into_iter().map(told).collect()
}

fn tree() -> Tree {
    Tree::new()
        .with(&[("plan", "gold")], unlimited())
        .with(
            &[("plan", "free")],
            called("free", limited(3, Unit::Minute)),
        )
        .with(
            &[("plan", "trial")],
            shadow(called("trial", limited(1, Unit::Minute))),
        )
        .with(
            &[("upgrade", "")],
            replacing(&["free"], limited(10, Unit::Minute)),
        )
        .with_bare(&[("plan", "staff")])
}

#[test]
fn all_cases_in_one_request_and_in_its_order() {
    let tree = tree();
    let mut buckets = Buckets::default();
    let minute = |requests| per(requests, Unit::Minute);
    let asked = [
        take(&[("plan", "nobody")], 1),
        take(&[("plan", "free")], 2),
        take(&[("plan", "gold")], 1),
        take(&[("plan", "free")], 2),
        take(&[("plan", "trial")], 1),
        take(&[("plan", "trial")], 1),
        take(&[("plan", "staff")], 1),
        take(&[], 1),
        take_within(&[("any", "thing")], 4, Override::Limit(minute(5))),
    ];
    assert_eq!(
        statuses(&tree, &mut buckets, &asked),
        [
            PASS,
            status(Code::Ok, "free", minute(3), 1, TO_EDGE_US), // after 2
            UNLIMITED,
            status(Code::OverLimit, "free", minute(3), 0, TO_EDGE_US), // after 4
            status(Code::Ok, "trial", minute(1), 0, TO_EDGE_US),       // after 1
            status(Code::Ok, "trial", minute(1), 0, TO_EDGE_US),       // after 2: over, in shadow
            PASS,
            PASS,
            status(Code::Ok, "", minute(5), 1, TO_EDGE_US), // after 4
        ]
    );
}

#[test]
fn a_replaced_rule_passes_uncounted() {
    let tree = tree();
    let mut buckets = Buckets::default();
    let free = take(&[("plan", "free")], 3);
    let asked = [take(&[("plan", "free")], 3), take(&[("upgrade", "now")], 3)];
    assert_eq!(
        statuses(&tree, &mut buckets, &asked),
        [
            PASS,
            status(Code::Ok, "", per(10, Unit::Minute), 7, TO_EDGE_US)
        ]
    );
    // All three are still there.
    assert_eq!(
        statuses(&tree, &mut buckets, &[free]),
        [status(
            Code::Ok,
            "free",
            per(3, Unit::Minute),
            0,
            TO_EDGE_US
        )]
    );
}

#[test]
fn an_unknown_domain_always_passes() {
    let tree = tree();
    let asked = [
        take(&[("plan", "gold")], 1),
        take(&[("plan", "free")], 99),
        take_within(
            &[("plan", "free")],
            1,
            Override::Limit(per(0, Unit::Minute)),
        ),
    ];
    let elsewhere = request_in("elsewhere", &asked);
    let plan = Plan::new(&tree.rules, &elsewhere, &TwoHashes);
    assert!(!plan.domain_known());
    assert!(plan.checks().is_empty());
    let decision = conclude(&plan, &[]);
    assert_eq!(decision.code, Code::Ok);
    assert_eq!(decision.statuses, [PASS, PASS, PASS]);
}

#[test]
fn a_request_without_descriptors_passes() {
    let tree = tree();
    let decision = Buckets::default().decide(&tree.rules, &request(&[]), at(NOW));
    assert_eq!((decision.code, decision.statuses), (Code::Ok, vec![]));
}

#[test]
fn shadow_mode_never_makes_the_response_over_limit() {
    let tree = tree();
    let asked = [take(&[("plan", "trial")], 9)];
    let decision = Buckets::default().decide(&tree.rules, &request(&asked), at(NOW));
    assert_eq!(decision.code, Code::Ok);
}

#[test]
fn over_limit_reports_retry_and_every_other_status_reset() {
    let tree = Tree::new()
        .with(
            &[("bucket", "")],
            counted(per(10, Unit::Minute), "token_bucket"),
        )
        .with(
            &[("shadow", "")],
            shadow(counted(per(10, Unit::Minute), "token_bucket")),
        );
    let mut buckets = Buckets::default();
    let mut seconds = |path, hits| {
        let statuses = statuses(&tree, &mut buckets, &[take(path, hits)]);
        (
            statuses[0].code,
            statuses[0].until_reset_us.unwrap() / 1_000_000,
        )
    };
    // One comes every six seconds: ten are there again after sixty, one after six, two after
    // twelve.
    assert_eq!(seconds(&[("bucket", "a")], 10), (Code::Ok, 60));
    assert_eq!(seconds(&[("bucket", "a")], 1), (Code::OverLimit, 6));
    assert_eq!(seconds(&[("bucket", "a")], 2), (Code::OverLimit, 12));
    // Eleven never fit, so the duration is reset.
    assert_eq!(seconds(&[("bucket", "a")], 11), (Code::OverLimit, 60));
    // In shadow mode the code is OK, and so the duration is reset.
    assert_eq!(seconds(&[("shadow", "a")], 10), (Code::Ok, 60));
    assert_eq!(seconds(&[("shadow", "a")], 1), (Code::Ok, 60));
}

#[test]
fn a_refund_is_ok_even_where_the_limit_is_still_exceeded() {
    let tree = tree();
    let mut buckets = Buckets::default();
    let mut ask = |hits| {
        let asked = Asked {
            path: &[("plan", "free")],
            hits,
            limit: None,
        };
        let status = statuses(&tree, &mut buckets, &[asked])[0];
        (status.code, status.remaining)
    };
    assert_eq!(ask(Hits::Take(9)), (Code::OverLimit, 0));
    assert_eq!(ask(Hits::Refund(2)), (Code::Ok, 0)); // 7 of 3
    assert_eq!(ask(Hits::PEEK), (Code::OverLimit, 0));
    assert_eq!(ask(Hits::Refund(6)), (Code::Ok, 2)); // 1 of 3
    assert_eq!(ask(Hits::PEEK), (Code::Ok, 2));
}

#[test]
fn the_largest_limit_fits_its_status() {
    let tree = Tree::new().with(&[("k", "")], limited(u32::MAX.into(), Unit::Minute));
    let mut buckets = Buckets::default();
    let mut remaining =
        |hits| statuses(&tree, &mut buckets, &[take(&[("k", "v")], hits)])[0].remaining;
    assert_eq!(remaining(0), u32::MAX.into());
    assert_eq!(remaining(1), u64::from(u32::MAX) - 1);
}

#[test]
fn without_a_store_only_enforced_limits_refuse() {
    let tree = tree();
    let mut asked = Request::new(Tree::DOMAIN.as_bytes());
    let mut push = |path, hits| asked.push_descriptor(entries(path), hits, None);
    push(&[("plan", "free")], Hits::Take(1));
    push(&[("plan", "free")], Hits::Refund(1));
    push(&[("plan", "trial")], Hits::Take(1));
    push(&[("plan", "gold")], Hits::Take(1));
    push(&[("plan", "staff")], Hits::Take(1));
    let plan = Plan::new(&tree.rules, &asked, &TwoHashes);

    let deny = conclude_unasked(&plan, Code::OverLimit);
    assert_eq!(deny.code, Code::OverLimit);
    let over = status(
        Code::OverLimit,
        "free",
        per(3, Unit::Minute),
        0,
        Timestamp::from_seconds(1).as_us(),
    );
    assert_eq!(told(deny.statuses), [over, PASS, PASS, UNLIMITED, PASS]);

    let allow = conclude_unasked(&plan, Code::Ok);
    assert_eq!(allow.code, Code::Ok);
    assert_eq!(told(allow.statuses), [PASS, PASS, PASS, UNLIMITED, PASS]);
}

#[test]
fn an_undecided_check_that_can_never_pass_gets_no_retry_time() {
    let tree = tree();
    // Of 3 a minute.
    for (hits, told) in [
        (0, (true, 1)),
        (3, (true, 1)),
        (4, (false, 60)),
        (u64::MAX, (false, 60)),
    ] {
        let request = request(&[take(&[("plan", "free")], hits)]);
        let plan = Plan::new(&tree.rules, &request, &TwoHashes);
        let status = conclude_unasked(&plan, Code::OverLimit).statuses[0];
        assert_eq!(status.code, Code::OverLimit);
        let until_us = status.until_reset_us.unwrap();
        assert_eq!((status.can_retry, until_us / 1_000_000), told, "{hits}");
    }
}

#[test]
fn an_outcome_that_is_missing_passes() {
    let tree = tree();
    let asked = [take(&[("plan", "free")], 1), take(&[("plan", "free")], 9)];
    let plan_request = request(&asked);
    let plan = Plan::new(&tree.rules, &plan_request, &TwoHashes);
    let outcomes = Buckets::default().apply(&plan.checks()[..1], at(NOW));
    let decision = conclude(&plan, &outcomes);
    assert_eq!(decision.code, Code::Ok);
    assert_eq!(told(decision.statuses)[1], PASS);
}
