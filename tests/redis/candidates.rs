//! A candidate beside limits in Redis: it counts in this process, and answers are Redis's.

use tollgate_test_support::polling::wait_for;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{Code, RECOVERY, RULES, RedisServer, ask, client, replica};

/// Four requests for one key of a limit of 3, with these further arguments. Returns how many keys
/// Redis has then.
async fn four(arguments: &[&str], counted: impl Fn(&Tollgate)) -> usize {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let rules = RULES.replace("1000", "3");
    let tollgate = replica(&rules, &[&["--store", &url], arguments].concat());
    let loaded = "tollgate_candidate_rules_accepted_total";
    let shown = || (tollgate.metric(loaded) == 1).then_some(());
    if arguments.contains(&"--candidate") {
        assert!(wait_for(RECOVERY, shown).is_some(), "{}", tollgate.said());
    }
    let mut client = client(&tollgate).await;
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(ask(&mut client, "a").await, Ok(expected), "{arguments:?}");
    }
    counted(&tollgate);
    redis.say(&["DBSIZE"])
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
            let all = || [of("admitted"), of("newly_refused"), of("refused")];
            let counted = || (all() == [1, 2, 1]).then_some(());
            assert!(wait_for(RECOVERY, counted).is_some(), "{mode}: {:?}", all());
        };
        let with = four(&["--store-mode", mode, "--candidate", file], counts).await;
        let without = four(&["--store-mode", mode], |_| ()).await;
        assert_eq!(with, without, "{mode}: the candidate has no key in Redis");
    }
}
