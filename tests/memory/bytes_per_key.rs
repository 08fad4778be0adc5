//! Memory per key: resident memory of the process, divided by the number of keys.
//!
//! How: the test sends that many different keys over gRPC and reads `VmRSS`. For few keys only the
//! growth is counted: an unoptimised binary is larger than they are, and the kernel maps its pages
//! at its own pace.

use tollgate_test_support::polling::until;

use super::{Tollgate, ask_for_each};

/// Most bytes per key, everything included.
const BYTES_A_KEY_MAX: f64 = 64.0;

/// From this many keys on, all resident memory is counted.
const ALL_TOLD_FROM: u64 = 2_000_000;

const RULES: &str = "
domain: memory
descriptors:
  - key: fixed_window
    rate_limit: { unit: year, requests_per_unit: 10 }
  - key: token_bucket
    rate_limit: { unit: year, requests_per_unit: 10, algorithm: token_bucket }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_takes_no_more_than_64_bytes() {
    let counts = std::env::var("MEMORY_KEYS").unwrap_or_else(|_| "300000".to_owned());
    for count in counts.split(',').map(|count| count.parse::<u64>().unwrap()) {
        for algorithm in ["fixed_window", "token_bucket"] {
            let running = Tollgate::start(RULES, &["--memory-max", "8GiB"]);
            // The memory of a process that has answered one request is not counted.
            ask_for_each(&running, algorithm, 0..20_000).await;
            let (before, known) = (
                running.status_bytes("RssAnon"),
                running.metric_sum("tollgate_buckets{"),
            );
            ask_for_each(&running, algorithm, 20_000..count).await;
            let (all, after) = (
                running.status_bytes("VmRSS"),
                running.status_bytes("RssAnon"),
            );
            // A worker updates its gauges after the answers of a batch have left.
            let keys = || running.metric_sum("tollgate_buckets{");
            until("each key is known once", || match keys() {
                keys if keys == count => Ok(()),
                keys => Err(keys),
            });
            let keys = keys();
            let whole = all as f64 / keys as f64;
            let added = (after - before) as f64 / (keys - known) as f64;
            let counted = running.metric_sum("tollgate_memory_bytes{") as f64 / keys as f64;
            println!(
                "{keys} keys in {algorithm}: {all} bytes resident, {whole:.1} a key all told, {added:.1} for each added, {counted:.1} by its own count"
            );
            let weighs = if keys >= ALL_TOLD_FROM { whole } else { added };
            assert!(weighs <= BYTES_A_KEY_MAX, "{weighs:.1} bytes a key");
        }
    }
}
