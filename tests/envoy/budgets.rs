//! Token budgets through real Envoy: 500 streams at once whose cost nobody knows before.
//!
//! Why: a check with 0 hits before a stream lets all of them pass. With reservations the budget is
//! exceeded by no more than what streams cost beyond their reservation. How: the bootstrap and the
//! rules are those of docs/guides/budgets-with-envoy.md. The model holds every stream until all are
//! decided, so that as many run at once as can. Its costs depend on the seed and on how many
//! streams it serves alone, so the figures of a run are the same on every machine, and the page
//! has them.
//!
//! What it deliberately does not do: limit models by anything but one user's tokens;
//! docs/guides/llm-budgets.md has more levels, and tests of its own.

use std::net::SocketAddr;

use tollgate_test_support::grpc_client::{Descriptor, descriptor};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::envoy::budget_edge::{
    BUDGET, Edge, GATEWAY_DOMAIN, GATEWAY_ROUTE, GATEWAY_USER, PAGE, Run, STREAMS,
    as_model_gateway, rules, with_commas, with_default_cost, without_ids,
};
use crate::envoy::edge::runtime;
use crate::envoy::model::Answer;

/// Reserved amounts of the runs: too low, about the mean, and the most that a stream costs.
const AMOUNTS: [u64; 4] = [500, 1_000, 2_000, 4_000];

/// `expires` of the page's rules.
const EXPIRY_US: u64 = 300_000_000;

/// A tollgate in the test's process, behind the page's Envoy.
fn in_memory(rules: &str, change: impl FnOnce(&mut serde_json::Value)) -> (Edge, Service) {
    let runtime = runtime();
    let service = runtime.block_on(Service::start(rules, &[]));
    let edge = Edge::start(runtime, &[(service.grpc, service.http)], change);
    (edge, service)
}

/// Runs streams with reservations of this amount, and asserts the promise.
fn run_with(edge: &mut Edge, amount: u64) -> Run {
    let run = edge.run();
    let bound = run.excess(amount);
    assert_eq!(
        run.at_once as u64,
        BUDGET / amount,
        "reservations fill the budget"
    );
    assert!(
        run.overshoot() <= bound,
        "{} > {bound}: {run:?}",
        run.overshoot()
    );
    assert_eq!(edge.left(), BUDGET.saturating_sub(run.charged()), "{run:?}");
    assert_eq!(edge.envoy.stat("cluster.model.ratelimit.error"), 0);
    let start = format!("reserves {}", with_commas(amount));
    println!("{}", run.row(&start, &with_commas(bound)));
    run
}

#[test]
fn with_0_hit_checks_every_stream_passes_and_the_budget_is_exceeded() {
    let rules = rules(2_000);
    let (without_reserve, _) = rules.split_once("reserve:").expect("the rule reserves");
    let without_reserve = without_reserve.trim_end();
    let (mut edge, _service) = in_memory(without_reserve, without_ids);
    let run = edge.run();
    assert_eq!((run.at_once, run.rounds), (STREAMS, 1));
    assert!(run.overshoot() > 5 * BUDGET, "{run:?}");
    assert_eq!(edge.left(), 0);
    let row = run.row("0 hits", "none");
    println!("{row}");
    assert!(PAGE.contains(&row), "the page lacks:\n{row}");
}

#[test]
fn with_reservations_the_overshoot_is_what_streams_cost_beyond_theirs() {
    let rows = AMOUNTS.map(|amount| {
        let (mut edge, _service) = in_memory(&rules(amount), |_| ());
        let run = run_with(&mut edge, amount);
        if amount == 4_000 {
            assert_eq!(run.overshoot(), 0, "no stream costs more");
        }
        let start = format!("reserves {}", with_commas(amount));
        run.row(&start, &with_commas(run.excess(amount)))
    });
    let missing: Vec<_> = rows.iter().filter(|row| !PAGE.contains(*row)).collect();
    assert!(missing.is_empty(), "the page lacks:\n{missing:#?}");
}

/// Three replicas with one Redis behind Envoy.
fn with_redis(mode: &[&str]) {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    // window: none is left that turns during the test.
    let rules = rules(2_000).replace("unit: day", "unit: year");
    let arguments = [&["--store", &url, "--store-deadline-ms", "30000"], mode].concat();
    let replicas = [(); 3].map(|()| Tollgate::start(&rules, &arguments));
    for replica in &replicas {
        until("the store is up", || {
            match replica.metric("tollgate_store_up") {
                1 => Ok(()),
                _ => Err(replica.said()),
            }
        });
    }
    let addresses: Vec<(SocketAddr, SocketAddr)> = replicas
        .iter()
        .map(|replica| (replica.grpc, replica.http))
        .collect();
    let mut edge = Edge::start(runtime(), &addresses, |_| ());
    let run = run_with(&mut edge, 2_000);
    let row = run.row("reserves 2,000", &with_commas(run.excess(2_000)));
    assert!(PAGE.contains(&row), "the page lacks:\n{row}");
    for replica in &replicas {
        let served =
            replica.metric(r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#);
        assert!(served > 100, "{served} requests at one replica");
    }
}

#[test]
fn three_replicas_with_a_redis_reserve_as_one() {
    with_redis(&[]);
    with_redis(&["--store-mode", "leased"]);
}

#[test]
fn a_stream_whose_client_leaves_has_no_end_and_its_reservation_expires() {
    for (on_expiry, left) in [("charge", BUDGET - 2_000), ("release", BUDGET)] {
        let expires = format!("expires: 5m\n        on_expiry: {on_expiry}");
        let (mut edge, service) = in_memory(&rules(2_000).replace("expires: 5m", &expires), |_| ());
        let streams = edge.start_streams(1);
        assert_eq!(edge.left(), BUDGET - 2_000);
        drop(streams);
        let gone = "http.edge.downstream_cx_destroy_remote_active_rq";
        until("Envoy sees that the client is gone", || {
            edge.envoy.stat(gone) == 1
        });
        // Another stream's end comes later than that of this one would have.
        let others = edge.start_streams(1);
        edge.end_streams(others);
        let cost = edge.model.costs()[1];
        assert_eq!(edge.left(), BUDGET - 2_000 - cost);
        service.clock.advance_us(EXPIRY_US);
        assert_eq!(edge.left(), left - cost, "{on_expiry}");
    }
}

#[test]
fn a_stream_that_breaks_off_before_its_usage_has_no_end() {
    let (mut edge, _service) = in_memory(&rules(2_000), |_| ());
    let broken = edge.ask(1, Answer::BrokenOff);
    assert_eq!(broken[0].status, 200);
    edge.model.let_streams_end(true);
    let closed = "cluster.model.upstream_cx_destroy_remote_with_active_rq";
    until("Envoy sees that the model is gone", || {
        edge.envoy.stat(closed) == 1
    });
    edge.model.let_streams_end(false);
    // Another stream's end comes later than that of this one would have.
    let others = edge.start_streams(1);
    edge.end_streams(others);
    assert_eq!(edge.left(), BUDGET - 2_000 - edge.model.costs()[1]);
}

#[test]
fn an_answer_that_is_not_streamed_has_an_end_with_its_usage() {
    let (mut edge, _service) = in_memory(&rules(2_000), |_| ());
    let answers = edge.ask(3, Answer::Plain);
    edge.end_streams(answers);
    let charged: u64 = edge.model.costs().iter().sum();
    assert_eq!(edge.left(), BUDGET - charged);
}

#[test]
fn a_default_cost_sends_an_end_for_streams_whose_client_leaves() {
    let (mut edge, _service) =
        in_memory(&rules(2_000), |bootstrap| with_default_cost(bootstrap, 1));
    let streams = edge.start_streams(1);
    assert_eq!(edge.left(), BUDGET - 2_000);
    drop(streams);
    edge.expect(1);
    edge.wait_for_requests();
    assert_eq!(edge.left(), BUDGET - 1);
}

#[test]
fn ends_of_refused_streams_charge_nothing() {
    // 50 fit. Every refused stream has an end of 1 hit, which Envoy sends after the refusal.
    let (mut edge, _service) =
        in_memory(&rules(2_000), |bootstrap| with_default_cost(bootstrap, 1));
    let (admitted, refused): (Vec<_>, Vec<_>) = edge
        .start_streams(80)
        .into_iter()
        .partition(|stream| stream.status == 200);
    assert_eq!((admitted.len(), refused.len()), (50, 30));
    edge.expect(30);
    edge.wait_for_requests();
    assert_eq!(edge.left(), 0);
    edge.end_streams(admitted);
    let charged: u64 = edge.model.costs().iter().sum();
    assert_eq!(edge.left(), BUDGET.saturating_sub(charged));
    assert!(
        charged < BUDGET,
        "else a charge of a refused stream would not show"
    );
}

#[test]
fn a_stream_longer_than_its_expiry_is_charged_as_the_page_says() {
    for (on_expiry, kept) in [("charge", 2_000), ("release", 0)] {
        let expires = format!("expires: 5m\n        on_expiry: {on_expiry}");
        let (mut edge, service) = in_memory(&rules(2_000).replace("expires: 5m", &expires), |_| ());
        let streams = edge.start_streams(1);
        service.clock.advance_us(EXPIRY_US);
        assert_eq!(edge.left(), BUDGET - kept, "{on_expiry}");
        edge.end_streams(streams);
        let cost = edge.model.costs()[0];
        assert_eq!(edge.left(), BUDGET - kept - cost, "{on_expiry}");
    }
}

#[test]
fn clients_cannot_choose_the_id_of_their_stream() {
    // Every client of this test sends the id `mine`. If Envoy kept it, an end with it would settle.
    let (mut edge, mut service) = in_memory(&rules(2_000), |_| ());
    let streams = edge.start_streams(2);
    let end = Descriptor {
        hits_addend: Some(1),
        ..descriptor(&[("user", "alice"), ("stream_id", "mine")])
    };
    edge.runtime.block_on(service.status("models", end));
    edge.expect(1);
    assert_eq!(
        edge.left(),
        BUDGET - 2 * 2_000 - 1,
        "charged in full: nobody has that id"
    );
    edge.end_streams(streams);
    let charged: u64 = edge.model.costs().iter().sum();
    assert_eq!(edge.left(), BUDGET - charged - 1);
}

#[test]
fn the_overlay_makes_the_policy_of_a_model_gateway_reserve() {
    const PAGE: &str = include_str!("../../docs/guides/model-gateway.md");
    let block = |heading: &str, position: usize| {
        let (_, section) = PAGE.split_once(heading).expect("the heading");
        let blocks = section.split("```yaml\n").skip(1);
        let mut blocks = blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned()));
        blocks.nth(position).expect("a block")
    };
    let (rules, overlay) = (block("## The policy", 1), block("## The overlay", 0));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("overlay.yaml");
    std::fs::write(&file, overlay).expect("the overlay");
    let file = file.to_str().expect("a path of text");

    let runtime = runtime();
    let service = runtime.block_on(Service::start(&rules, &["--overlay", file]));
    let mut edge = Edge::start(runtime, &[(service.grpc, service.http)], as_model_gateway);
    edge.look_at(
        GATEWAY_DOMAIN,
        &[(GATEWAY_ROUTE, GATEWAY_ROUTE), (GATEWAY_USER, "alice")],
    );
    run_with(&mut edge, 2_000);
}
