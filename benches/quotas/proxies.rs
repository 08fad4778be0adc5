//! Streams of proxies: each has its own connection and reports all its buckets each five seconds.
//!
//! Reports are encoded in advance, and assignments are read but not decoded, so that the load
//! costs little beside the service. Its thread is of the idle scheduling class: the checks whose
//! latency is measured go first on their core.
//!
//! What it deliberately does not do: enforce assignments
//! (`crates/engine/src/quota/tests/simulation`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use prost::Message as _;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;
use tollgate::proto::envoy::service::rate_limit_quota::v3::bucket_id::BucketEntry;
use tollgate::proto::envoy::service::rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage;
use tollgate::proto::envoy::service::rate_limit_quota::v3::{BucketId, RateLimitQuotaUsageReports};

const PATH: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The time between two reports, as Envoy has it.
const INTERVAL: Duration = Duration::from_secs(5);

/// Streams, buckets of all of them, and buckets of each.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) streams: u64,
    pub(crate) buckets: u64,
    pub(crate) each: u64,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    reports: AtomicU64,
    received: AtomicU64,
    closed: AtomicU64,
}

/// Running streams. Dropping it closes them.
pub(crate) struct Load {
    counts: Arc<Counts>,
    shape: Shape,
    thread: Option<JoinHandle<()>>,
}

// === impl Load ===

impl Load {
    pub(crate) fn start(grpc: SocketAddr, shape: Shape) -> Self {
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let thread = std::thread::spawn(move || {
            let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
            set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            LocalSet::new().block_on(&runtime, run(grpc, shape, shared));
        });
        Self {
            counts,
            shape,
            thread: Some(thread),
        }
    }

    /// Waits until every stream has reported so often, on average.
    pub(crate) fn wait_for_reports(&self, each: u64) {
        while self.counts.reports.load(Ordering::Relaxed) < each * self.shape.streams {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Bytes of assignments.
    pub(crate) fn received(&self) -> u64 {
        self.counts.received.load(Ordering::Relaxed)
    }

    /// Streams that the service closed.
    pub(crate) fn closed(&self) -> u64 {
        self.counts.closed.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the load");
        }
    }
}

/// A report of `each` buckets from this one on, as a gRPC frame.
fn report(shape: Shape, from: u64, allowed: u64) -> Bytes {
    let usages = (from..from + shape.each).map(|bucket| BucketQuotaUsage {
        bucket_id: Some(BucketId {
            bucket: vec![BucketEntry {
                key: Bytes::from_static(b"user"),
                value: format!("user-{:06}", bucket % shape.buckets).into(),
            }],
        }),
        time_elapsed: None,
        num_requests_allowed: allowed,
        num_requests_denied: 0,
    });
    let message = RateLimitQuotaUsageReports {
        domain: Bytes::from_static(b"edge"),
        bucket_quota_usages: usages.collect(),
    };
    let length = u32::try_from(message.encoded_len()).unwrap();
    let mut frame = vec![0];
    frame.extend(length.to_be_bytes());
    message.encode(&mut frame).unwrap();
    frame.into()
}

async fn run(grpc: SocketAddr, shape: Shape, counts: Arc<Counts>) {
    // Streams that begin with the same bucket share their reports.
    let step = if shape.each == shape.buckets { 0 } else { 10 };
    let mut same = None;
    for number in 0..shape.streams {
        let reports = || [50, 52].map(|allowed| report(shape, number * step, allowed));
        let reports = match (&same, step) {
            (Some(same), 0) => <[Bytes; 2]>::clone(same),
            _ => reports(),
        };
        same = Some(reports.clone());
        let counts = Arc::clone(&counts);
        let offset =
            INTERVAL * u32::try_from(number).unwrap() / u32::try_from(shape.streams).unwrap();
        spawn_local(async move {
            sleep(offset).await;
            proxy(grpc, reports, &counts).await;
            counts.closed.fetch_add(1, Ordering::Relaxed);
        });
        tokio::task::yield_now().await;
    }
    while !counts.stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(20)).await;
    }
}

/// One stream, until the service ends it.
async fn proxy(grpc: SocketAddr, reports: [Bytes; 2], counts: &Arc<Counts>) {
    let stream = TcpStream::connect(grpc).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 20)
        .handshake(stream)
        .await
        .unwrap();
    spawn_local(async move {
        let _ = connection.await;
    });
    let mut sender = sender.ready().await.unwrap();
    let head = Request::post(format!("http://{grpc}{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut body) = sender.send_request(head, false).unwrap();
    let counts_of_answers = Arc::clone(counts);
    let reading = spawn_local(async move {
        let Ok(response) = response.await else {
            return; // It is counted as closed.
        };
        let mut answers = response.into_body();
        while let Some(Ok(data)) = answers.data().await {
            let bytes = data.len();
            counts_of_answers
                .received
                .fetch_add(bytes as u64, Ordering::Relaxed);
            let _ = answers.flow_control().release_capacity(bytes);
        }
    });
    for frame in reports.iter().cycle() {
        if reading.is_finished() || body.send_data(frame.clone(), false).is_err() {
            return;
        }
        counts.reports.fetch_add(1, Ordering::Relaxed);
        sleep(INTERVAL).await;
    }
}
