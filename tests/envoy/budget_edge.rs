//! Clients, a real Envoy with the bootstrap of docs/guides/budgets-with-envoy.md, tollgate replicas
//! with the rules of that page, and a model behind.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::http_client::http;
use tollgate_test_support::metrics_text::series_value;
use tollgate_test_support::polling::{PATIENCE, until};
use tollgate_test_support::yaml::yaml;

use crate::envoy::model::{Answer, Model};

pub(crate) const PAGE: &str = include_str!("../../docs/guides/budgets-with-envoy.md");

/// Streams that start at once.
pub(crate) const STREAMS: usize = 500;

/// The budget of the page's rules, in tokens.
pub(crate) const BUDGET: u64 = 100_000;

/// Rounds in which refused streams try again, at most.
const ROUNDS_MAX: usize = 50;

/// The names of docs/guides/model-gateway.md.
pub(crate) const GATEWAY_DOMAIN: &str = "default/eg/http";
pub(crate) const GATEWAY_ROUTE: &str = "httproute/default/chat/rule/0/match/0/*";
pub(crate) const GATEWAY_USER: &str = "rule-0-match-0";

/// Requests that were answered: what they took or gave back has been counted.
const ANSWERED: &str =
    r#"ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"}"#;

/// Everything between clients and the model.
pub(crate) struct Edge {
    pub(crate) envoy: Envoy,
    pub(crate) model: Model,
    /// HTTP ports of the replicas.
    http: Vec<SocketAddr>,
    pub(crate) runtime: Runtime,
    /// Requests that the replicas must have had.
    due: u64,
    /// The budget: a domain, and a descriptor without an id.
    budget: Value,
}

/// How the streams of a run went.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Run {
    /// Streams of the first round that passed: all at once.
    pub(crate) at_once: usize,
    pub(crate) rounds: usize,
    /// What all streams cost.
    pub(crate) costs: Vec<u64>,
}

/// A stream that the model serves, or a refusal.
pub(crate) struct Stream {
    pub(crate) status: u16,
    connection: BufReader<TcpStream>,
}

// === impl Edge ===

impl Edge {
    /// Starts Envoy and the model in front of these replicas: their gRPC and HTTP ports.
    /// `change` edits the page's bootstrap.
    pub(crate) fn start(
        runtime: Runtime,
        replicas: &[(SocketAddr, SocketAddr)],
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let model = runtime.block_on(Model::start(22));
        let grpc: Vec<_> = replicas.iter().map(|(grpc, _)| *grpc).collect();
        let mut bootstrap = bootstrap(model.address, &grpc);
        change(&mut bootstrap);
        Self {
            envoy: Envoy::start(&bootstrap.to_string()),
            model,
            http: replicas.iter().map(|(_, http)| *http).collect(),
            runtime,
            due: 0,
            budget: look("models", &[("user", "alice")]),
        }
    }

    /// Looks at this budget instead of the page's.
    pub(crate) fn look_at(&mut self, domain: &str, entries: &[(&str, &str)]) {
        self.budget = look(domain, entries);
    }

    /// Starts this many streams at once, and waits until each was refused or admitted.
    pub(crate) fn start_streams(&mut self, many: usize) -> Vec<Stream> {
        self.ask(many, Answer::Streamed)
    }

    /// The same, for answers of this kind.
    pub(crate) fn ask(&mut self, many: usize, answer: Answer) -> Vec<Stream> {
        self.due += many as u64;
        let edge = self.envoy.edge;
        let started = (0..many).map(|_| async move {
            let started = tokio::time::timeout(PATIENCE, Stream::start(edge, answer)).await;
            started.expect("Envoy answers")
        });
        self.runtime.block_on(async {
            let tasks: Vec<_> = started.map(tokio::spawn).collect();
            let mut streams = Vec::new();
            for task in tasks {
                streams.push(task.await.expect("a stream"));
            }
            streams
        })
    }

    /// Lets admitted streams end, and waits until Envoy has sent as many ends.
    pub(crate) fn end_streams(&mut self, streams: Vec<Stream>) {
        self.due += streams.len() as u64;
        self.model.let_streams_end(true);
        self.runtime.block_on(async {
            for stream in streams {
                let ended = tokio::time::timeout(PATIENCE, stream.end()).await;
                let body = ended.expect("it ends");
                assert!(body.contains("total_tokens"), "{body}");
            }
        });
        self.model.let_streams_end(false);
        self.wait_for_requests();
    }

    /// Streams until none passes any more, or all have: as many as [`STREAMS`] at once.
    pub(crate) fn run(&mut self) -> Run {
        let mut run = Run::default();
        let mut waiting = STREAMS;
        while waiting > 0 && run.rounds < ROUNDS_MAX {
            let streams = self.start_streams(waiting);
            let statuses = streams.iter().map(|stream| stream.status);
            assert!(
                statuses.clone().all(|status| matches!(status, 200 | 429)),
                "{:?}",
                statuses.collect::<Vec<_>>()
            );
            let admitted: Vec<_> = streams.into_iter().filter(|it| it.status == 200).collect();
            if run.rounds == 0 {
                run.at_once = admitted.len();
            }
            if admitted.is_empty() {
                break;
            }
            waiting -= admitted.len();
            run.rounds += 1;
            self.end_streams(admitted);
        }
        run.costs = self.model.costs();
        run
    }

    /// Expects this many more requests of Envoy than the streams' own.
    pub(crate) fn expect(&mut self, more: u64) {
        self.due += more;
    }

    /// Waits for all requests of Envoy, and asserts that there are no more.
    pub(crate) fn wait_for_requests(&self) {
        let due = self.due;
        until("all requests are answered", || match self.answered() {
            answered if answered >= due => Ok(()),
            answered => Err(format!("{answered} of {due}")),
        });
        assert_eq!(self.answered(), due);
    }

    fn answered(&self) -> u64 {
        let texts = self.http.iter().map(|http_port| {
            let (_, text) = http(*http_port, "GET", "/metrics", "");
            series_value(&text, ANSWERED)
        });
        texts.sum()
    }

    /// Tokens that are left, by a look without an id.
    pub(crate) fn left(&mut self) -> u64 {
        self.due += 1;
        let (_, answer) = http(self.http[0], "POST", "/json", &self.budget.to_string());
        let answer: Value = serde_json::from_str(&answer).expect(&answer);
        answer["statuses"][0]["limitRemaining"]
            .as_u64()
            .unwrap_or_default()
    }
}

// === impl Run ===

impl Run {
    pub(crate) fn charged(&self) -> u64 {
        self.costs.iter().sum()
    }

    pub(crate) fn overshoot(&self) -> u64 {
        self.charged().saturating_sub(BUDGET)
    }

    /// The sum of what streams cost beyond a reservation of this amount.
    pub(crate) fn excess(&self, amount: u64) -> u64 {
        let excess = self.costs.iter().map(|cost| cost.saturating_sub(amount));
        excess.sum()
    }

    /// Its row of the page's table.
    pub(crate) fn row(&self, start: &str, bound: &str) -> String {
        let [at_once, charged, overshoot] =
            [self.at_once as u64, self.charged(), self.overshoot()].map(with_commas);
        format!("| {start} | {at_once} | {charged} | {overshoot} | {bound} |")
    }
}

// === impl Stream ===

impl Stream {
    async fn start(edge: SocketAddr, answer: Answer) -> Self {
        let mut stream = TcpStream::connect(edge).await.expect("a connection");
        // Both ids are the client's attempt to choose one.
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: models\r\nconnection: close\r\n\
             x-user: alice\r\nx-stream-id: mine\r\nx-request-id: mine\r\n\r\n",
            answer.path()
        );
        let sent = stream.write_all(request.as_bytes()).await;
        sent.expect("the request is sent");
        let mut connection = BufReader::new(stream);
        let mut status = None;
        loop {
            let mut line = String::new();
            let read = connection.read_line(&mut line).await.expect("a head");
            assert!(read > 0, "the connection ended in the head");
            let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
            status = status.or(code);
            if line == "\r\n" {
                let status = status.expect("a status");
                return Self { status, connection };
            }
        }
    }

    /// The rest of the response.
    pub(crate) async fn end(mut self) -> String {
        let mut body = String::new();
        let read = self.connection.read_to_string(&mut body).await;
        read.expect("a whole body");
        body
    }
}

/// The page's first block of YAML under a heading.
pub(crate) fn block(heading: &str) -> String {
    let (_, section) = PAGE
        .split_once(&format!("## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let (_, block) = section.split_once("```yaml\n").expect("YAML");
    let (block, _) = block.split_once("```").expect("its end");
    block.to_owned()
}

/// The page's rules, with this in place of the reserved amount.
pub(crate) fn rules(amount: u64) -> String {
    let rules = block("Rules");
    let changed = rules.replace("amount: 2000", &format!("amount: {amount}"));
    assert!(amount == 2_000 || changed != rules);
    changed
}

/// The page's bootstrap with these addresses, and a timeout for a busy test machine.
fn bootstrap(model: SocketAddr, replicas: &[SocketAddr]) -> Value {
    let mut bootstrap = yaml(&block("Envoy")).remove(0);
    let port = |port: u16| json!({ "address": "127.0.0.1", "port_value": port });
    bootstrap["admin"]["address"]["socket_address"] = port(0);
    let resources = &mut bootstrap["static_resources"];
    resources["listeners"][0]["address"]["socket_address"] = port(0);
    for (cluster, addresses) in [(0, &[model][..]), (1, replicas)] {
        let endpoints = addresses.iter().map(|address| {
            json!({ "endpoint": { "address": { "socket_address": port(address.port()) } } })
        });
        let cluster = &mut resources["clusters"][cluster];
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints.collect();
    }
    let limit = filter(&mut bootstrap, "ratelimit");
    assert!(limit["timeout"].is_string(), "{limit}");
    limit["timeout"] = json!("30s");
    bootstrap
}

fn manager(bootstrap: &mut Value) -> &mut Value {
    let listener = &mut bootstrap["static_resources"]["listeners"][0];
    &mut listener["filter_chains"][0]["filters"][0]["typed_config"]
}

/// All HTTP filters.
pub(crate) fn filters(bootstrap: &mut Value) -> &mut Vec<Value> {
    let filters = &mut manager(bootstrap)["http_filters"];
    filters.as_array_mut().expect("filters")
}

/// The configuration of an HTTP filter.
fn filter<'b>(bootstrap: &'b mut Value, name: &str) -> &'b mut Value {
    let name = format!("envoy.filters.http.{name}");
    let mut filters = filters(bootstrap).iter_mut();
    let found = filters.find(|filter| filter["name"] == *name);
    &mut found.expect("the filter")["typed_config"]
}

/// A request that takes nothing.
fn look(domain: &str, entries: &[(&str, &str)]) -> Value {
    let entries = entries
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": value }));
    let entries: Vec<_> = entries.collect();
    json!({ "domain": domain, "descriptors": [{ "entries": entries, "hitsAddend": "0" }] })
}

/// The actions and the metadata of docs/guides/model-gateway.md, which Envoy AI Gateway
/// generates, in place of those of the page.
pub(crate) fn as_model_gateway(bootstrap: &mut Value) {
    for limit in limits(bootstrap) {
        limit["actions"] = json!([
            { "generic_key": { "descriptor_key": GATEWAY_ROUTE, "descriptor_value": GATEWAY_ROUTE } },
            { "request_headers": { "header_name": "x-user", "descriptor_key": GATEWAY_USER } },
            { "request_headers": { "header_name": "x-request-id", "descriptor_key": "rule-0-match-1" } },
        ]);
        if limit["apply_on_stream_done"] == true {
            let tokens = "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%";
            limit["hits_addend"] = json!({ "format": tokens });
        }
    }
    filter(bootstrap, "ratelimit")["domain"] = json!(GATEWAY_DOMAIN);
    let usage = filter(bootstrap, "sse_to_metadata");
    let parser = &mut usage["response_rules"]["content_parser"]["typed_config"];
    let present = &mut parser["rules"][0]["rule"]["on_present"];
    present["metadata_namespace"] = json!("io.envoy.ai_gateway");
    present["key"] = json!("llm_total_token");
}

/// The start and the end of the page's route.
fn limits(bootstrap: &mut Value) -> &mut Vec<Value> {
    let route = &mut manager(bootstrap)["route_config"]["virtual_hosts"][0]["routes"][0];
    let limits = &mut route["typed_per_filter_config"]["envoy.filters.http.ratelimit"];
    let limits = limits["rate_limits"].as_array_mut();
    limits.expect("a start and an end")
}

/// Drops the ids, as in gateways that only check with 0 hits.
pub(crate) fn without_ids(bootstrap: &mut Value) {
    for limit in limits(bootstrap) {
        let actions = limit["actions"].as_array_mut().expect("actions");
        actions.pop().expect("the id");
    }
}

/// Gives the true cost a default of this many tokens, so that every stream has an end.
pub(crate) fn with_default_cost(bootstrap: &mut Value, tokens: u64) {
    let default = json!({
        "name": "envoy.filters.http.set_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
            "metadata": [
                { "metadata_namespace": "model", "value": { "total_tokens": tokens }, "allow_overwrite": true }
            ],
        },
    });
    filters(bootstrap).insert(0, default);
}

/// A number as pages write it.
pub(crate) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}
