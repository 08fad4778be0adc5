//! A million open reservations against the memory bound of the real process.
//!
//! How: batches over gRPC reserve until each id was sent once. `MEMORY_RESERVATIONS` is how many:
//! 15,000 by default, a million in `make test-memory`. They are in one bucket, or in one each. A
//! million in buckets of their own take 1.5 GB.

use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{
    BatchRequest, Call, CommitRequest, Descriptor, Entry, ReserveRequest,
};
use tollgate_limiter::LEDGER_RECORDS_MAX;
use tollgate_test_support::grpc_client::channel;

use super::*;

const RULES: &str = "
domain: memory
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
  - key: team
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
";

const MIB: u64 = 1 << 20;

/// Calls of a batch.
const CALLS: u64 = 1_000;

const EXPIRES_SECONDS: i64 = 86_400;

/// What became of the reservations that were sent.
#[derive(Default)]
struct Sums {
    /// The ids that are open.
    open: Vec<u64>,
    /// Refused for want of memory.
    without_space: u64,
    /// Refused as over limit: the bucket has as many as it can.
    too_many: u64,
}

/// The descriptor of an id: a user for each, or one team.
fn descriptors(key: &str, id: u64) -> Vec<Descriptor> {
    let value = match key {
        "user" => id.to_string(),
        _ => "all".to_owned(),
    };
    vec![Descriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value,
        }],
        hits: None,
    }]
}

async fn send(
    running: &Tollgate,
    ids: &[u64],
    call: impl Fn(u64) -> Sent + Clone + Send + 'static,
) -> Vec<(u64, Answer)> {
    let mut tasks = JoinSet::new();
    for part in ids.chunks(ids.len().div_ceil(UNDER_WAY).max(1)) {
        let (part, call) = (part.to_vec(), call.clone());
        let channel = channel(running.grpc).await;
        tasks.spawn(async move {
            // A batch of a thousand answers is larger than a message of the default bounds.
            let mut client = RateLimitsClient::new(channel).max_decoding_message_size(64 << 20);
            let mut came = Vec::with_capacity(part.len());
            for ids in part.chunks(CALLS as usize) {
                let calls = ids.iter().map(|id| Call {
                    tag: *id,
                    call: Some(call(*id)),
                });
                let calls = calls.collect();
                let answers = client.batch(BatchRequest { calls }).await.unwrap();
                let answers = answers.into_inner().answers.into_iter();
                came.extend(answers.map(|answer| (answer.tag, answer.answer.unwrap())));
            }
            came
        });
    }
    tasks.join_all().await.concat()
}

async fn reserve_each(running: &Tollgate, key: &'static str, ids: &[u64]) -> Sums {
    let reserve = move |id: u64| {
        Sent::Reserve(ReserveRequest {
            domain: "memory".to_owned(),
            descriptors: descriptors(key, id),
            hits: Some(7),
            reservation: format!("r{id}"),
            expires: Some(prost_types::Duration {
                seconds: EXPIRES_SECONDS,
                nanos: 0,
            }),
            ..ReserveRequest::default()
        })
    };
    let mut sums = Sums::default();
    for (id, answer) in send(running, ids, reserve).await {
        match answer {
            Answer::Reserve(answer) if answer.hits == 7 => sums.open.push(id),
            Answer::Reserve(_) => sums.too_many += 1,
            Answer::Failure(failure) => {
                assert_eq!(failure.code, i32::from(tonic::Code::Unavailable));
                assert!(failure.message.contains("--memory-max"), "{failure:?}");
                sums.without_space += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    sums
}

/// Commits each of these ids, each of which must be open.
async fn commit_each(running: &Tollgate, key: &'static str, ids: &[u64]) {
    let commit = move |id: u64| {
        Sent::Commit(CommitRequest {
            domain: "memory".to_owned(),
            descriptors: descriptors(key, id),
            reservation: format!("r{id}"),
            hits: Some(3),
        })
    };
    let answers = send(running, ids, commit).await;
    assert_eq!(answers.len(), ids.len());
    for (id, answer) in answers {
        let Answer::Settle(answer) = answer else {
            panic!("{id}: {answer:?}");
        };
        let settled = (answer.reserved, answer.committed, answer.repeated);
        assert_eq!(settled, (7, 3, false), "{id}");
    }
}

fn count() -> u64 {
    std::env::var("MEMORY_RESERVATIONS").map_or(15_000, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_reservations_within_a_small_bound_are_errors_and_none_is_lost() {
    for (key, bound) in [("user", 16 * MIB), ("team", 2 * MIB)] {
        let ids: Vec<_> = (0..count()).collect();
        let memory_max = bound.to_string();
        let running = Tollgate::start(RULES, &["--memory-max", &memory_max, "--partitions", "2"]);
        // The memory of a process that has answered one batch is not counted.
        reserve_each(&running, key, &[u64::MAX]).await;
        commit_each(&running, key, &[u64::MAX]).await;
        let sums = reserve_each(&running, key, &ids).await;
        let all = sums.open.len() as u64 + sums.without_space;
        assert_eq!((all, sums.too_many), (count(), 0));
        let counted = running.metric_sum("tollgate_memory_bytes{");
        println!(
            "{key}: {} open of {}, {} bytes a reservation by its own count",
            sums.open.len(),
            count(),
            counted / sums.open.len() as u64
        );
        assert!(counted <= bound, "{counted}");
        assert!(sums.without_space > count() / 10, "{}", sums.without_space);
        let not_kept = "tollgate_reservations_not_kept_total{reason=\"memory_full\"}";
        assert_eq!(running.metric_sum(not_kept), sums.without_space);
        commit_each(&running, key, &sums.open).await;
        until("none is open", || {
            match running.metric_sum("tollgate_reservations_open{") {
                0 => Ok(()),
                open => Err(open),
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_reservations_within_the_default_bound_all_commit() {
    for key in ["user", "team"] {
        let ids: Vec<_> = (0..count()).collect();
        let running = Tollgate::start(RULES, &[]);
        reserve_each(&running, key, &[u64::MAX]).await;
        commit_each(&running, key, &[u64::MAX]).await;
        let before = running.status_bytes("RssAnon");
        let sums = reserve_each(&running, key, &ids).await;
        let after = running.status_bytes("RssAnon");
        let of = |bytes: u64| bytes / sums.open.len() as u64;
        println!(
            "{key}: {} open, {} bytes a reservation resident, {} by its own count",
            sums.open.len(),
            of(after - before),
            of(running.metric_sum("tollgate_memory_bytes{"))
        );
        assert_eq!((sums.open.len() as u64, sums.without_space), (count(), 0));
        // A million are as many as one bucket can have.
        let beyond: Vec<_> = (count()..count() + 10).collect();
        let more = reserve_each(&running, key, &beyond).await;
        let too_many = if key == "team" && count() >= LEDGER_RECORDS_MAX as u64 {
            10
        } else {
            0
        };
        assert_eq!(more.too_many, too_many);
        assert_eq!(more.open.len() as u64, 10 - too_many);
        let not_kept = "tollgate_reservations_not_kept_total{reason=\"too_many\"}";
        assert_eq!(running.metric_sum(not_kept), too_many);
        commit_each(&running, key, &more.open).await;
        commit_each(&running, key, &sums.open).await;
        until("none is open", || {
            match running.metric_sum("tollgate_reservations_open{") {
                0 => Ok(()),
                open => Err(open),
            }
        });
    }
}
