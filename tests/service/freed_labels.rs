//! Label sets of removed rules are freed after their last counts are read: memory stays constant
//! over any number of reloads, and no rule is counted as `overflow`.
//!
//! The test publishes generations like a reload does, adds hits by their counters, and renders
//! `/metrics` and feeds statsd by hand, so that it decides when a reader reads. The allocator
//! counts memory.
//!
//! What it deliberately does not do: decide (`answers`), or bound what requests put into labels
//! (`labels`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use allocation_counter::measure;
use tollgate::metrics::{
    DeltaKind, HitOutcome, MetricDelta, Metrics, REQUEST_LABEL_SETS_MAX, RETIRED_LABEL_SETS_MAX,
    RULE_LABEL_SETS_MAX,
};
use tollgate::pipeline::{Generation, Generations};
use tollgate::rules::file::{self, Options};
use tollgate::rules::path::Source;
use tollgate::rules::reload::Rules;
use tollgate_limiter::{Key, Tally};
use tollgate_test_support::grpc_client::{RateLimitRequest, hits, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::metrics_text::series_value;
use tollgate_test_support::polling::until_async;

const TOTAL_HITS: &str = "ratelimit_service_rate_limit_total_hits";

/// Rules, their counters and their readers.
struct Reloaded {
    metrics: Arc<Metrics>,
    generations: Generations,
    news: MetricDelta,
}

/// Rules of one level with these keys.
fn rules(keys: impl IntoIterator<Item = String>) -> String {
    let limit = "rate_limit: {unit: day, requests_per_unit: 10}";
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for key in keys {
        writeln!(text, "  - {{key: {key}, {limit}}}").unwrap();
    }
    text
}

/// `count` rules that no other round has.
fn round(round: usize, count: usize) -> String {
    rules((0..count).map(|n| format!("k-{round}-{n}")))
}

fn tally(total_hits: u64) -> Tally {
    Tally {
        total_hits,
        ..Tally::default()
    }
}

/// The hits that `/metrics` shows, by the first level of the limit.
fn shown(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines();
    lines
        .filter_map(|line| {
            let (key, value) = line
                .strip_prefix(TOTAL_HITS)?
                .split_once("key1=\"")?
                .1
                .split_once("\",key2=\"\"} ")?;
            Some((key.to_owned(), value.parse().unwrap()))
        })
        .filter(|(key, _)| key != "overflow")
        .collect()
}

fn pairs(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), *value));
    pairs.collect()
}

impl Reloaded {
    fn new(rules: &str) -> Self {
        let metrics = Arc::new(Metrics::new().unwrap());
        let reloaded = Self {
            generations: Generations::new(Arc::clone(&metrics)),
            metrics,
            news: MetricDelta::default(),
        };
        reloaded.reload(rules);
        reloaded
    }

    fn reload(&self, rules: &str) {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: rules.to_owned(),
        };
        let loaded = file::load(&[source], Options::default()).unwrap();
        self.generations.take(Some(Ok(Rules {
            loaded,
            sources: 1,
            hash: 1,
        })));
    }

    fn present(&self) -> Arc<Generation> {
        self.generations.current().unwrap()
    }

    /// Counts a hit of each rule.
    fn hit_each(&self) {
        let generation = self.present();
        for rule in generation.rules.rules() {
            generation
                .counters
                .of(rule)
                .unwrap()
                .add(HitOutcome::Admitted, &tally(1));
        }
    }

    /// Counts hits of the only rule for a value that its label shows.
    fn hit_value(&self, value: &str) {
        let generation = self.present();
        let rule = &generation.rules.rules()[0];
        let of_rule = generation.counters.of(rule).unwrap();
        let name = format!("{}_{value}", rule.path[0].key);
        let key = Key(name
            .bytes()
            .fold(0, |key, byte| key * 256 + u128::from(byte)));
        let labels = || ("d".to_owned(), vec![name]);
        self.metrics
            .limits
            .request_counters(key, Some(of_rule), labels)
            .add(HitOutcome::Admitted, &tally(1));
    }

    fn scrape(&self) -> String {
        self.metrics.render().unwrap()
    }

    fn shown(&self) -> BTreeMap<String, u64> {
        shown(&self.scrape())
    }

    /// The hits sent to statsd, by the limit's own name.
    fn flush(&mut self) -> BTreeMap<String, u64> {
        let mut told = BTreeMap::new();
        let all = self.news.of(&self.metrics, |name, kind, value| {
            let limit = name.strip_prefix("ratelimit.service.rate_limit.d.");
            if let Some(limit) = limit.and_then(|name| name.strip_suffix(".total_hits")) {
                assert_eq!(kind, DeltaKind::Counter);
                told.insert(limit.to_owned(), value);
            }
            true
        });
        assert!(all);
        told
    }
}

#[test]
fn removed_rules_are_shown_by_two_more_scrapes() {
    let reloaded = Reloaded::new(&rules(["old".to_owned(), "kept".to_owned()]));
    reloaded.hit_each();
    assert_eq!(reloaded.shown(), pairs(&[("old", 1), ("kept", 1)]));
    reloaded.hit_each();
    reloaded.reload(&rules(["kept".to_owned(), "new".to_owned()]));
    reloaded.hit_each();
    let both = pairs(&[("old", 2), ("kept", 3), ("new", 1)]);
    assert_eq!(reloaded.shown(), both);
    assert_eq!(reloaded.shown(), both);
    let text = reloaded.scrape();
    assert_eq!(shown(&text), pairs(&[("kept", 3), ("new", 1)]));
    let freed = "tollgate_label_sets_freed_total{reason=\"unused\"}";
    assert_eq!(series_value(&text, freed), 1);
}

#[test]
fn restored_rules_keep_their_counters() {
    let reloaded = Reloaded::new(&rules(["a".to_owned()]));
    for round in 1..=5 {
        reloaded.hit_each();
        reloaded.reload(&rules(["b".to_owned()]));
        assert_eq!(reloaded.shown().get("a"), Some(&round));
        reloaded.reload(&rules(["a".to_owned()]));
        assert_eq!(reloaded.shown().get("a"), Some(&round));
    }
    reloaded.reload(&rules(["b".to_owned()]));
    for _ in 0..3 {
        reloaded.scrape();
    }
    reloaded.reload(&rules(["a".to_owned()]));
    assert_eq!(
        reloaded.shown().get("a"),
        Some(&0),
        "a later rule starts at 0"
    );
}

#[test]
fn removed_rules_in_use_stay_until_their_hits_are_read() {
    let reloaded = Reloaded::new(&rules(["old".to_owned()]));
    let under_way = reloaded.present();
    reloaded.reload(&rules(["new".to_owned()]));
    for _ in 0..10 {
        assert_eq!(reloaded.shown(), pairs(&[("old", 0), ("new", 0)]));
    }
    let rule = &under_way.rules.rules()[0];
    under_way
        .counters
        .of(rule)
        .unwrap()
        .add(HitOutcome::Admitted, &tally(7));
    drop(under_way);
    for _ in 0..2 {
        assert_eq!(reloaded.shown(), pairs(&[("old", 7), ("new", 0)]));
    }
    assert_eq!(reloaded.shown(), pairs(&[("new", 0)]));
}

#[test]
fn two_limits_of_one_series_keep_it_until_both_are_gone() {
    let nested = |keys: &[&str]| {
        let deep = keys
            .iter()
            .map(|key| format!("{{key: {key}, rate_limit: {{unit: day, requests_per_unit: 10}}}}"));
        let deep: Vec<_> = deep.collect();
        format!(
            "domain: d\ndescriptors: [{{key: a, descriptors: [{{key: b, descriptors: [{}]}}]}}]\n",
            deep.join(", ")
        )
    };
    let series = format!("{TOTAL_HITS}{{domain=\"d\",key1=\"a\",key2=\"b\"}}");
    let reloaded = Reloaded::new(&nested(&["x", "y"]));
    reloaded.hit_each();
    reloaded.reload(&nested(&["y"]));
    reloaded.hit_each();
    for _ in 0..5 {
        assert_eq!(
            series_value(&reloaded.scrape(), &series),
            3,
            "it never decreases"
        );
    }
    reloaded.reload("domain: d\n");
    for _ in 0..2 {
        assert!(reloaded.scrape().contains(&series));
    }
    assert!(!reloaded.scrape().contains(&series));
}

#[test]
fn a_thousand_reloads_take_no_memory() {
    let reloaded = Reloaded::new(&round(0, 20));
    let reload = |number: usize| {
        // Names of one length, and so labels of one size.
        reloaded.reload(&round(100_000 + number, 20));
        reloaded.hit_each();
        reloaded.scrape();
    };
    (0..50).for_each(reload);
    let grown = measure(|| (50..1_000).for_each(reload)).bytes_current;
    assert!(grown < 64 << 10, "{grown} bytes");
    assert_eq!(reloaded.shown().len(), 2 * 20);
}

#[test]
fn without_scrapes_a_reload_frees_the_oldest() {
    let reloaded = Reloaded::new(&round(0, 100));
    for number in 1..=200 {
        reloaded.reload(&round(number, 100));
    }
    let text = reloaded.scrape();
    // The last two generations remain as well: the one in use, and the one that was in use when
    // the reload freed label sets.
    assert_eq!(shown(&text).len(), RETIRED_LABEL_SETS_MAX + 200);
    assert!(shown(&text).contains_key("k-200-99"));
    assert!(shown(&text).contains_key("k-189-0"), "the newest stay");
    let freed = "tollgate_label_sets_freed_total{reason=\"bound\"}";
    assert_eq!(series_value(&text, freed), 201 * 100 - 200 - 1_000);
}

#[test]
fn the_bound_applies_to_rules_in_use() {
    let reloaded = Reloaded::new(&round(0, RULE_LABEL_SETS_MAX));
    let overflow = "tollgate_label_overflow_total{bound=\"rule_label_sets\"}";
    reloaded.reload(&round(1, RULE_LABEL_SETS_MAX));
    reloaded.hit_each();
    let text = reloaded.scrape();
    assert_eq!(series_value(&text, overflow), 0);
    assert_eq!(shown(&text).values().sum::<u64>(), 10_000);
    reloaded.reload(&round(2, RULE_LABEL_SETS_MAX + 3));
    assert_eq!(series_value(&reloaded.scrape(), overflow), 3);
    reloaded.reload(&round(3, RULE_LABEL_SETS_MAX));
    reloaded.hit_each();
    let text = reloaded.scrape();
    assert_eq!(series_value(&text, overflow), 3, "no more than before");
    assert_eq!(shown(&text).get("k-3-9999"), Some(&1));
}

#[test]
fn statsd_frees_label_sets_after_its_reading() {
    let mut reloaded = Reloaded::new(&rules(["old".to_owned()]));
    reloaded.metrics.expect_statsd();
    reloaded.flush();
    reloaded.hit_each();
    reloaded.reload(&rules(["new".to_owned()]));
    assert_eq!(reloaded.flush(), pairs(&[("old", 1)]));
    reloaded.flush();
    let shown = reloaded.shown();
    assert_eq!(shown, pairs(&[("new", 0)]));
}

#[test]
fn label_sets_are_freed_after_both_readers() {
    let mut reloaded = Reloaded::new(&rules(["old".to_owned()]));
    reloaded.metrics.expect_statsd();
    reloaded.hit_each();
    reloaded.reload(&rules(["new".to_owned()]));
    for _ in 0..5 {
        assert!(
            reloaded.shown().contains_key("old"),
            "statsd has not read it"
        );
    }
    // A rule set with too many label sets does not flush the others.
    let none = reloaded.news.of(&reloaded.metrics, |_, _, _| false);
    assert!(!none);
    assert_eq!(reloaded.flush(), pairs(&[("old", 1)]));
    assert!(reloaded.shown().contains_key("old"));
    reloaded.flush();
    assert!(!reloaded.shown().contains_key("old"));
}

/// A rule whose label shows the value of the request.
fn detailed(key: &str) -> String {
    format!(
        "domain: d\ndescriptors: [{{key: {key}, detailed_metric: true, rate_limit: {{unit: day}}}}]\n"
    )
}

#[test]
fn labels_from_request_values_are_freed_with_their_rule() {
    let reloaded = Reloaded::new(&detailed("a"));
    reloaded.hit_value("1");
    reloaded.reload(&detailed("a"));
    for _ in 0..5 {
        assert_eq!(reloaded.shown(), pairs(&[("a", 0), ("a_1", 1)]));
    }
    reloaded.hit_value("1");
    reloaded.reload(&detailed("b"));
    for _ in 0..2 {
        let all = pairs(&[("a", 0), ("a_1", 2), ("b", 0)]);
        assert_eq!(reloaded.shown(), all);
    }
    assert_eq!(reloaded.shown(), pairs(&[("b", 0)]));
}

#[test]
fn values_of_a_new_rule_reuse_freed_label_sets() {
    let reloaded = Reloaded::new(&detailed("a"));
    let overflow = "tollgate_label_overflow_total{bound=\"request_label_sets\"}";
    for number in 0..5 {
        for value in 0..REQUEST_LABEL_SETS_MAX {
            reloaded.hit_value(&value.to_string());
        }
        assert_eq!(series_value(&reloaded.scrape(), overflow), 0, "{number}");
        let key = ["b", "a"][number % 2];
        reloaded.reload(&detailed(key));
        // One scrape, fewer than the retention: the oldest are freed early.
        reloaded.scrape();
    }
    reloaded.hit_value("one");
    // The label sets freed for it are shown one last time.
    assert_eq!(reloaded.shown().get("b_one"), Some(&1));
    let left = reloaded.shown().len();
    assert!(left <= REQUEST_LABEL_SETS_MAX + 2, "{left}");
}

#[test]
fn new_values_take_the_space_of_values_without_hits() {
    let reloaded = Reloaded::new(&detailed("a"));
    let overflow = "tollgate_label_overflow_total{bound=\"request_label_sets\"}";
    for value in 0..REQUEST_LABEL_SETS_MAX {
        reloaded.hit_value(&value.to_string());
    }
    reloaded.hit_value("early");
    let text = reloaded.scrape();
    assert_eq!(series_value(&text, overflow), 1, "all have had hits");
    // Two scrapes without hits, but of one value.
    for _ in 0..2 {
        reloaded.hit_value("7");
        reloaded.scrape();
    }
    // Most have had a hit since.
    for value in 8..900 {
        reloaded.hit_value(&value.to_string());
    }
    for value in 0..10 {
        reloaded.hit_value(&format!("new-{value}"));
    }
    let text = reloaded.scrape();
    assert_eq!(series_value(&text, overflow), 1, "no further one");
    let shown = shown(&text);
    assert_eq!(
        (shown.get("a_7"), shown.get("a_new-9")),
        (Some(&3), Some(&1))
    );
    let again = (8..900).map(|value| shown.get(&*format!("a_{value}")));
    assert!(
        again.clone().all(|hits| hits == Some(&2)),
        "a value starts again"
    );
    let hits: u64 = (shown.values().sum::<u64>()) + 1;
    assert_eq!(
        hits,
        REQUEST_LABEL_SETS_MAX as u64 + 13 + 892,
        "no hit is lost"
    );
}

/// Each worker thread holds the rules of its last answer. A reload must wake worker threads without
/// requests.
#[tokio::test]
async fn cores_without_requests_keep_no_old_rules() {
    let mut service = Service::start(&rules(["old".to_owned()]), &["--cores", "4"]).await;
    let asked = || -> RateLimitRequest { request("d", vec![hits("old", "v", 1)]) };
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = Service::connect(service.grpc).await;
        client.should_rate_limit(asked()).await.unwrap();
        clients.push(client);
    }
    assert_eq!(
        shown(&service.metrics.render().unwrap()),
        pairs(&[("old", 8)])
    );
    service.reload(&rules(["new".to_owned()])).await;
    // Worker threads release the old rules when the system schedules them.
    let look = async || {
        let shown = shown(&service.metrics.render().unwrap());
        (shown == pairs(&[("new", 0)])).then_some(()).ok_or(shown)
    };
    until_async("old rules are released", look).await;
}
