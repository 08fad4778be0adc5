//! A tollgate in the test's own process, on real sockets, with a clock that the test sets.
//!
//! Why: the service's promises are promises about bytes on the wire, but no test waits for a window
//! to turn. [`App`](tollgate::app::App) takes bound listeners, a clock and a shutdown future; here
//! the clock is a `ManualClock`.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tollgate::admin_api::Top;
use tollgate::app::{App, AppError, Listeners};
use tollgate::clock::ManualClock;
use tollgate::decisions::Decisions;
use tollgate::grpc::{Health, Routes};
use tollgate::metrics::Metrics;
use tollgate::pipeline::{Generation, Generations};
use tollgate::rules::file::{Options, load};
use tollgate::rules::isolation::LastGood;
use tollgate::rules::path::Source;
use tollgate::rules::reload::{Resource, Rules, load_resources};
use tollgate::rules::yaml::Node;
use tollgate::settings::Settings;
use tollgate::top_keys::{TopKeys, TopQuery};
use tollgate_limiter::{Algorithm, AlgorithmOption, Timestamp};
use tonic::transport::Channel;

use crate::grpc_client::{
    Descriptor, DescriptorStatus, RateLimitRequest, RateLimitResponse, RateLimitServiceClient,
    channel, request,
};
use crate::metrics_text::{rules_hash, series_value};
use crate::polling::PATIENCE;

/// An instant 10.5 s into a minute, an hour, a day, … none of which is about to turn.
pub const START: Timestamp = Timestamp::from_us(1_700_006_410_500_000);

/// A running service.
pub struct Service {
    pub client: RateLimitServiceClient<Channel>,
    pub clock: Arc<ManualClock>,
    pub metrics: Arc<Metrics>,
    pub decisions: Decisions,
    pub generations: Arc<Generations>,
    pub top_keys: Arc<TopKeys>,
    /// tonic's routes of this service, without a port. Their health says "serving".
    pub routes: Routes,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
    /// Listeners for proxies that do not speak gRPC, in the order of their settings.
    pub ingresses: Vec<SocketAddr>,
    /// The rules file; a change counts after [`Service::reload`].
    pub rules: std::path::PathBuf,
    reload: mpsc::Sender<()>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), AppError>>,
    _rules: tempfile::TempDir,
}

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// Settings as the command line gives them.
pub fn settings(arguments: &[&str]) -> Settings {
    Arguments::parse_from([&["tollgate"], arguments].concat()).settings
}

/// A limit of `requests` per hour or in flight with that algorithm, as in a rules file; all of them
/// may pass at once.
pub fn limit_of(requests: u64, algorithm: &dyn Algorithm) -> String {
    let mut fields = vec![
        format!("requests_per_unit: {requests}"),
        format!("algorithm: {}", algorithm.name()),
    ];
    let has = |choice| algorithm.facts().options.contains(&choice);
    if has(AlgorithmOption::Slots) {
        fields.push("slot_seconds: 3600".to_owned());
    } else {
        fields.push("unit: hour".to_owned());
    }
    if algorithm.facts().default_burst(requests) != requests {
        fields.push(format!("burst: {requests}"));
    }
    if has(AlgorithmOption::Segments)
        && algorithm
            .facts()
            .variant_for(AlgorithmOption::Segments)
            .is_none()
    {
        fields.push("segments: 6".to_owned());
    }
    format!("{{{}}}", fields.join(", "))
}

/// Makes these rules the current ones. They are the tree of a rules file, which needs no parser.
pub fn publish_tree(generations: &Generations, root: &Node) {
    let part = Source {
        name: "rules".to_owned(),
        text: String::new(),
    };
    let resource = |part: &Source| Resource {
        name: part.name.clone(),
        root: root.clone(),
        bytes: Vec::new(),
    };
    let (options, good) = (Options::default(), LastGood::default());
    let rules = load_resources(vec![part], resource, &options, &good).expect("good rules");
    generations.take(Some(Ok(rules)));
}

/// Makes these rules (YAML) the current ones.
pub fn publish(generations: &Generations, text: String) {
    let name = "rules.yaml".to_owned();
    let loaded = load(&[Source { name, text }], Options::default()).expect("good rules");
    generations.take(Some(Ok(Rules {
        loaded,
        sources: 1,
        hash: 0,
    })));
}

impl Service {
    /// Starts it with these rules (YAML) and these further arguments, and waits until it is ready.
    pub async fn start(rules: &str, arguments: &[&str]) -> Self {
        Self::start_at(rules, arguments, START).await
    }

    /// The same at this time of day.
    pub async fn start_at(rules: &str, arguments: &[&str], now: Timestamp) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, rules).expect("the rules file");
        let mut settings = settings(arguments);
        settings.rules_path = Some(file.clone());
        settings.drain_delay = std::time::Duration::ZERO;
        let listener = || TcpListener::bind("127.0.0.1:0");
        let listeners = Listeners {
            grpc: listener().await.expect("a port").into(),
            http: listener().await.expect("a port"),
            admin: Some(listener().await.expect("a port")),
            prometheus: None,
            ingresses: Listeners::bind_ingresses(&settings).await.expect("ports"),
        };
        let address = |listener: &TcpListener| listener.local_addr().expect("its address");
        let grpc = listeners.grpc.address().expect("its address");
        let http = address(&listeners.http);
        let admin = listeners
            .admin
            .as_ref()
            .map(address)
            .expect("an admin port");
        let ingresses = listeners.ingresses.iter();
        let ingresses = ingresses.map(|(_, listener)| address(listener)).collect();
        let clock = Arc::new(ManualClock::at(now));
        let app = App::build(settings, listeners, clock.clone()).expect("it can be built");
        let parts = app.parts.clone();
        let health = Health::new().await;
        health.set_serving(true).await;
        let routes = app.routes(&health).expect("the routes");
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let (reload, reloads) = mpsc::channel(1);
        let ready = |_: &Generation| ready.send(()).expect("the test waits");
        let running = tokio::spawn(app.run(ready, reloads, async {
            let _ = stopped.await;
        }));
        let is_ready = tokio::time::timeout(PATIENCE, is_ready).await;
        is_ready.expect("the rules are good").expect("it runs");
        Self {
            client: Self::connect(grpc).await,
            clock,
            metrics: parts.metrics,
            decisions: parts.decisions,
            generations: parts.generations,
            top_keys: parts.top_keys,
            routes,
            grpc,
            http,
            admin,
            ingresses,
            rules: file,
            reload,
            stop: Some(stop),
            running,
            _rules: directory,
        }
    }

    /// Another client with a connection of its own.
    pub async fn connect(grpc: SocketAddr) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(channel(grpc).await)
    }

    /// Sends one request; the call must succeed.
    pub async fn ask(&mut self, request: RateLimitRequest) -> RateLimitResponse {
        self.client
            .should_rate_limit(request)
            .await
            .expect("an answer")
            .into_inner()
    }

    /// Sends a request of one descriptor; returns its status.
    pub async fn status(&mut self, domain: &str, descriptor: Descriptor) -> DescriptorStatus {
        let response = self.ask(request(domain, vec![descriptor])).await;
        assert_eq!(response.statuses.len(), 1);
        assert_eq!(response.overall_code, response.statuses[0].code);
        response.statuses[0].clone()
    }

    /// The heaviest keys.
    pub async fn top(&self, query: &TopQuery) -> Top {
        let rules = self.generations.current().expect("rules");
        self.top_keys.query(query, Some(&rules.rules)).await
    }

    /// The value of a metric, found by its name and labels as `/metrics` writes them; 0 when it is
    /// not there.
    pub fn metric(&self, series: &str) -> u64 {
        series_value(&self.metrics.render().expect("text"), series)
    }

    /// The hash of the rules in use.
    pub fn rules_hash(&self) -> u64 {
        rules_hash(&self.metrics.render().expect("text"))
    }

    /// Makes it read its rules again, after replacing them if any are given, and waits until it has
    /// accepted or rejected them.
    pub async fn reload(&mut self, rules: &str) {
        std::fs::write(&self.rules, rules).expect("the rules file");
        let loads = || {
            self.metric("ratelimit_service_config_load_success")
                + self.metric("ratelimit_service_config_load_error")
        };
        let before = loads();
        self.reload.send(()).await.expect("it runs");
        while loads() == before {
            tokio::task::yield_now().await;
        }
    }

    /// Starts the shutdown and waits for its end.
    pub async fn stop(mut self) -> Result<(), AppError> {
        let stop = self.stop.take().expect("stopped once");
        stop.send(()).expect("it runs");
        (&mut self.running).await.expect("no panic")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.running.abort();
    }
}
