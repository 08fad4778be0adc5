//! Gateways that look before a request and charge its cost afterwards: how many looks pass, by
//! store, algorithm, and whether the limit says that it is charged afterwards.
//!
//! Why here: a store that drops a charge larger than what is left lets every look pass, and only a
//! real server and process show that the next look sees the charge before it.

use std::fmt::Write as _;

use tollgate_test_support::grpc_client::{Code, Descriptor, hits, request};
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{Client, becomes, client, patient, replica};

/// How many looks pass: with charges of 400 and a limit of 1,000, of 1 and 10, and of 5,000 and
/// 1,000, of 20 each; and of ten requests with a cost of 120 and two limits, 100 for all and 3,000
/// for each user. Without the field, algorithms that count no refused hits lose charges. The leaky
/// bucket holds one hit.
const TABLE: &str = "
fixed_window                       3 11  1  1
fixed_window            afterwards 3 11  1  1
sliding_window                    20 20 20 10
sliding_window          afterwards 3 11  1  1
sliding_window_segments           20 20 20 10
sliding_window_segments afterwards 3 11  1  1
sliding_log                       20 20 20 10
sliding_log             afterwards 3 11  1  1
token_bucket                      20 20 20 10
token_bucket            afterwards 3 11  1  1
token_bucket_interval             20 20 20 10
token_bucket_interval   afterwards 3 11  1  1
leaky_bucket                      20 20 20 10
leaky_bucket            afterwards 1  2  1  1
";

/// The limits and charges of one limit.
const ONE: [(u32, u64); 3] = [(1_000, 400), (10, 1), (1_000, 5_000)];

const MODES: [(&str, &[&str]); 5] = [
    ("memory", &[]),
    ("exact", &["--store-mode", "exact"]),
    ("leased", &["--store-mode", "leased"]),
    ("reference keys", &["--store-keys", "reference"]),
    (
        "leased, reference keys",
        &["--store-mode", "leased", "--store-keys", "reference"],
    ),
];

/// The rows of the table: an algorithm, and whether its limits are charged afterwards.
fn rows() -> impl Iterator<Item = (&'static str, bool)> {
    let rows = TABLE.lines().filter(|row| !row.is_empty());
    rows.map(|row| {
        let (algorithm, _) = row.split_once(' ').unwrap();
        (algorithm, row.contains("afterwards"))
    })
}

fn key(algorithm: &str, afterwards: bool, of: &str) -> String {
    format!("{algorithm}_{afterwards}_{of}")
}

/// A key for each limit of each row. All windows are of a year.
fn rules() -> String {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for (algorithm, afterwards) in rows() {
        let options = match algorithm {
            "sliding_window_segments" => ", algorithm: sliding_window, segments: 6".to_owned(),
            "token_bucket_interval" => ", algorithm: token_bucket, refill: interval".to_owned(),
            name => format!(", algorithm: {name}"),
        };
        let charged = if afterwards {
            ", charged: afterwards"
        } else {
            ""
        };
        let ones = ONE.map(|(limit, charge)| (format!("{limit}_{charge}"), limit));
        let two = [("all".to_owned(), 100), ("user".to_owned(), 3_000)];
        for (of, limit) in ones.into_iter().chain(two) {
            let key = key(algorithm, afterwards, &of);
            writeln!(
                rules,
                "- {{ key: {key}, rate_limit: {{ unit: year, requests_per_unit: {limit}{options}{charged} }} }}"
            )
            .unwrap();
        }
    }
    rules
}

async fn send(client: &mut Client, descriptors: Vec<Descriptor>) -> Code {
    let answer = client.should_rate_limit(request("d", descriptors)).await;
    Code::try_from(answer.unwrap().into_inner().overall_code).unwrap()
}

/// How many of so many looks at these keys pass, where each one that passes is charged.
async fn passed(client: &mut Client, keys: &[String], charge: u64, looks: usize) -> usize {
    let all = |count| keys.iter().map(|key| hits(key, "v", count)).collect();
    let mut passed = 0;
    for _ in 0..looks {
        if send(client, all(0)).await == Code::Ok {
            passed += 1;
            send(client, all(charge)).await;
        }
    }
    passed
}

async fn table(client: &mut Client) -> String {
    let mut table = String::from("\n");
    for (algorithm, afterwards) in rows() {
        let field = if afterwards { "afterwards" } else { "" };
        write!(table, "{algorithm:<23} {field:<10}").unwrap();
        for (limit, charge) in ONE {
            let key = key(algorithm, afterwards, &format!("{limit}_{charge}"));
            write!(table, "{:>3}", passed(client, &[key], charge, 20).await).unwrap();
        }
        let both = ["all", "user"].map(|of| key(algorithm, afterwards, of));
        writeln!(table, "{:>3}", passed(client, &both, 120, 10).await).unwrap();
    }
    table
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_afterwards_is_seen_by_the_next_look_in_every_store() {
    let squeezed = |table: &str| table.split_whitespace().collect::<Vec<_>>().join(" ");
    for (mode, arguments) in MODES {
        let redis = RedisServer::start(&[]);
        let tollgate = match mode {
            "memory" => Tollgate::start(&rules(), arguments),
            _ => replica(&rules(), &patient(&redis.url(), arguments)),
        };
        let mut client = client(&tollgate).await;
        let found = table(&mut client).await;
        assert!(squeezed(&found) == squeezed(TABLE), "{mode}:{found}");
        let lost = r#"tollgate_lost_charge_hits_total{domain="d",key1="token_bucket_false_1000_400",key2=""}"#;
        // Two of the twenty were counted.
        becomes(&tollgate, lost, 18 * 400);
        // One line for each limit that loses charges: four of six algorithms, and the leaky
        // bucket's limit of 3,000.
        until("each limit is named once", || {
            let lines = tollgate.said().matches("a charge was lost").count();
            (lines == 25).then_some(()).ok_or(lines)
        });
        assert_eq!(tollgate.metric("tollgate_lease_refused_hits_lost_total"), 0);
    }
}
