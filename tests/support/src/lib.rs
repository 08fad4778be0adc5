//! Helpers that several test binaries and benchmarks of tollgate share.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `components` | the repository's folder, and the programs that `make deps` installs |
//! | `grpc_client` | requests to the rate limit service and their client |
//! | `http_client` | one HTTP/1.1 request |
//! | `in_process` | a tollgate in the test's own process, with a clock that the test sets |
//! | `metrics_text` | values in the text of `/metrics` |
//! | `polling` | waiting for a condition |
//! | `ports` | free ports |
//! | `process_usage` | the memory and CPU time of a process |
//! | `redis_server` | a Redis server or cluster for one test |
//! | `tollgate_process` | a `tollgate serve` process |

pub mod components;
pub mod grpc_client;
pub mod http_client;
pub mod in_process;
pub mod metrics_text;
pub mod polling;
pub mod ports;
pub mod process_usage;
pub mod redis_server;
pub mod tollgate_process;
