//! A client on one connection that stays open: HTTP/1.1, and header values of any bytes.
//!
//! Why our own: an HTTP library would not send a header that is not text, and those are how a limit is got around.
//!
//! What it deliberately does not do: read a body without a content-length. Envoy gives one for everything sent here.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use tollgate_test_support::polling::PATIENCE;

/// A connection to Envoy.
pub(crate) struct Caller(BufReader<TcpStream>);

/// What Envoy answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

// === impl Caller ===

impl Caller {
    pub(crate) fn of(edge: SocketAddr) -> Self {
        let stream = TcpStream::connect(edge).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(BufReader::new(stream))
    }

    /// GET with the value of the limited descriptor in x-key.
    pub(crate) fn get(&mut self, path: &str, key: &[u8]) -> Answer {
        self.get_with(path, &[("x-key", key)])
    }

    /// GET with these headers.
    pub(crate) fn get_with(&mut self, path: &str, headers: &[(&str, &[u8])]) -> Answer {
        self.send(path, headers);
        self.answer().expect("an answer")
    }

    /// Only the sending half of [`Caller::get_with`].
    pub(crate) fn send(&mut self, path: &str, headers: &[(&str, &[u8])]) {
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

    /// The answer, unless the connection ends before all of it was heard.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        let length = answer.number("content-length").expect("a content-length");
        answer.body = vec![0; usize::try_from(length).expect("a length")];
        self.0.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    /// What comes before the body.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        let first = self.line()?;
        let status = first
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let mut answer = Answer {
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

    /// A handle by which another thread can end the connection.
    pub(crate) fn handle(&self) -> TcpStream {
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

// === impl Answer ===

impl Answer {
    /// A header's only value; its name in lower case, as Envoy writes it.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(found, _)| found == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "two of {name} in {self:?}");
        value
    }

    /// A header's value as a number; none when it is absent.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let value = self.header(name)?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
    }

    /// What x-ratelimit-remaining says.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.number("x-ratelimit-remaining")
    }
}
