//! Penalties through the service in memory: whose refusals count, shadow mode, limits of requests,
//! and a restart. `tests/redis` has them among replicas.

use tollgate_test_support::grpc_client::{Code, Descriptor, descriptor, hits, request};
use tollgate_test_support::in_process::{START, Service};

use super::snapshots::Folder;
use super::{override_of, until_metric};

const HOUR_S: i64 = 3_600;
const HOUR: i32 = 3;

const RULES: &str = "
domain: d
descriptors:
  - key: blocked
    rate_limit: { unit: minute, requests_per_unit: 1, penalty: { after: 2, within: 1h, block: 1h } }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 1, penalty: { after: 2, within: 1h, block: 1h } }
  - key: two
    rate_limits:
      - { unit: minute, requests_per_unit: 9, name: a, penalty: { after: 2, within: 1h, block: 1h } }
      - { unit: minute, requests_per_unit: 1, name: b }
";

/// Whether each of these hits passes, and how long the last answer says to wait.
async fn ask(service: &mut Service, each: &[Descriptor]) -> (Vec<bool>, i64) {
    let (mut passed, mut wait_s) = (Vec::new(), 0);
    for one in each {
        let answer = service.ask(request("d", vec![one.clone()])).await;
        passed.push(answer.overall_code() == Code::Ok);
        wait_s = answer.statuses[0]
            .duration_until_reset
            .as_ref()
            .unwrap()
            .seconds;
    }
    (passed, wait_s)
}

#[tokio::test]
async fn a_refusal_by_another_limit_and_one_in_shadow_mode_block_nobody() {
    let mut service = Service::start(RULES, &[]).await;
    let one = || descriptor(&[("two", "v")]);
    let (passed, wait_s) = ask(&mut service, &[one(), one(), one(), one()]).await;
    assert_eq!(passed, [true, false, false, false]);
    assert!(wait_s <= 60);
    let one = || descriptor(&[("shadow", "v")]);
    let (passed, _) = ask(&mut service, &[one(), one(), one()]).await;
    assert_eq!(passed, [true; 3]);
    // A minute later only the penalty would refuse.
    service.clock.advance_us(60_000_000);
    assert_eq!(ask(&mut service, &[one()]).await.0, [true]);
    let labels = "domain=\"d\",limit=\"minute\",outcome=\"would_refuse\",rule=\"d.shadow\"";
    let series = format!("tollgate_limit_hits_total{{{labels}}}");
    until_metric(&service, &series, 3).await;
}

#[tokio::test]
async fn a_limit_of_a_request_has_the_penalty_of_the_rule_that_it_adjusts() {
    let mut service = Service::start(RULES, &[]).await;
    // The window of the request's limit ends before the block.
    service.clock.advance_us(600_000_000);
    let along = Descriptor {
        limit: override_of(1, HOUR),
        ..hits("blocked", "v", 1)
    };
    let each = [along.clone(), along.clone(), along];
    let (passed, wait_s) = ask(&mut service, &each).await;
    assert_eq!((passed, wait_s), (vec![true, false, false], HOUR_S));
}

#[tokio::test]
async fn a_block_outlives_a_restart_with_a_snapshot() {
    let folder = Folder::new();
    let mut service = folder.start(RULES, &[], START).await;
    let one = || descriptor(&[("blocked", "v")]);
    let (passed, wait_s) = ask(&mut service, &[one(), one(), one()]).await;
    assert_eq!((passed, wait_s), (vec![true, false, false], HOUR_S));
    service.stop().await.unwrap();
    let later = START.plus_us(50 * 60_000_000);
    let mut service = folder.start(RULES, &[], later).await;
    let (passed, wait_s) = ask(&mut service, &[one()]).await;
    assert_eq!((passed, wait_s), (vec![false], 600));
    service.clock.advance_us(600_000_000);
    assert_eq!(ask(&mut service, &[one()]).await.0, [true]);
}
