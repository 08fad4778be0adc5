//! DNS server with one name: the headless Service, with the addresses of the ready pods.
//!
//! What it deliberately does not do: IPv6, which has no records, or other names, which do not
//! exist.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::image::pod::Pod;

/// CoreDNS' TTL for Services.
const TTL_SECONDS: u32 = 5;

/// A server that runs until the process ends.
pub(crate) struct Names {
    pub(crate) address: SocketAddr,
    ready: Arc<Mutex<Vec<IpAddr>>>,
}

impl Names {
    /// Starts a server for this name, without ready pods.
    pub(crate) fn of(name: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("its address");
        let ready = Arc::new(Mutex::new(Vec::new()));
        let asked: Arc<Mutex<Vec<IpAddr>>> = Arc::clone(&ready);
        let labels: Vec<u8> = name
            .split('.')
            .flat_map(|label| {
                let length = u8::try_from(label.len()).expect("a short label");
                [&[length], label.as_bytes()].concat()
            })
            .chain([0])
            .collect();
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                let answer = answer(&query[..length], &labels, &asked.lock().expect("addresses"));
                // The client may be gone.
                let _ = socket.send_to(&answer, from);
            }
        });
        Self { address, ready }
    }

    /// Sets the ready pods.
    pub(crate) fn are(&self, pods: &[&Pod]) {
        *self.ready.lock().expect("addresses") = pods.iter().map(|pod| pod.address).collect();
    }
}

/// The answer to a query of one question (RFC 1035, 4.1).
fn answer(query: &[u8], name: &[u8], ready: &[IpAddr]) -> Vec<u8> {
    let question = &query[12..];
    let ends = question.iter().position(|&byte| byte == 0).expect("a name") + 1;
    let known = question[..ends].eq_ignore_ascii_case(name);
    let of_type = u16::from_be_bytes([question[ends], question[ends + 1]]);
    let addresses: Vec<_> = ready
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) if known && of_type == 1 => Some(address.octets()),
            _ => None,
        })
        .collect();
    let count = u16::try_from(addresses.len()).expect("few pods");
    let mut answer = query[..2].to_vec();
    // An authoritative answer; NXDOMAIN for other names.
    answer.extend([0x84, if known { 0 } else { 3 }, 0, 1]);
    answer.extend(count.to_be_bytes());
    answer.extend([0; 4]);
    answer.extend(&question[..ends + 4]);
    for octets in addresses {
        // Name of the question; type A; class IN; TTL; four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend(TTL_SECONDS.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(octets);
    }
    answer
}
