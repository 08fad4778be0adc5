//! Property test: values that fit the schema render and validate, or a guard rejects them with a
//! reason.
//!
//! How: random values from the schema (`arbitrary`), a few at a time, since most errors need two
//! values; rendered by one helm and for one Kubernetes. The seed is fixed: `SEED=…` sets another,
//! `CASES=…` the number of cases.
//!
//! What it deliberately does not do: shrink. A case sets only a few values.

use serde_json::Value;

use crate::chart::arbitrary::Arbitrary;
use crate::chart::invalid_values::guards;
use crate::chart::matrix::KUBERNETES;
use crate::chart::rendering::{HELMS, chart, read, template, validated};

fn number(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(otherwise, |given| given.parse().expect(variable))
}

/// Seed and values of a case, and helm's result.
type CaseResult = (u64, Value, Result<String, String>);

fn run_case(schema: &Value, seed: u64) -> CaseResult {
    let values = Arbitrary::of_seed(schema, seed).values(2 + (seed % 4) as usize);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), values.to_string()).expect("the values");
    let file = format!("--values={}", file.path().display());
    let kubernetes = format!("--kube-version={}", kubernetes(seed));
    let version = HELMS[(seed % 2) as usize];
    (
        seed,
        values,
        template(version, &chart(), &[&file, &kubernetes]),
    )
}

/// Not the oldest: operators must leave out fields that it lacks (an AppArmor profile).
fn kubernetes(seed: u64) -> &'static str {
    KUBERNETES[1 + (seed / 2 % 3) as usize]
}

#[test]
fn values_that_fit_the_schema_render_and_validate() {
    let schema: Value = serde_json::from_str(&read("helm/tollgate/values.schema.json")).unwrap();
    let first = number("SEED", 1_000);
    let seeds = first..first + number("CASES", 80);
    let (one, other): (Vec<_>, Vec<_>) = seeds.partition(|seed| seed % 2 == 0);
    let all = |seeds: Vec<u64>| {
        seeds
            .into_iter()
            .map(|seed| run_case(&schema, seed))
            .collect()
    };
    let [mut cases, more]: [Vec<CaseResult>; 2] = std::thread::scope(|scope| {
        let threads = [one, other].map(|seeds| scope.spawn(move || all(seeds)));
        threads.map(|thread| thread.join().expect("helm runs"))
    });
    cases.extend(more);
    let guards = guards();
    let mut rendered = Vec::new();
    for (seed, values, made) in &cases {
        match made {
            Ok(text) => rendered.push((seed, values, text)),
            Err(said) => assert!(
                guards.iter().any(|guard| said.contains(guard.as_str())),
                "SEED={seed} CASES=1: {values}: {said}"
            ),
        }
    }
    // Rejections are random too; a test that is mostly rejected would test nothing.
    assert!(
        rendered.len() * 2 > cases.len(),
        "{} of {} render",
        rendered.len(),
        cases.len()
    );
    let renders: Vec<_> = rendered
        .iter()
        .map(|(seed, _, text)| (kubernetes(**seed), text.as_str()))
        .collect();
    for ((seed, values, _), (objects, complaints)) in rendered.iter().zip(validated(&renders)) {
        assert_eq!(complaints, [""; 0], "SEED={seed} CASES=1: {values}");
        assert!(objects.iter().any(|object| object["kind"] == "Deployment"));
        for object in objects {
            let name = object["metadata"]["name"].as_str().expect("a name");
            assert!(
                name.len() <= 63 || object["kind"] != "Service",
                "SEED={seed} CASES=1: {name}"
            );
        }
    }
}
