//! HTTP/1.1 client on one persistent connection, with header values of any bytes.
//!
//! Why our own: an HTTP library does not send headers that are not text, and those could bypass a
//! limit.
//!
//! What it deliberately does not do: read bodies without a content-length. Envoy sends one for
//! every response here.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::polling::PATIENCE;

/// An open connection.
pub struct HttpConnection(BufReader<TcpStream>);

/// A response of Envoy.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

// === impl HttpConnection ===

impl HttpConnection {
    pub fn open(edge: SocketAddr) -> Self {
        let stream = TcpStream::connect(edge).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(BufReader::new(stream))
    }

    /// Sends a GET with the value of the limited descriptor in x-key.
    pub fn get(&mut self, path: &str, key: &[u8]) -> HttpResponse {
        self.get_with(path, &[("x-key", key)])
    }

    /// Sends a GET with these headers, and reads the response.
    pub fn get_with(&mut self, path: &str, headers: &[(&str, &[u8])]) -> HttpResponse {
        self.send(path, headers);
        self.answer().expect("an answer")
    }

    /// The sending half of [`Caller::get_with`].
    pub fn send(&mut self, path: &str, headers: &[(&str, &[u8])]) {
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n").into_bytes();
        for (name, value) in headers {
            request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend(b"\r\n");
        self.0
            .get_mut()
            .write_all(&request)
            .expect("the request is sent");
    }

    /// Reads a response; fails if the connection ends first.
    pub fn answer(&mut self) -> io::Result<HttpResponse> {
        let mut answer = self.head()?;
        let length = answer.number("content-length").expect("a content-length");
        answer.body = vec![0; usize::try_from(length).expect("a length")];
        self.0.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// Reads the head of a response.
    pub fn head(&mut self) -> io::Result<HttpResponse> {
        let first = self.line()?;
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let mut answer = HttpResponse {
            status: status.unwrap_or_else(|| panic!("no status in {first:?}")),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            answer.headers.push((name.to_owned(), value.to_owned()));
        }
        Ok(answer)
    }

    /// A handle with which another thread can close the connection.
    pub fn handle(&self) -> TcpStream {
        self.0.get_ref().try_clone().expect("a handle")
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.0.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

// === impl HttpResponse ===

impl HttpResponse {
    /// A header's only value, by any case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "two of {name} in {self:?}");
        value
    }

    /// The value of a header as a number; none when it is absent.
    pub fn number(&self, name: &str) -> Option<u64> {
        let value = self.header(name)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
    }

    /// The value of x-ratelimit-remaining.
    pub fn remaining(&self) -> Option<u64> {
        self.number("x-ratelimit-remaining")
    }
}
