//! Ports for programs that do not support port 0, and ports on which nobody listens.
//!
//! A port that was merely free a moment ago may be taken before it is bound. So these come from
//! below the range that the kernel gives to port 0 and to outgoing connections, and each is
//! reserved by the name of an abstract socket. The kernel frees the name when the process ends.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;

/// Above the ports of well-known services.
const FIRST: u16 = 20_000;

/// The names that this process holds.
static HELD: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// The first port that the kernel gives away.
fn end() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = range.expect("the kernel's range of ports");
    let first = range.split_whitespace().next();
    first
        .and_then(|first| first.parse().ok())
        .expect("the first port of the kernel's range")
}

/// Whether a port is one of those that tests reserve, and not one that the kernel chose.
pub fn is_reserved(port: u16) -> bool {
    (FIRST..end()).contains(&port)
}

/// A port of 127.0.0.1 that no other test gets while this process runs, and that is not bound.
pub fn reserved_port() -> u16 {
    let end = end();
    assert!(
        end > FIRST + 1_000,
        "the kernel gives away ports from {end}"
    );
    let count = u32::from(end - FIRST);
    // Processes that start one after the other begin at different places.
    let begin = std::process::id().wrapping_mul(31);
    for step in 0..count {
        let port = FIRST + u16::try_from(begin.wrapping_add(step) % count).expect("below the end");
        let name = SocketAddr::from_abstract_name(format!("tollgate-test-port-{port}"));
        let Ok(held) = UnixDatagram::bind_addr(&name.expect("a short name")) else {
            continue;
        };
        // Something that is no test of ours may listen here.
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            HELD.lock().expect("no holder panicked").push(held);
            return port;
        }
    }
    panic!("no port below {end} is left");
}
