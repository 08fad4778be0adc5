//! Size of the image, startup time, and idle memory.
//!
//! How: the figures are printed, and each size has a bound that also fits an unoptimised binary.
//! `docs/image.md` has the figures of the release binary.
//!
//! What it deliberately does not do: measure a pull, which depends on the network.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_test_support::child_process::{KillOnDrop, SpawnTied as _};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;

use crate::image::contents::Unpacked;
use crate::image::isolation::{IMAGE, Machine, alone};
use crate::image::pod::{Pod, Rendered};

/// Bounds of the unpacked image, with an optimised and an unoptimised binary.
const IMAGE_BYTES_MAX: u64 = 25_000_000;
const ROUGH_BYTES_MAX: u64 = 60_000_000;

/// Bound of resident memory, most of which is the binary's pages.
const RESIDENT_BYTES_MAX: u64 = 48 << 20;

/// Number of timed starts.
const STARTS: usize = 11;

#[test]
fn image_size_and_idle_memory_are_bounded() {
    alone(|machine: &Machine| {
        let size = |file: &str| machine.files.join(file).metadata().unwrap().len();
        let binary = size("usr/bin/tollgate");
        let all = binary + size("etc/ssl/certs/ca-certificates.crt");
        let compressed = Unpacked::new(IMAGE, "/run/image").compressed;
        println!("image: {all} bytes, {compressed} compressed; its binary: {binary} bytes");
        let rough = std::env::var_os("TOLLGATE_IMAGE").is_none();
        let most = if rough {
            ROUGH_BYTES_MAX
        } else {
            IMAGE_BYTES_MAX
        };
        assert!(all < most, "{all} bytes");

        let mut starts: Vec<_> = (0..STARTS).map(|_| start_to_ready(machine)).collect();
        starts.sort();
        let [least, median, most] = [0, STARTS / 2, STARTS - 1].map(|at| starts[at]);
        println!(
            "start to ready: {median:.1?} (median of {STARTS}, {least:.1?} to {most:.1?}), seen at intervals of a millisecond"
        );

        let pod = Rendered::new(&[]).start("idle").ready();
        let bytes = |pod: &Pod, field: &str| {
            let text = pod.status(field);
            let kibibytes = text.strip_suffix(" kB").expect("kibibytes");
            kibibytes.parse::<u64>().unwrap() * 1024
        };
        let [resident, own] = ["VmRSS", "RssAnon"].map(|field| bytes(&pod, field));
        println!("idle in a pod: {resident} bytes resident, of which {own} are not the binary's");
        assert!(resident < RESIDENT_BYTES_MAX);
    });
}

/// Starts the image's binary with the chart's example rules and waits until it is ready.
fn start_to_ready(machine: &Machine) -> Duration {
    let began = Instant::now();
    let child = Command::new(machine.files.join("usr/bin/tollgate"))
        .args(["serve", "helm/tollgate/files/example.yaml"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_clear()
        .stderr(Stdio::null())
        .spawn_tied()
        .unwrap();
    let child = KillOnDrop(child);
    // The network is the test's own, so no other process has this port.
    let address = ([127, 0, 0, 1], 8080).into();
    let listens = || std::net::TcpStream::connect(address).is_ok();
    let ready = || listens() && http(address, "GET", "/readyz", "").0 == 200;
    until("it is ready", || {
        (0..100).any(|_| {
            // sleep: the interval of the figure that is printed.
            std::thread::sleep(Duration::from_millis(1));
            ready()
        })
    });
    let took = began.elapsed();
    drop(child);
    until("its port is free for the next start", || !listens());
    took
}
