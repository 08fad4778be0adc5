//! A proxy that claims to be a cluster and refuses nothing: checks are counted where their slot is.
//!
//! The proxy routes each command by its first key to one of two servers outside cluster mode. A
//! script run without keys goes to the first server, whatever buckets are among its arguments. So
//! one run for all slots would count buckets on the wrong server, and the probe must find that.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::redis_server::RedisServer;

use super::{buckets, left, shared};

const BUCKETS: usize = 60;

/// What the proxy's connections share.
struct Proxy {
    /// The ports that it listens on: the nodes of the cluster that it reports.
    ports: Vec<u16>,
    servers: [u16; 2],
    /// Script runs by SHA-1, with keys and without.
    with_keys: AtomicUsize,
    without_keys: AtomicUsize,
}

pub(super) type Words = Vec<Vec<u8>>;

// === impl Proxy ===

impl Proxy {
    /// Starts it with this many ports. It ends with the set.
    async fn start(ports: usize, servers: [u16; 2]) -> (Arc<Self>, JoinSet<()>) {
        let mut listeners = Vec::new();
        for _ in 0..ports {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let proxy = Arc::new(Self {
            ports: listeners.iter().map(port).collect(),
            servers,
            with_keys: AtomicUsize::new(0),
            without_keys: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let proxy = Arc::clone(&proxy);
            tasks.spawn(async move {
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(Arc::clone(&proxy).serve(stream));
                }
            });
        }
        (proxy, tasks)
    }

    /// Answers the commands of a connection, one after the other.
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let mut client = BufReader::new(stream);
        let mut servers = Vec::new();
        for port in self.servers {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            servers.push(BufReader::new(server));
        }
        while let Some(words) = read_command(&mut client).await {
            let upper = |at: usize| words.get(at).map(|word| word.to_ascii_uppercase());
            let reply = match upper(0).as_deref() {
                Some(b"CLUSTER") => self.slots().into_bytes(),
                Some(b"SCRIPT") => {
                    forward(&mut servers[1], &words).await;
                    forward(&mut servers[0], &words).await
                }
                Some(name) => {
                    let server = self.server_of(name, &words);
                    forward(&mut servers[server], &words).await
                }
                None => return,
            };
            if client.get_mut().write_all(&reply).await.is_err() {
                return;
            }
        }
    }

    /// Its ports share all slots.
    fn slots(&self) -> String {
        let each = 16_384 / self.ports.len();
        let mut reply = format!("*{}\r\n", self.ports.len());
        for (number, port) in self.ports.iter().enumerate() {
            let (from, to) = (number * each, (number + 1) * each - 1);
            let node = format!("*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$1\r\n{number}\r\n");
            let _ = write!(reply, "*3\r\n:{from}\r\n:{to}\r\n{node}");
        }
        reply
    }

    /// The server of a command's first key.
    fn server_of(&self, name: &[u8], words: &Words) -> usize {
        let is_script = matches!(name, b"EVAL" | b"EVALSHA");
        let has_keys = !is_script || words[2] != b"0";
        if name == b"EVALSHA" {
            let runs = [&self.without_keys, &self.with_keys][usize::from(has_keys)];
            runs.fetch_add(1, Ordering::Relaxed);
        }
        let key = words.get(if is_script { 3 } else { 1 });
        key.filter(|_| has_keys).map_or(0, |key| server_of_key(key))
    }
}

/// The number of the server with this key, by its hash tag.
fn server_of_key(key: &[u8]) -> usize {
    let tag = key.strip_prefix(b"tg:{").and_then(|rest| rest.get(..2));
    let sum = tag
        .unwrap_or_default()
        .iter()
        .map(|byte| usize::from(*byte));
    sum.sum::<usize>() % 2
}

async fn read_line(from: &mut BufReader<TcpStream>) -> Option<(Vec<u8>, i64)> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line).await.ok()?;
    let number = line.get(1..)?.trim_ascii_end();
    let number = String::from_utf8_lossy(number).parse().unwrap_or(0);
    Some((line, number))
}

pub(super) async fn read_command(from: &mut BufReader<TcpStream>) -> Option<Words> {
    let (_, count) = read_line(from).await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (_, length) = read_line(from).await?;
        let mut word = vec![0; usize::try_from(length).unwrap() + 2];
        from.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

/// Sends a command to a server and returns its reply, byte for byte.
async fn forward(server: &mut BufReader<TcpStream>, words: &Words) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    server.get_mut().write_all(&command).await.unwrap();
    let mut reply = Vec::new();
    let mut values = 1;
    while values > 0 {
        values -= 1;
        let (line, number) = read_line(server).await.unwrap();
        reply.extend_from_slice(&line);
        match line[0] {
            b'$' if number >= 0 => {
                let mut text = vec![0; usize::try_from(number).unwrap() + 2];
                server.read_exact(&mut text).await.unwrap();
                reply.extend_from_slice(&text);
            }
            b'*' => values += usize::try_from(number).unwrap_or(0),
            _ => {}
        }
    }
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_refuses_nothing_gets_a_run_for_each_tag() {
    for ports in [1, 2] {
        let servers = [RedisServer::start(&[]), RedisServer::start(&[])];
        let (proxy, _tasks) = Proxy::start(ports, [servers[0].port(), servers[1].port()]).await;
        let url = format!("redis+cluster://127.0.0.1:{}", proxy.ports[0]);
        let (_tollgate, mut client) = shared(&url, &[]).await;
        let keys: Vec<String> = (0..BUCKETS).map(|number| format!("p{number}")).collect();
        for _ in 0..3 {
            let descriptors = keys.iter().map(|key| descriptor(&[("k", key)])).collect();
            let answer = client.should_rate_limit(request("d", descriptors)).await;
            let answer = answer.unwrap().into_inner();
            assert_eq!(answer.overall_code, i32::from(Code::Ok));
        }
        for key in &keys {
            assert_eq!(left(&mut client, key).await, 997, "{key}");
        }
        for (number, server) in servers.iter().enumerate() {
            let buckets = buckets(server);
            assert!(buckets.len() > BUCKETS / 4, "{number}: {}", buckets.len());
            for bucket in buckets {
                assert_eq!(server_of_key(bucket.as_bytes()), number, "{bucket}");
            }
        }
        assert!(proxy.with_keys.load(Ordering::Relaxed) > 3);
        assert_eq!(proxy.without_keys.load(Ordering::Relaxed), 0);
    }
}
