//! A model's API behind Envoy: server-sent events, of which the last carries the usage.
//!
//! Why our own: no real model runs here, and a test decides when streams end. Every stream costs
//! from 1 to 4,000 tokens. A seeded generator chooses the cost in the order of arrival, and the
//! stream's last event is the first to say it.
//!
//! What it deliberately does not do: serve two requests on one connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tollgate_test_support::seeded_rng::SeededRng;

/// The most that a stream costs, in tokens.
pub(crate) const COST_MAX: u64 = 4_000;

/// How the model answers, by the path of the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// Events, with the usage in the last one.
    Streamed,
    /// Events, and a closed connection before the usage.
    BrokenOff,
    /// One JSON document with its usage.
    Plain,
}

/// A running model.
pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    costs: Mutex<Costs>,
    /// Whether streams may end.
    gate: watch::Sender<bool>,
}

struct Costs {
    seeded: SeededRng,
    chosen: Vec<u64>,
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\nconnection: close\r\n\r\n";

const PLAIN_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";

// === impl Answer ===

impl Answer {
    const ALL: [Self; 3] = [Self::Streamed, Self::BrokenOff, Self::Plain];

    /// The path that asks for it.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Streamed => "/v1/chat/completions",
            Self::BrokenOff => "/v1/broken-off",
            Self::Plain => "/v1/plain",
        }
    }
}

// === impl Model ===

impl Model {
    /// Starts it with its gate closed.
    pub(crate) async fn start(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let seeded = SeededRng::of_seed(seed);
        let chosen = Vec::new();
        let shared = Arc::new(Shared {
            costs: Mutex::new(Costs { seeded, chosen }),
            gate: watch::Sender::new(false),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                tokio::spawn(async move {
                    // Envoy resets the connection when its client leaves.
                    let _ = shared.serve(stream).await;
                });
            }
        });
        Self { address, shared }
    }

    /// Lets streams end, or holds those that come from now on.
    pub(crate) fn let_streams_end(&self, may_end: bool) {
        self.shared.gate.send_replace(may_end);
    }

    /// What the streams that came so far cost, in the order of arrival.
    pub(crate) fn costs(&self) -> Vec<u64> {
        self.shared.costs.lock().expect("the costs").chosen.clone()
    }
}

// === impl Shared ===

impl Shared {
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let Some(answer) = read_request(&mut stream).await? else {
            return Ok(()); // a connection that was never needed
        };
        let cost = self.costs.lock().expect("the costs").choose();
        if answer == Answer::Plain {
            let (body, length) = (usage(cost), usage(cost).len());
            let text = format!("{PLAIN_HEAD}\r\ncontent-length: {length}\r\n\r\n{body}");
            return stream.write_all(text.as_bytes()).await;
        }
        stream.write_all(HEAD.as_bytes()).await?;
        let word = r#"{"choices":[{"delta":{"content":"word "}}]}"#;
        send_event(&mut stream, word).await?;
        let mut gate = self.gate.subscribe();
        let is_open = gate.wait_for(|may_end| *may_end).await.is_ok();
        if !is_open || answer == Answer::BrokenOff {
            return Ok(());
        }
        for _ in 0..3 {
            send_event(&mut stream, word).await?;
        }
        send_event(&mut stream, &usage(cost)).await?;
        send_event(&mut stream, "[DONE]").await?;
        stream.write_all(b"0\r\n\r\n").await
    }
}

// === impl Costs ===

impl Costs {
    fn choose(&mut self) -> u64 {
        let cost = self.seeded.between(1, COST_MAX);
        self.chosen.push(cost);
        cost
    }
}

/// What an answer of this cost says of it.
fn usage(cost: u64) -> String {
    let (prompt, completion) = (cost / 4, cost - cost / 4);
    format!(
        r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{cost}}}}}"#
    )
}

/// One event in one chunk.
async fn send_event(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk.as_bytes()).await
}

/// Reads a request without a body. None if none comes.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<Answer>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let answer = Answer::ALL.into_iter().find(|one| one.path() == path);
    Ok(Some(answer.expect("a known path")))
}
