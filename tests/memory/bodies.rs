//! Memory of large request bodies that arrive slowly.
//!
//! How: clients send all but the last byte of each body, resident memory is read, and then every
//! body is finished and answered.
//!
//! What it deliberately does not do: exceed the limit (`tests/service/grpc/bodies`).

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use prost::Message as _;
use tokio::net::TcpStream;
use tollgate_test_support::grpc_client::request;
use tollgate_test_support::polling::until;
use tollgate_test_support::tollgate_process::Tollgate;

use super::descriptors;

const RULES: &str = "
domain: memory
descriptors:
  - key: key
    rate_limit: { unit: year, requests_per_unit: 1000000 }
";

const CONNECTIONS: usize = 50;
const CALLS: usize = 2_000;
const BODY_BYTES: usize = 60 * 1024;

/// Most overhead above the bytes of the bodies, in percent: buffers, streams, pages.
const OVERHEAD_PERCENT_MAX: u64 = 50;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A call whose last byte was not sent.
struct Call {
    body: SendStream<Bytes>,
    answer: ResponseFuture,
}

/// A gRPC frame of a request of [`BODY_BYTES`].
fn body() -> Bytes {
    let mut question = request("memory", descriptors("key", 0..4));
    let missing = BODY_BYTES - 5 - question.encoded_len();
    // The key's text fills the rest, without its own header of a few bytes.
    let entry = &mut question.descriptors[0].entries[0];
    entry.value = "v".repeat(missing - 8).into();
    let message = question.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_large_bodies_take_little_more_memory_than_their_bytes() {
    let running = Tollgate::start(
        RULES,
        &["--body-memory-max", "256MiB", "--body-wait", "10m"],
    );
    let whole = body();
    let (most, last) = (
        whole.slice(..whole.len() - 1),
        whole.slice(whole.len() - 1..),
    );
    let before = running.status_bytes("VmRSS");
    let mut calls = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(running.grpc).await.unwrap();
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..CALLS / CONNECTIONS {
            let call = http::Request::post(format!("http://test{PATH}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            send = send.ready().await.unwrap();
            let (answer, mut body) = send.send_request(call.body(()).unwrap(), false).unwrap();
            body.send_data(most.clone(), false).unwrap();
            calls.push(Call { body, answer });
        }
    }
    let bytes = (CALLS * whole.len()) as u64;
    let held = "tollgate_unfinished_bodies_bytes";
    // Each length was declared by the first frame; the rest is on its way.
    until("the bodies are held", || match running.metric(held) {
        held if held == bytes => Ok(()),
        held => Err(format!("{held} of {bytes}")),
    });
    let weight = || running.status_bytes("VmRSS").saturating_sub(before);
    until("the bodies have arrived", || match weight() {
        weight if weight >= bytes => Ok(()),
        weight => Err(format!("{weight} of {bytes}")),
    });
    let most = bytes + bytes / 100 * OVERHEAD_PERCENT_MAX;
    println!(
        "{CALLS} bodies of {} bytes take {} bytes",
        whole.len(),
        weight()
    );
    assert!(weight() <= most, "{} bytes, more than {most}", weight());
    for call in &mut calls {
        call.body.send_data(last.clone(), true).unwrap();
    }
    for call in calls {
        let (response, mut body) = call.answer.await.unwrap().into_parts();
        assert_eq!(response.headers.get("grpc-status"), None, "{response:?}");
        while let Some(data) = body.data().await {
            data.unwrap();
        }
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
    }
    let peak = running.status_bytes("VmHWM").saturating_sub(before);
    println!("at most {peak} bytes until all are answered");
    assert!(peak <= most, "{peak} bytes, more than {most}");
    assert_eq!(running.metric(held), 0);
    assert_eq!(running.metric("tollgate_bodies_refused_total"), 0);
}
