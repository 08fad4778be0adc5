//! Limits by value in a running service: which limit a request gets, and reloads while requests
//! arrive.
//!
//! What it deliberately does not do: read formats and report bad lines
//! (`tests/rules/limits_from`).

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;
use tollgate::capture::ComparedKeys;
use tollgate_limiter::Allowance;
use tollgate_test_support::grpc_client::{Code, hits, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

use crate::service::candidates::{limits, of_domain};
use crate::service::until_metric;

/// How many values the file of the reload has.
const VALUES: u32 = 20_000;

/// How often it is replaced.
const RELOADS: u32 = 10;

fn rules(table: &Path) -> String {
    format!(
        "domain: d\ndescriptors: [{{key: k, limits_from: {}, rate_limit: {{unit: hour, requests_per_unit: 7}}}}]\n",
        table.display()
    )
}

fn table(lines: &str) -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tenants.csv");
    fs::write(
        &path,
        format!("value,unit,requests_per_unit,unlimited,shadow_mode\n{lines}"),
    )
    .unwrap();
    (directory, path)
}

/// The limit and its remaining hits after another hit.
async fn hit(service: &mut Service, value: &str) -> (u32, u32) {
    let status = service.status("d", hits("k", value, 1)).await;
    let limit = status.current_limit;
    (
        limit.map_or(0, |limit| limit.requests_per_unit),
        status.limit_remaining,
    )
}

#[tokio::test]
async fn each_value_has_its_limit_and_its_bucket() {
    let (_directory, path) = table("a,hour,3,,\nb,hour,5,,\nfree,,,true,\nseen,hour,1,,true\n");
    let mut service = Service::start(&rules(&path), &[]).await;
    assert_eq!(hit(&mut service, "a").await, (3, 2));
    assert_eq!(hit(&mut service, "b").await, (5, 4));
    assert_eq!(hit(&mut service, "a").await, (3, 1));
    assert_eq!(hit(&mut service, "c").await, (7, 6));
    assert_eq!(hit(&mut service, "*").await, (7, 6));
    assert_eq!(hit(&mut service, "free").await, (0, u32::MAX));
    hit(&mut service, "seen").await;
    let shadowed = service.status("d", hits("k", "seen", 1)).await;
    assert_eq!(shadowed.code(), Code::Ok, "the line's shadow mode");
    service.status("d", hits("k", "a", 1)).await;
    let refused = service.status("d", hits("k", "a", 1)).await;
    assert_eq!(refused.code(), Code::OverLimit);
    // All are counted under the labels of the descriptor.
    let labels = "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"k\",key2=\"\"}";
    assert_eq!(service.metric(labels), 9);
    let text = service.metrics.render().unwrap();
    assert!(!text.contains("\"k_a\""), "no value is a label");
}

#[tokio::test]
async fn a_changed_line_keeps_its_bucket_and_a_bad_file_changes_nothing() {
    let (_directory, path) = table("a,hour,10,,\n");
    let text = rules(&path);
    let mut service = Service::start(&text, &[]).await;
    assert_eq!(hit(&mut service, "a").await, (10, 9));
    fs::write(&path, "value,unit,requests_per_unit\na,hour,20\n").unwrap();
    service.reload(&text).await;
    assert_eq!(
        hit(&mut service, "a").await,
        (20, 18),
        "what was taken stays"
    );
    fs::write(
        &path,
        "value,unit,requests_per_unit\na,hour,30\na,hour,40\n",
    )
    .unwrap();
    service.reload(&text).await;
    assert_eq!(
        hit(&mut service, "a").await,
        (20, 17),
        "the old table stays"
    );
    let why = service.generations.refused().unwrap().to_string();
    assert!(why.contains("tenants.csv:3:1"), "{why}");
    fs::write(&path, "value,unit,requests_per_unit\nother,hour,30\n").unwrap();
    service.reload(&text).await;
    assert_eq!(
        hit(&mut service, "a").await,
        (7, 3),
        "the limit of the rule, in the same bucket"
    );
}

/// A plan has several limits, and all values that have it get another one at a reload, in the
/// buckets that they had.
#[tokio::test]
async fn lines_may_name_plans() {
    let (_directory, path) = table("");
    fs::write(
        &path,
        "value,unit,requests_per_unit,plan,shadow_mode\na,,,free,\nb,,,pro,\nc,hour,3,,\nd,,,free,true\n",
    )
    .unwrap();
    let rules = |pro: u32| {
        let plans = format!(
            "plans: {{free: {{unit: hour, requests_per_unit: 2}}, \
             pro: [{{unit: day, requests_per_unit: {pro}}}, {{unit: hour, requests_per_unit: 5}}]}}\n"
        );
        rules(&path) + &plans
    };
    let mut service = Service::start(&rules(4), &[]).await;
    assert_eq!(hit(&mut service, "a").await, (2, 1));
    assert_eq!(hit(&mut service, "b").await, (4, 3), "the tighter limit");
    assert_eq!(hit(&mut service, "c").await, (3, 2));
    assert_eq!(
        hit(&mut service, "x").await,
        (7, 6),
        "the limit of the rule"
    );
    hit(&mut service, "a").await;
    let refused = service.status("d", hits("k", "a", 1)).await;
    assert_eq!(refused.code(), Code::OverLimit);
    for _ in 0..3 {
        let shadowed = service.status("d", hits("k", "d", 1)).await;
        assert_eq!(shadowed.code(), Code::Ok, "the line's shadow mode");
    }
    service.reload(&rules(40)).await;
    assert_eq!(hit(&mut service, "b").await, (5, 3), "what was taken stays");
    // A plan that is not there changes nothing.
    fs::write(&path, "value,plan\na,gold\n").unwrap();
    service.reload(&rules(40)).await;
    assert_eq!(hit(&mut service, "b").await, (5, 2));
    let why = service.generations.refused().unwrap().to_string();
    assert!(why.contains("there is no plan 'gold'"), "{why}");
}

#[tokio::test]
async fn the_admin_port_shows_a_table_as_one_rule() {
    let (_directory, path) = table("a,hour,3,,\nb,minute,5,,\n");
    let mut service = Service::start(&rules(&path), &[]).await;
    hit(&mut service, "a").await;
    let admin = service.admin;
    let get = move |path: &'static str| {
        tokio::task::spawn_blocking(move || http(admin, "GET", path, "").1)
    };
    let limits: serde_json::Value = serde_json::from_str(&get("/limits").await.unwrap()).unwrap();
    let all = limits["limits"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{limits}");
    assert_eq!(all[0]["limit"]["requests_per_unit"], 7);
    assert_eq!(all[0]["limits_from"]["limits"], 2);
    assert_eq!(all[0]["hits"]["total"], 1);
    let rlconfig = get("/rlconfig").await.unwrap();
    assert_eq!(rlconfig.lines().count(), 1, "{rlconfig}");
    assert!(rlconfig.contains("tenants.csv, 2 limits"), "{rlconfig}");
}

#[tokio::test]
async fn values_that_a_file_names_stay_plain_in_a_hashed_recording() {
    let (_directory, path) = table("a,hour,3,,\n");
    let service = Service::start(&rules(&path), &[]).await;
    let generation = service.generations.current().unwrap();
    let keys = ComparedKeys::of(&generation.rules).keys();
    let keys: Vec<_> = keys.iter().map(|key| (&*key.key, key.all)).collect();
    assert_eq!(keys, [("k", true)]);
}

#[tokio::test]
async fn a_candidate_whose_file_changes_is_counted_anew() {
    let (directory, path) = table("a,hour,1,,\n");
    let candidate = directory.path().join("candidate.yaml");
    fs::write(&candidate, rules(&path)).unwrap();
    let live = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 9}}]";
    let arguments = ["--candidate", candidate.to_str().unwrap()];
    let mut service = Service::start(live, &arguments).await;
    until_metric(&service, "tollgate_candidate_rules_accepted_total", 1).await;
    hit(&mut service, "a").await;
    hit(&mut service, "a").await;
    until_metric(&service, &of_domain("newly_refused"), 1).await;
    let shown = limits(&service).await;
    assert_eq!(shown["candidate"]["counts"]["newly_refused"], 1);
    let of_rule = &shown["limits"][0]["candidate"];
    assert_eq!(of_rule["limit"]["text"], "7 per hour", "not that of a line");
    assert_eq!(of_rule["counts"]["newly_refused"], 1);
    fs::write(&path, "value,unit,requests_per_unit\na,hour,5\n").unwrap();
    until_metric(&service, "tollgate_candidate_rules_accepted_total", 2).await;
    let shown = limits(&service).await;
    assert_eq!(shown["candidate"]["counts"]["newly_refused"], 0);
}

/// Every value of the file numbered so has this limit.
fn limits_of(number: u32) -> String {
    let mut text = "value,unit,requests_per_unit\n".to_owned();
    for value in 0..VALUES {
        let _ = writeln!(text, "t{value},hour,{}", 1_000_000 + number);
    }
    text
}

/// The number of the file that requests use from now on.
fn number_in_use(service: &Service) -> u64 {
    let generation = service.generations.current().unwrap();
    let table = generation.rules.limit_tables().next().unwrap();
    match table.form(table.find(b"t0").unwrap()).unwrap().allowance {
        Allowance::Limited { limit, .. } => limit.requests() - 1_000_000,
        Allowance::Unlimited => panic!("{table:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_or_gets_another_limit_while_the_file_is_replaced() {
    let (directory, path) = table("");
    fs::write(&path, limits_of(0)).unwrap();
    let text = rules(&path);
    let mut service = Service::start(&text, &[]).await;
    // The newest file that may be in use, and the oldest that can be.
    let (newest, oldest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let mut client = Service::connect(service.grpc).await;
    let (seen, bound, end) = (Arc::clone(&newest), Arc::clone(&oldest), Arc::clone(&stop));
    let asking = tokio::spawn(async move {
        let mut asked = 0_u32;
        while !end.load(Ordering::Acquire) || asked == 0 {
            let value = format!("t{}", asked % VALUES);
            let least = bound.load(Ordering::Acquire);
            let asking = client.should_rate_limit(request("d", vec![hits("k", &value, 1)]));
            let answer = asking.await.expect("an answer").into_inner();
            let limit = answer.statuses[0].current_limit.clone().expect("a limit");
            let number = u64::from(limit.requests_per_unit - 1_000_000);
            let most = seen.load(Ordering::Acquire);
            assert!((least..=most).contains(&number), "{least} {number} {most}");
            asked += 1;
        }
        asked
    });
    for number in 1..=RELOADS {
        let next = directory.path().join("next");
        fs::write(&next, limits_of(number)).unwrap();
        newest.store(u64::from(number), Ordering::Release);
        fs::rename(&next, &path).unwrap();
        service.reload(&text).await;
        // A poll may have published the file before this one in the meantime.
        let in_use = async || number_in_use(&service) == u64::from(number);
        until_async("the file is in use", in_use).await;
        oldest.store(u64::from(number), Ordering::Release);
    }
    stop.store(true, Ordering::Release);
    assert!(asking.await.unwrap() > 0);
}
