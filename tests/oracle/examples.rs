//! Differences that no random case may show, each by an example of its own: what the reference
//! does, and what tollgate does.
//!
//! What it deliberately does not do: compare anything else.

use tollgate_test_support::grpc_client::{
    Code, RateLimitOverride, RateLimitRequest, RateLimitResponse, RateLimitServiceClient, channel,
    descriptor, hits, request,
};
use tollgate_test_support::polling::until;
use tonic::{Code as GrpcCode, Status};

use crate::oracle::differences::{Shown, met, seen};
use crate::oracle::reference;
use crate::oracle::run::{SETUPS, Services};

const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: {unit: year, requests_per_unit: 3}
";

/// Both services with these rules.
fn services(program: &std::path::Path) -> Services {
    let files = vec![("rules.yaml".to_owned(), RULES.to_owned())];
    Services::start(program, SETUPS[0], files)
}

type Answer = Result<RateLimitResponse, Status>;

/// The reference's answer, and that of the tollgate which uses its counters' names.
async fn both(services: &Services, request: RateLimitRequest) -> (Answer, Answer) {
    let ask = async |address| {
        let mut client = RateLimitServiceClient::new(channel(address).await);
        let answer = client.should_rate_limit(request.clone()).await;
        answer.map(tonic::Response::into_inner)
    };
    (
        ask(services.reference.grpc).await,
        ask(services.tollgates[0].grpc).await,
    )
}

fn left(answer: &Answer) -> u32 {
    answer.as_ref().unwrap().statuses[0].limit_remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_that_random_cases_do_not_show() {
    let Some(program) = reference::program("ratelimit") else {
        return;
    };
    let mut services = services(&program);

    let not_utf8 = request("d", vec![descriptor(&[("k", b"\xff")])]);
    let (there, here) = both(&services, not_utf8).await;
    assert!(there.is_err(), "{there:?}");
    assert_eq!(left(&here), 2);
    met("not-utf8");

    let many = request("d", vec![descriptor(&[("other", "v")]); 513]);
    let (there, here) = both(&services, many).await;
    assert_eq!(there.unwrap().overall_code, i32::from(Code::Ok));
    assert_eq!(here.unwrap().overall_code, i32::from(Code::OverLimit));
    met("too-many-descriptors");

    // A counter's life is shortened, and then it is hit again.
    let hit = || request("d", vec![hits("k", "v", 1)]);
    both(&services, hit()).await.0.unwrap();
    let of = |prefix: &str| -> String {
        let names: Vec<String> = services.redis.say(&["KEYS", &format!("{prefix}d_k_v_*")]);
        names[0].clone()
    };
    let lives = |name: &str| -> i64 { services.redis.say(&["TTL", name]) };
    let (there, here) = (of("r:"), of("t:"));
    for name in [&there, &here] {
        let _: i64 = services.redis.say(&["EXPIRE", name, "1000"]);
    }
    let again = both(&services, hit()).await;
    assert_eq!((left(&again.0), left(&again.1)), (1, 1));
    assert!(lives(&there) > 1_000);
    assert!(lives(&here) <= 1_000);
    met("expiry");

    // The unit of an override that has none: the reference's process ends.
    let mut own = hits("k", "v", 1);
    own.limit = Some(RateLimitOverride {
        requests_per_unit: 1,
        unit: 0,
        ..Default::default()
    });
    let (there, here) = both(&services, request("d", vec![own])).await;
    assert!(there.is_err(), "{there:?}");
    assert_eq!(left(&here), 0);
    services.reference.wait_until_ended();
    met("unknown-units");

    let mut services = self::services(&program);
    services.redis.kill();
    until("the store is down", || {
        services.tollgates[0].metric("tollgate_store_up") == 0
    });
    let (there, here) = both(&services, hit()).await;
    assert_eq!(there.unwrap_err().code(), GrpcCode::Unknown);
    assert_eq!(here.unwrap_err().code(), GrpcCode::Unavailable);
    met("store-errors");

    let (_, never) = seen(Shown::ByExample);
    assert!(never.is_empty(), "{never:?} have no example");
}
