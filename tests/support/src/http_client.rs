//! One HTTP/1.1 request on a connection of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::polling::PATIENCE;

/// Sends one HTTP/1.1 request and returns the response's status and body.
pub fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    http_with(address, method, path, "", body)
}

/// The same with more headers, each a line that ends with `\r\n`.
pub fn http_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("the request is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the answer is text");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    (status.expect("a status"), body.expect("a body"))
}
