//! One replica's admin listener: requests and responses as JSON, and its stream of events.

use std::fmt;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin_api::ApiError;
use crate::admin_client::AdminError;
use crate::admin_client::streams::{ByteStream, EventStream};
use crate::grpc_client::{
    ChannelError, ClientTls, ConnectionFailure, ErrorRecord, ServerEndpoint, error_chain,
};

/// Longest response, in bytes.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Longest error response, in bytes.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Longest token, in bytes; the service reads no more.
const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// What every request of a command shares.
#[derive(Clone, Debug)]
pub struct Access {
    /// The file with the bearer token.
    pub token_file: Option<PathBuf>,
    /// TLS of https URLs.
    pub tls: ClientTls,
    /// Deadline of a request, connection included; of a stream, until its headers.
    pub timeout: Duration,
}

/// The admin listener of one replica.
#[derive(Clone)]
pub struct Replica {
    /// The URL, with the address if the URL names several replicas.
    pub(crate) name: String,
    pub(crate) server: ServerEndpoint,
    /// The addresses that are tried in turn.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) authority: String,
    pub(crate) access: Access,
}

// === impl Access ===

impl Access {
    /// The value of the header `authorization`.
    fn authorization(&self) -> Result<Option<HeaderValue>, AdminError> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let invalid = |reason: String| {
            let path = path.display();
            AdminError(format!(
                "the token in {path}: {reason}; correct --admin-token-file"
            ))
        };
        let token = read_token(path).map_err(|error| invalid(error.to_string()))?;
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| invalid("it is not one line of ASCII".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Reads the token of a file, without white space around it.
fn read_token(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = crate::regular_file::open(path)?;
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

// === impl Replica ===

impl Replica {
    /// The response to a GET of a path with its query.
    pub(crate) async fn get<T: DeserializeOwned>(self, path: String) -> Result<T, AdminError> {
        let request = self.request(&Method::GET, &path, "application/json", Bytes::new())?;
        self.within(self.exchange(request)).await
    }

    /// The response to a POST of this value.
    pub(crate) async fn post<B: Serialize, T: DeserializeOwned>(
        self,
        path: &'static str,
        body: B,
    ) -> Result<T, AdminError> {
        self.change(Method::POST, path, body).await
    }

    /// The response to a change with this value.
    pub(crate) async fn change<B: Serialize, T: DeserializeOwned>(
        self,
        method: Method,
        path: &'static str,
        body: B,
    ) -> Result<T, AdminError> {
        let body = serde_json::to_vec(&body).map_err(AdminError::response)?;
        let request = self.request(&method, path, "application/json", body.into())?;
        self.within(self.exchange(request)).await
    }

    /// The stream of server-sent events at a path with its query.
    pub(crate) async fn events(&self, path: &str) -> Result<EventStream, AdminError> {
        let request = self.request(&Method::GET, path, "text/event-stream", Bytes::new())?;
        let response = self.within(self.send(request)).await?;
        Ok(EventStream::new(response.into_body()))
    }

    /// The stream of bytes that answers a POST without content.
    pub(crate) async fn post_for_stream(&self, path: &str) -> Result<ByteStream, AdminError> {
        let accept = "application/octet-stream";
        let request = self.request(&Method::POST, path, accept, Bytes::new())?;
        let response = self.within(self.send(request)).await?;
        Ok(ByteStream(response.into_body()))
    }

    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<T, AdminError> {
        let timeout = self.access.timeout;
        let answer = tokio::time::timeout(timeout, answer).await;
        answer.unwrap_or_else(|_| Err(AdminError::deadline("answer", timeout)))
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        accept: &'static str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, AdminError> {
        let mut builder = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, accept)
            .header(header::CONNECTION, "close");
        if *method != Method::GET {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(value) = self.access.authorization()? {
            builder = builder.header(header::AUTHORIZATION, value);
        }
        let request = builder.body(Full::new(body));
        request.map_err(AdminError::response)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<T, AdminError> {
        let body = self.send(request).await?.into_body();
        let body = read_body(body, RESPONSE_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(AdminError::response)
    }

    /// Sends a request on a connection of its own, and returns a successful response.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, AdminError> {
        let errors = ErrorRecord::default();
        let addresses = self.addresses.as_slice();
        let opened = self.server.open_at(addresses, b"http/1.1", &errors).await;
        let stream = opened.map_err(|error| self.connect_error(error))?;
        let failed = |error: hyper::Error| self.http_error(&error, &errors);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(failed)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to an admin listener ended with an error");
            }
        });
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let body = read_body(response.into_body(), ERROR_BYTES_MAX).await;
        let words = body.ok().and_then(|body| error_message(&body));
        let has_token = self.access.token_file.is_some();
        Err(AdminError::status(
            status.as_u16(),
            words.as_deref(),
            has_token,
        ))
    }

    fn connect_error(&self, error: ChannelError) -> AdminError {
        match (error.failure(), error) {
            (Some(failure), _) => self.handshake_error(failure),
            (_, ChannelError::Files(error)) => AdminError(error.to_string()),
            (_, ChannelError::Name(name)) => AdminError(format!(
                "{name:?} cannot be the name of a certificate; set --server-name to a DNS name or an IP address"
            )),
            (_, ChannelError::Connect(error)) => {
                let is_loopback = self.addresses.iter().all(|it| it.ip().is_loopback());
                AdminError::connect(&error, is_loopback)
            }
            (_, error) => AdminError::ended(error),
        }
    }

    fn http_error(&self, error: &hyper::Error, errors: &ErrorRecord) -> AdminError {
        match errors.failure() {
            Some(ConnectionFailure::Other { .. }) | None => {
                AdminError::response(error_chain(error))
            }
            Some(failure) => self.handshake_error(failure),
        }
    }

    fn handshake_error(&self, failure: ConnectionFailure) -> AdminError {
        let is_https = self.name.starts_with("https");
        let files = is_https.then_some(&self.access.tls.files);
        let (what, advice) = match failure {
            ConnectionFailure::PeerSpeaksTls => (
                "the port answers with TLS".to_owned(),
                "write https:// in --admin, and set --cacert to the CA bundle of its certificate",
            ),
            ConnectionFailure::PeerSpeaksPlaintext => (
                "the port does not answer with TLS".to_owned(),
                "write http:// in --admin",
            ),
            failure => failure.describe(&self.authority, files),
        };
        AdminError(format!("{what}; {advice}"))
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replica").field(&self.name).finish()
    }
}

/// Reads a body of at most `max_bytes`.
async fn read_body(body: Incoming, max_bytes: usize) -> Result<Bytes, AdminError> {
    let is_too_long = |bytes: u64| usize::try_from(bytes).is_ok_and(|it| it > max_bytes);
    if is_too_long(body.size_hint().lower()) {
        return Err(AdminError::too_long(max_bytes));
    }
    match Limited::new(body, max_bytes).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(AdminError::too_long(max_bytes)),
        Err(error) => Err(AdminError::ended(error_chain(error.as_ref()))),
    }
}

/// The message of an error response; none if it is empty.
fn error_message(body: &[u8]) -> Option<String> {
    if let Ok(ApiError { error }) = serde_json::from_slice(body) {
        return Some(error);
    }
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default().trim();
    let is_text = !line.is_empty() && !line.starts_with('<') && !line.contains(char::is_control);
    is_text.then(|| line.to_owned())
}
