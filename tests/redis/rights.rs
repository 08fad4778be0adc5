//! Users with the rights that `docs/shared-limits.md` names, and no others: of one server, of a
//! cluster, of sentinels.

use std::fs;
use std::path::PathBuf;

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::http_client::http;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::Node;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{ask, patient, replica, reservations};

/// The commands of a row of the table on the page.
fn listed(row: &str) -> Vec<String> {
    let page = fs::read_to_string("docs/shared-limits.md").unwrap();
    let mut lines = page.lines();
    let start = format!("| {row} | ");
    let commands = lines.find_map(|line| line.strip_prefix(&start)).unwrap();
    let words = commands.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// Adds the user `limits` with the rights of these rows, and no others. Its password is `secret`.
fn add_user(redis: &RedisServer, rows: &[&str]) {
    let mut words = vec!["ACL", "SETUSER", "limits", "on", ">secret", "~tg:*"];
    let commands = rows.iter().flat_map(|row| listed(row));
    let allowed: Vec<_> = commands
        .map(|command| format!("+{}", command.to_lowercase()))
        .collect();
    words.extend(allowed.iter().map(String::as_str));
    let set: String = redis.say(&words);
    assert_eq!(set, "OK");
}

/// Nothing was denied to the user.
fn nothing_was_denied(redis: &RedisServer) {
    let denied: Vec<redis::Value> = redis.say(&["ACL", "LOG"]);
    assert!(denied.is_empty(), "{denied:?}");
}

/// A replica that logs in as that user.
fn replica_of_user(url: &str) -> (Tollgate, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    fs::write(&password, "secret").unwrap();
    let login = [
        "--store-user",
        "limits",
        "--store-password-file",
        password.to_str().unwrap(),
    ];
    let replica = replica(reservations::RULES, &patient(url, &login));
    (replica, directory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_and_another_database() {
    let redis = RedisServer::start(&[]);
    add_user(
        &redis,
        &["every store", "a database other than 0, in addition"],
    );
    let (replica, _password) = replica_of_user(&format!("{}/1", redis.url()));
    let mut client = reservations::client(&replica).await;
    for id in ["a", "b", "a"] {
        let reserve = reservations::reserve("fixed_window", id, 800);
        client.reserve(reserve).await.unwrap();
    }
    let commit = reservations::commit("fixed_window", "a", 900);
    let settled = client.commit(commit).await.unwrap().into_inner();
    assert_eq!((settled.reserved, settled.committed), (800, 900));
    reservations::stream(&replica, 0).await;
    reservations::stream(&replica, 5).await;
    // An interval may have begun without any limit.
    for value in ["fixed_window", "token_bucket"] {
        reservations::left(&mut client, "k", value).await;
    }
    let reset = r#"{"domain":"d","descriptor":[{"key":"k","value":"fixed_window"}]}"#;
    let answer = http(replica.admin, "POST", "/reset", reset);
    assert_eq!(answer.0, 200, "{}", answer.1);
    let key = r#""domain":"d","descriptor":[{"key":"k","value":"fixed_window"}]"#;
    let set = format!(r#"{{{key},"unlimited":true,"for_seconds":60}}"#);
    for (method, body) in [("PUT", set), ("DELETE", format!("{{{key}}}"))] {
        let answer = http(replica.admin, method, "/overrides", &body);
        assert_eq!(answer.0, 200, "{}", answer.1);
    }
    nothing_was_denied(&redis);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster() {
    let node = Node::start(&[]);
    node.serve(0..=16_383);
    add_user(&node.server, &["every store", "a cluster, in addition"]);
    let url = format!("redis+cluster://127.0.0.1:{}", node.server.port());
    let (replica, _password) = replica_of_user(&url);
    let mut client = super::client(&replica).await;
    assert_eq!(ask(&mut client, "fixed_window").await, Ok(Code::Ok));
    nothing_was_denied(&node.server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels() {
    let redis = RedisServer::start(&[]);
    let sentinel = RedisServer::sentinel("main", redis.port());
    add_user(&redis, &["every store"]);
    // The sentinels' default user has the rights of their row.
    let mut words = vec!["ACL", "SETUSER", "default", "-@all"];
    let allowed: Vec<_> = listed("sentinels: their own user")
        .iter()
        .map(|command| format!("+{}", command.to_lowercase()))
        .collect();
    words.extend(allowed.iter().map(String::as_str));
    let set: String = sentinel.say(&words);
    assert_eq!(set, "OK");
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let (replica, _password) = replica_of_user(&url);
    let mut client = super::client(&replica).await;
    assert_eq!(ask(&mut client, "fixed_window").await, Ok(Code::Ok));
    nothing_was_denied(&redis);
}

/// Limits in other algorithms use other commands of the scripts.
#[test]
fn the_page_has_every_command_of_the_scripts() {
    let listed = listed("every store");
    let mut folders = vec![PathBuf::from("crates/store-redis/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for call in text.split("call('").skip(1) {
                let (command, _) = call.split_once('\'').unwrap();
                let is_listed = listed.iter().any(|one| one == command);
                assert!(is_listed, "the page lacks {command}");
            }
        }
    }
}
