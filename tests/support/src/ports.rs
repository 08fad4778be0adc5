//! Free ports.

use std::net::TcpListener;

/// A port that was free a moment ago, for processes that do not support port 0.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
