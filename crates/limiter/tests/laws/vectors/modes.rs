//! The overall code: quotas, and the modes that apply to every rule.
//!
//! The rule of the reference service: over limit when any status is that is not a quota's, or when
//! there are quotas and all of them are. Unlimited descriptors do not take part. In the quota mode
//! of the whole service every other descriptor is a quota, also those that match nothing. In its
//! shadow mode the overall code is OK, and the statuses still report the refusal.
//!
//! What it deliberately does not do: check statuses (`statuses` does).

use tollgate_limiter::{Code, Modes, Override, Plan, Unit};

use tollgate_test_model::fixtures::{
    Asked, Buckets, Tree, TwoHashes, at, concluded, limited, per, quota, request, shadow, take,
    take_within, unlimited,
};

/// What a letter asks: a rule or a quota that is within (`r`, `q`) or over (`R`, `Q`), a quota that
/// is over in shadow mode (`S`), an override that is over (`O`), unlimited (`u`), nothing
/// configured (`-`).
fn asked(letter: char) -> Asked<'static> {
    match letter {
        'r' => take(&[("rule", "within")], 1),
        'R' => take(&[("rule", "over")], 2),
        'q' => take(&[("quota", "within")], 1),
        'Q' => take(&[("quota", "over")], 2),
        'S' => take(&[("shadow", "over")], 2),
        'O' => take_within(&[("any", "")], 2, Override::Limit(per(1, Unit::Minute))),
        'u' => take(&[("unlimited", "")], 9),
        _ => take(&[("nothing", "")], 9),
    }
}

/// Overall code and whether it was shadowed. Each descriptor starts with a bucket of its own.
fn overall(letters: &str, modes: Modes) -> (Code, bool) {
    let one = || limited(1, Unit::Minute);
    let tree = Tree::new()
        .with(&[("rule", "")], one())
        .with(&[("quota", "")], quota(one()))
        .with(&[("shadow", "")], shadow(quota(one())))
        .with(&[("unlimited", "")], unlimited());
    let asked: Vec<_> = letters.chars().map(asked).collect();
    let request = request(&asked);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    let outcomes = Buckets::default().apply(plan.checks(), at(1_234));
    let decision = concluded(&plan, &outcomes, modes);
    (decision.code, decision.shadowed)
}

const NONE: Modes = Modes {
    shadow: false,
    quota: false,
};

const QUOTA: Modes = Modes {
    quota: true,
    ..NONE
};

/// Descriptors, over limit or not, over limit or not in the service's quota mode.
const OVERALL: &[(&str, bool, bool)] = &[
    ("", false, false),
    ("r", false, false),
    ("R", true, true),   // the only quota, and over
    ("rR", true, false), // one of two quotas is over
    ("RR", true, true),
    ("q", false, false),
    ("Q", true, true), // all quotas there are
    ("qQ", false, false),
    ("Qq", false, false),
    ("QQ", true, true),
    ("rQ", true, false), // the rule is within, but the only quota is over
    ("Rq", true, false), // the rule is over, whatever the quotas say
    ("RqQ", true, false),
    ("QS", false, false), // in shadow mode its code is OK, so not all quotas are over
    ("uQ", true, true),   // unlimited takes no part
    ("-Q", true, false),  // what matches nothing is a quota only when everything is
    ("-R", true, false),
    ("u", false, false),
    ("-", false, false),
    ("O", true, true), // an override is no quota by itself
    ("Oq", true, false),
];

#[test]
fn quotas_refuse_only_together() {
    for &(letters, over, over_as_quotas) in OVERALL {
        for (modes, over) in [(NONE, over), (QUOTA, over_as_quotas)] {
            let code = if over { Code::OverLimit } else { Code::Ok };
            assert_eq!(
                overall(letters, modes),
                (code, false),
                "{letters:?}, {modes:?}"
            );
        }
    }
}

#[test]
fn the_services_shadow_mode_passes_and_marks_the_response() {
    for &(letters, over, over_as_quotas) in OVERALL {
        for (quota, over) in [(false, over), (true, over_as_quotas)] {
            let modes = Modes {
                shadow: true,
                quota,
            };
            assert_eq!(
                overall(letters, modes),
                (Code::Ok, over),
                "{letters:?}, {modes:?}"
            );
        }
    }
}

#[test]
fn the_services_shadow_mode_leaves_the_statuses_alone() {
    let tree = Tree::new().with(&[("rule", "")], limited(1, Unit::Minute));
    let asked = [asked('R')];
    let request = request(&asked);
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    let outcomes = Buckets::default().apply(plan.checks(), at(1_234));
    let modes = Modes {
        shadow: true,
        quota: false,
    };
    let decision = concluded(&plan, &outcomes, modes);
    assert_eq!(decision.statuses[0].code, Code::OverLimit);
    let unasked = plan.decide(&[], Code::OverLimit, modes);
    assert_eq!((unasked.code, unasked.shadowed), (Code::Ok, true));
    assert_eq!(unasked.statuses[0].code, Code::OverLimit);
}
