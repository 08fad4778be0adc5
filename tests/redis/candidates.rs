//! A candidate beside limits in Redis: it counts in this process, and answers are Redis's.

use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{Code, RULES, RedisServer, ask, becomes, buckets, client, patient, replica};

/// Four requests for one key of a limit of 3, with these further arguments. Returns how many keys
/// Redis has then.
async fn four(arguments: &[&str], counted: impl Fn(&Tollgate)) -> usize {
    let redis = RedisServer::start(&[]);
    let rules = RULES.replace("1000", "3");
    let tollgate = replica(&rules, &patient(&redis.url(), arguments));
    if arguments.contains(&"--candidate") {
        becomes(&tollgate, "tollgate_candidate_rules_accepted_total", 1);
    }
    let mut client = client(&tollgate).await;
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(ask(&mut client, "a").await, Ok(expected), "{arguments:?}");
    }
    counted(&tollgate);
    buckets(&redis).len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_beside_redis_counts_in_memory_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("candidate.yaml");
    std::fs::write(&file, RULES.replace("1000", "1")).unwrap();
    let file = file.to_str().unwrap();
    for mode in ["exact", "leased"] {
        let counts = |tollgate: &Tollgate| {
            let of = |result: &str| {
                tollgate.metric(&format!(
                    "tollgate_candidate_requests_total{{domain=\"d\",result=\"{result}\"}}"
                ))
            };
            until("the candidate has counted", || {
                let all = [of("admitted"), of("newly_refused"), of("refused")];
                if all == [1, 2, 1] { Ok(()) } else { Err(all) }
            });
        };
        let with = four(&["--store-mode", mode, "--candidate", file], counts).await;
        let without = four(&["--store-mode", mode], |_| ()).await;
        assert_eq!(with, without, "{mode}: the candidate has no key in Redis");
    }
}
