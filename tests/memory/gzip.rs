//! Memory of gzip bombs: at most the message limit for each request in progress.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Request;
use tokio::net::TcpStream;

use super::*;

/// Number of bombs in progress at once, and of connections.
const BOMBS: usize = 200;
const CONNECTIONS: usize = 10;

/// Expanded size of each bomb.
const EXPANDED_BYTES: usize = 64 << 20;

/// Most growth of the process: less than two bombs.
const GROWTH_BYTES_MAX: u64 = 100 << 20;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const RULES: &str = "
domain: memory
descriptors:
  - key: fixed_window
    rate_limit: { unit: year, requests_per_unit: 10 }
";

fn bomb() -> bytes::Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..EXPANDED_BYTES / zeros.len() {
        encoder.write_all(&zeros).unwrap();
    }
    let compressed = encoder.finish().unwrap();
    let length = u32::try_from(compressed.len()).unwrap().to_be_bytes();
    assert!(compressed.len() < 128 << 10, "within the bound on messages");
    [&[1], &length[..], &compressed].concat().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gzip_bombs_are_cut_at_the_message_limit() {
    let running = Tollgate::start(RULES, &[]);
    ask_for_each(&running, "fixed_window", 0..1_000).await;
    let before = running.status_bytes("VmHWM");
    let (bomb, mut answers) = (bomb(), JoinSet::new());
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(running.grpc).await.unwrap();
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..BOMBS / CONNECTIONS {
            let request = Request::post(format!("http://test{PATH}"))
                .header("content-type", "application/grpc")
                .header("grpc-encoding", "gzip");
            send = send.ready().await.unwrap();
            let (answer, mut body) = send.send_request(request.body(()).unwrap(), false).unwrap();
            body.send_data(bomb.clone(), true).unwrap();
            answers.spawn(async move { answer.await.unwrap().status() });
        }
    }
    assert!(answers.join_all().await.iter().all(|status| *status == 200));
    let grown = running.status_bytes("VmHWM") - before;
    println!("{BOMBS} gzip bombs of {EXPANDED_BYTES} bytes: the process grew by {grown} bytes");
    assert_eq!(
        running.metric("tollgate_excess_total{bound=\"message_size\"}"),
        BOMBS as u64
    );
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
}
