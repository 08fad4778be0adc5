//! An HTTP/1.1 client on one connection that stays open, with header values of any bytes.
//!
//! Why our own: HTTP libraries do not send a header that is not text, and such a header must not get a
//! request around a limit. A response must have a content-length, as all of Envoy's responses here do.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::polling::PATIENCE;

/// An open connection.
pub struct HttpConnection(BufReader<TcpStream>);

/// A response.
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

    /// Sends a GET with these headers, and reads nothing.
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

    /// Reads a response; an error if the connection ends before its end.
    pub fn answer(&mut self) -> io::Result<HttpResponse> {
        let mut answer = self.head()?;
        let length = answer.number("content-length").expect("a content-length");
        answer.body = vec![0; usize::try_from(length).expect("a length")];
        self.0.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// Reads a response up to its body.
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
    /// A header's only value; its name in lower case, as Envoy writes it.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(found, _)| found == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "two of {name} in {self:?}");
        value
    }

    /// A header's value as a number; none when it is absent.
    pub fn number(&self, name: &str) -> Option<u64> {
        let value = self.header(name)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
    }

    /// The number in x-ratelimit-remaining.
    pub fn remaining(&self) -> Option<u64> {
        self.number("x-ratelimit-remaining")
    }
}
