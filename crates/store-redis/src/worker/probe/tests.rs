//! Probes of a server in memory, whose replies the test chooses.

use std::sync::Arc;

use redis::RedisConnectionInfo;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;
use crate::lookups::{Lookups, SystemResolver};
use crate::node::tests::node;
use crate::target::{Login, Password, Secret, Target};
use tollgate_store::TlsFiles;
use tollgate_system::clock::ManualClock;

/// The replies of a server that decides.
fn good(command: &[String]) -> Option<Vec<u8>> {
    let text = match command.first()?.as_str() {
        // A bucket of 29 bytes.
        "EVALSHA" => format!("$29\r\n\u{1}{}\r\n", "0".repeat(28)),
        "EVAL" if command.get(1)? == READ_SCRIPT => "$5\r\nprobe\r\n".to_owned(),
        _ => ":1\r\n".to_owned(),
    };
    Some(text.into_bytes())
}

/// A connection to a server that gives these replies, and none where there is none.
async fn connection(
    mut reply: impl FnMut(&[String]) -> Option<Vec<u8>> + Send + 'static,
) -> Connection {
    let (client, server) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let mut server = BufReader::new(server);
        loop {
            let mut command = Vec::new();
            for _ in 0..number(&mut server).await? {
                let mut word = vec![0; number(&mut server).await? + 2];
                server.read_exact(&mut word).await.ok()?;
                command.push(String::from_utf8_lossy(word.trim_ascii_end()).into_owned());
            }
            if let Some(bytes) = reply(&command) {
                server.write_all(&bytes).await.ok()?;
            }
        }
        #[allow(unreachable_code)] // names the type
        Some(())
    });
    let login = RedisConnectionInfo::default().set_skip_set_lib_name();
    Connection::log_in(Box::new(client), &login).await.unwrap()
}

/// The number after the first byte of a line.
async fn number(server: &mut BufReader<tokio::io::DuplexStream>) -> Option<usize> {
    let mut line = String::new();
    server.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim_end().parse().ok()
}

pub(in super::super) fn connector(password: Password) -> Arc<Connector> {
    let login = Login {
        user: None,
        password,
    };
    let target = Target {
        login,
        ..Target::of_url("redis://cache").unwrap()
    };
    let clock = Arc::<ManualClock>::default();
    let lookups = Lookups::new(Arc::new(SystemResolver), Duration::from_secs(30), clock);
    Arc::new(Connector::new(target, TlsFiles::default(), lookups))
}

/// A connection to a server that decides.
pub(in super::super) async fn live() -> LiveConnection {
    LiveConnection {
        opened: NodeConnection {
            connection: connection(good).await,
            password: None,
            primary: None,
        },
        replicas: None,
        password_problem: None,
    }
}

fn single() -> Arc<Node> {
    node(None, Arc::default(), &Arc::default())
}

#[tokio::test(start_paused = true)]
async fn a_login_without_an_answer_does_not_stop_heartbeats() {
    let mut silent = live().await;
    let replies = |command: &[String]| good(command).filter(|_| command[0] != "AUTH");
    silent.opened.connection = connection(replies).await;
    let connector = connector(Password::Given(Secret::new("new")));
    let node = single();
    let beating = heartbeat(&node, &connector, "replica", silent);
    let ended = tokio::time::timeout(Duration::from_secs(3_600), beating).await;
    let error = ended.expect("it ends").err().unwrap();
    // The replies after the missing one are late too.
    assert_eq!(error.fault, StoreFault::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_no_decision_fails_the_probe() {
    let node = single();
    let within = Duration::from_secs(1);
    let mut decides = connection(good).await;
    let replicas = decision_probe(&node, &mut decides, "replica", true, within).await;
    assert_eq!(replicas.unwrap(), Some(1));
    for (script, reply) in [
        ("EVALSHA", "$-1\r\n"),
        ("EVALSHA", ":1\r\n"),
        ("EVALSHA", "+OK\r\n"),
        ("EVALSHA", "$2\r\nOK\r\n"),
        ("EVAL", "$-1\r\n"),
    ] {
        let replies = move |command: &[String]| {
            let other = command[0] == script;
            other.then(|| reply.into()).or_else(|| good(command))
        };
        let mut connection = connection(replies).await;
        let probed = decision_probe(&node, &mut connection, "replica", true, within).await;
        let fault = probed.map_err(|error| error.fault);
        assert_eq!(fault, Err(StoreFault::UnexpectedReply), "{script} {reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_missing_once_show_no_shards() {
    for (misses, expected) in [
        (0, Ok(())),
        (1, Ok(())),
        (32, Ok(())),
        (33, Err(StoreFault::Sharded)),
    ] {
        let mut left = misses;
        let replies = move |command: &[String]| {
            if left > 0 && command[1] == READ_SCRIPT {
                left -= 1;
                return Some(b"$-1\r\n".to_vec());
            }
            good(command)
        };
        let mut connection = connection(replies).await;
        let probed = shard_probe(&single(), &mut connection, Duration::from_secs(1)).await;
        assert_eq!(probed.map_err(|error| error.fault), expected, "{misses}");
    }
}
