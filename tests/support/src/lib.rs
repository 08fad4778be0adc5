//! Helpers that several test binaries and benchmarks of tollgate share.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `background_clients` | clients that call Envoy while a test changes something |
//! | `banned_phrases` | phrases that no text for a reader may contain |
//! | `certificates` | authorities, the certificates that they sign, mounted secrets |
//! | `child_process` | child processes that are killed when dropped |
//! | `components` | the repository's folder, and the programs that `make deps` installs |
//! | `corpus` | the corpora of the fuzz targets |
//! | `envoy_process` | an Envoy process |
//! | `gateway_environment` | the variables that Envoy Gateway sets for its rate limit service |
//! | `grpc_client` | requests to the rate limit service and their client |
//! | `http_client` | one HTTP/1.1 request |
//! | `http_connection` | an HTTP/1.1 connection that stays open |
//! | `import_graph` | which file of a crate imports which, and cycles |
//! | `in_process` | a tollgate in the test's own process, with a clock that the test sets |
//! | `ingress_proxy` | a real proxy in front of a service |
//! | `instruction_checks` | the number of checks in a scenario of `benches/instructions` |
//! | `markdown` | the blocks and tables of a documentation page |
//! | `metrics_text` | values in the text of `/metrics` |
//! | `namespaces` | a test that runs again in namespaces of its own |
//! | `performance_chart` | the chart in docs/performance.md |
//! | `polling` | waiting for a condition |
//! | `ports` | free ports |
//! | `process_usage` | the memory and CPU time of a process |
//! | `quota_client` | a stream of the rate limit quota service |
//! | `rate_lease_table` | leases of rates, as every store keeps them |
//! | `ratelimit_process` | a tollgate that is started as Envoy's reference service is |
//! | `relay` | a TCP relay that holds bytes back or delays them |
//! | `redis_server` | a Redis server or cluster for one test |
//! | `seeded_rng` | random choices that depend on a seed alone |
//! | `terminal_picture` | a picture of a terminal, and its lines |
//! | `tls_client` | a TLS client |
//! | `tollgate_process` | a `tollgate serve` process |
//! | `wire_bench_options` | the command line options of `benches/wire` |
//! | `xml` | XML, parsed by Python |
//! | `yaml` | YAML, parsed by PyYAML |

pub mod asking_store;
pub mod background_clients;
pub mod banned_phrases;
pub mod certificates;
pub mod child_process;
pub mod components;
pub mod corpus;
pub mod envoy_process;
pub mod gateway_environment;
pub mod grpc_client;
pub mod http_client;
pub mod http_connection;
pub mod import_graph;
pub mod in_process;
pub mod ingress_proxy;
pub mod instruction_checks;
pub mod markdown;
pub mod metrics_text;
pub mod namespaces;
pub mod performance_chart;
pub mod polling;
pub mod ports;
pub mod process_usage;
pub mod quota_client;
pub mod rate_lease_table;
pub mod ratelimit_process;
pub mod redis_server;
pub mod relay;
pub mod seeded_rng;
pub mod terminal_picture;
pub mod tls_client;
pub mod tollgate_process;
pub mod wire_bench_options;
pub mod xml;
pub mod yaml;
