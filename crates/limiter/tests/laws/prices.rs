//! What a settle costs, by exact fractions of big integers.
//!
//! Prices are read here from their text, so a mistake in `Cost::parse` is found, too.
//!
//! What it deliberately does not do: test buckets.

use num_bigint::BigUint;
use proptest::prelude::*;
use tollgate_limiter::{Cost, Hits, Plan, Request, ReserveAmount, Rule, Step, Unit};

use tollgate_test_model::fixtures::{Path, Tree, TwoHashes, entries, limited, reserving};
use tollgate_test_model::random_cases;

const IN: Path<'static> = &[("user", "bob"), ("kind", "in"), ("id", "1")];
const OUT: Path<'static> = &[("user", "bob"), ("kind", "out"), ("id", "1")];

/// A price as text.
fn price() -> impl Strategy<Value = String> {
    let written = (0_u64..=999_999, "[0-9]{1,6}");
    let decimal = written.prop_map(|(whole, decimals)| format!("{whole}.{decimals}"));
    let usual = prop_oneof![Just("1.0"), Just("4.0"), Just("0.000001"), Just("1000000")];
    let price = prop_oneof![3 => decimal, 1 => usual.prop_map(str::to_owned)];
    price.prop_filter("a price of 0", |text| Cost::parse(text).is_ok())
}

fn hits() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1_u64..5_000,
        1 => 1_u64..=9_007_199_254_740_991,
        1 => (u64::MAX - 1_000)..=u64::MAX,
    ]
}

/// The sum of these prices of hits, rounded up once.
fn exact(sold: &[(&str, u64)]) -> u64 {
    let places = 10_u64.pow(9);
    let mut sum = BigUint::ZERO;
    for (price, hits) in sold {
        let (whole, decimals) = price.split_once('.').unwrap_or((price, ""));
        let digits: BigUint = format!("{whole}{decimals:0<9}").parse().unwrap();
        sum += digits * *hits;
    }
    let rounded_up = (sum + (places - 1)) / places;
    u64::try_from(rounded_up).unwrap_or(u64::MAX)
}

/// What the ends of one request charge, by the position of their descriptors.
fn charged(prices: &[String; 2], sold: &[(bool, u64)], shared: bool) -> Vec<u64> {
    let rule = |price: &String| Rule {
        cost: Cost::parse(price).unwrap(),
        budget: shared.then(|| "spend".into()),
        ..reserving(ReserveAmount::Hits(800), limited(1_000, Unit::Minute))
    };
    let tree = Tree::new()
        .with(&[("user", ""), ("kind", "in")], rule(&prices[0]))
        .with(&[("user", ""), ("kind", "out")], rule(&prices[1]));
    let mut request = Request::new(Tree::DOMAIN.as_bytes());
    for (is_output, hits) in sold {
        let path = if *is_output { OUT } else { IN };
        request.push_descriptor(entries(path), Hits::Take(*hits), None);
        request.set_explicit_hits();
    }
    let plan = Plan::new(&tree.rules, &request, &TwoHashes);
    let hits = plan
        .checks()
        .iter()
        .map(|check| match check.operation.hits {
            Hits::Reservation(Step::Commit { hits, .. }) => hits,
            Hits::Take(0) => 0,
            other => panic!("{other:?}"),
        });
    hits.collect()
}

proptest! {
    #![proptest_config(random_cases(2_000))]

    #[test]
    fn a_settle_of_one_budget_costs_the_exact_sum_rounded_up_once(
        prices in [price(), price()],
        sold in proptest::collection::vec((any::<bool>(), hits()), 1..6),
    ) {
        let priced: Vec<_> = sold
            .iter()
            .map(|(is_output, hits)| (prices[usize::from(*is_output)].as_str(), *hits))
            .collect();
        let mut one = vec![0; sold.len()];
        one[0] = exact(&priced);
        prop_assert_eq!(charged(&prices, &sold, true), one);
        // Limits of their own are rounded up each.
        let each: Vec<_> = priced.iter().map(|sold| exact(&[*sold])).collect();
        prop_assert_eq!(charged(&prices, &sold, false), each);
    }
}
