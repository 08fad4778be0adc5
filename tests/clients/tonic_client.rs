//! The tonic client: this test binary, started again as a program of its own (`contract.md`).
//!
//! Why not a package of its own: it would build tonic and its TLS a second time.
//!
//! What it deliberately does not do: share anything with the driver but the contract.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use prost::bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tollgate::proto::envoy::extensions::common::ratelimit::v3 as common;
use tollgate::proto::envoy::service::ratelimit::v3 as rls;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use rls::rate_limit_service_client::RateLimitServiceClient;

/// The variable that makes this binary the client.
const VARIABLE: &str = "TOLLGATE_TESTS_TONIC_CLIENT";

type Words = BTreeMap<String, String>;

/// Starts the client.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.env(VARIABLE, "1");
    command
}

/// Is the client, if this process was started as one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    runtime.block_on(run(words(&arguments.join(" "))));
    Some(ExitCode::SUCCESS)
}

/// Commands that concern batches under way.
#[derive(Clone)]
struct Control {
    stopped: watch::Receiver<bool>,
    cancelled: watch::Receiver<bool>,
}

async fn run(options: Words) {
    let mut client = RateLimitServiceClient::new(channel(&options));
    if number(&options, "gzip") == 1 {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    let (stop, stopped) = watch::channel(false);
    let (cancel, cancelled) = watch::channel(false);
    let control = Control { stopped, cancelled };
    let mut batches = JoinSet::new();
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            sender.send(line).expect("it runs");
        }
    });
    while let Some(line) = lines.recv().await {
        match line.as_str() {
            "stop" => stop.send(true).expect("it runs"),
            "cancel" => cancel.send(true).expect("it runs"),
            batch => {
                batches.spawn(run_batch(client.clone(), words(batch), control.clone()));
            }
        }
    }
    batches.join_all().await;
}

/// A channel that connects when it is first used.
fn channel(options: &Words) -> Channel {
    let endpoint = endpoint(options);
    if options.contains_key("ca") {
        endpoint.connect_with_connector_lazy(secured(options))
    } else {
        endpoint.connect_lazy()
    }
}

/// Connections under TLS, by rustls itself: with a feature of its own for TLS tonic would refuse
/// the connectors by which tollgate reaches its collector.
fn secured(options: &Words) -> HttpsConnector<HttpConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&options["ca"]).expect("a PEM file") {
        roots
            .add(certificate.expect("a certificate"))
            .expect("a CA's certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_root_certificates(roots);
    let config = match options.get("cert") {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let chain = CertificateDer::pem_file_iter(file).expect("a PEM file");
            let chain = chain.collect::<Result<_, _>>().expect("certificates");
            let key = PrivateKeyDer::from_pem_file(&options["key"]).expect("a key");
            builder
                .with_client_auth_cert(chain, key)
                .expect("a certificate and its key")
        }
    };
    HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http2()
        .build()
}

fn endpoint(options: &Words) -> Endpoint {
    let scheme = if options.contains_key("ca") {
        "https"
    } else {
        "http"
    };
    let mut endpoint =
        Endpoint::from_shared(format!("{scheme}://{}", options["address"])).expect("an address");
    let interval_ms = number(options, "keepalive-ms");
    if interval_ms > 0 {
        endpoint = endpoint
            .http2_keep_alive_interval(Duration::from_millis(interval_ms))
            .keep_alive_while_idle(true);
    }
    endpoint
}

async fn run_batch(client: RateLimitServiceClient<Channel>, batch: Words, control: Control) {
    let calls = number(&batch, "calls");
    let begun = Arc::new(AtomicU64::new(0));
    let results = Arc::new(Mutex::new((0_u64, 0_u64, BTreeMap::new(), String::new())));
    let batch = Arc::new(batch);
    let mut callers = JoinSet::new();
    for _ in 0..number(&batch, "at-once") {
        let (mut client, batch, control) = (client.clone(), Arc::clone(&batch), control.clone());
        let (begun, results) = (Arc::clone(&begun), Arc::clone(&results));
        callers.spawn(async move {
            while !*control.stopped.borrow()
                && (calls == 0 || begun.fetch_add(1, Ordering::Relaxed) < calls)
            {
                let answer = call(&mut client, &batch, &control).await;
                let mut results = results.lock().await;
                let (answered, incomplete, failed, first) = &mut *results;
                match answer {
                    Ok(answer) if complete(answer.get_ref()) => *answered += 1,
                    Ok(_) => *incomplete += 1,
                    Err(status) => {
                        *failed.entry(name_of(status.code())).or_insert(0_u64) += 1;
                        if first.is_empty() {
                            *first = status.to_string();
                        }
                    }
                }
            }
        });
    }
    callers.join_all().await;
    let (answered, incomplete, failed, first) = &*results.lock().await;
    let name = &batch["name"];
    println!(
        "{}",
        serde_json::json!({"name": name, "answered": answered, "incomplete": incomplete,
            "failed": failed, "first": first})
    );
}

async fn call(
    client: &mut RateLimitServiceClient<Channel>,
    batch: &Words,
    control: &Control,
) -> Result<Response<rls::RateLimitResponse>, Status> {
    let mut request = Request::new(request_of(number(batch, "value-bytes")));
    let deadline_ms = number(batch, "deadline-ms");
    let deadline = Duration::from_millis(deadline_ms);
    if deadline_ms > 0 {
        request.set_timeout(deadline);
    }
    let size = usize::try_from(number(batch, "metadata-bytes")).expect("a size");
    if size > 0 {
        let value = "X".repeat(size).parse().expect("ASCII");
        request.metadata_mut().insert("x-long", value);
    }
    let mut cancelled = control.cancelled.clone();
    let cancel = async {
        if batch.contains_key("cancel") {
            let _ = cancelled.wait_for(|cancelled| *cancelled).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        answer = client.should_rate_limit(request) => answer,
        // To drop a call is tonic's way to cancel it.
        () = cancel => Err(Status::cancelled("by command")),
    }
}

/// Three descriptors: one with a limit, one over its limit, one without a rule.
fn request_of(value_bytes: u64) -> rls::RateLimitRequest {
    let long = "v".repeat(usize::try_from(value_bytes.max(1)).expect("a size"));
    let descriptor = |(key, value): (&str, &str)| common::RateLimitDescriptor {
        entries: vec![common::rate_limit_descriptor::Entry {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
        }],
        ..Default::default()
    };
    rls::RateLimitRequest {
        domain: Bytes::from_static(b"clients"),
        descriptors: [("open", long.as_str()), ("closed", "v"), ("unknown", "v")]
            .map(descriptor)
            .to_vec(),
        ..Default::default()
    }
}

/// One status a descriptor, in their order: OK, OVER_LIMIT, OK.
fn complete(answer: &rls::RateLimitResponse) -> bool {
    let codes: Vec<_> = answer.statuses.iter().map(|status| status.code).collect();
    let limit = answer
        .statuses
        .first()
        .and_then(|status| status.current_limit.as_ref());
    answer.overall_code == 2
        && codes == [1, 2, 1]
        && limit.is_some_and(|limit| limit.requests_per_unit == 1_000_000_000)
}

/// The status as the other programs write it: `DEADLINE_EXCEEDED`.
fn name_of(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn words(line: &str) -> Words {
    let pairs = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn number(words: &Words, name: &str) -> u64 {
    words
        .get(name)
        .map_or(0, |value| value.parse().expect("a number"))
}
