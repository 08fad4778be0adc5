//! The webhook of limits: sends their events to a URL by POST, one after the other.
//!
//! How: decisions put events into a bounded queue and never wait. One task sends them in order. It
//! tries an event again, with a backoff, after a connection error, a timeout, 408, 429 or 5xx. A
//! signature over the time and the body proves the sender, and that the event is not an old one.
//!
//! What it deliberately does not do: make events (`decisions`), follow redirects, keep events over
//! a restart. The URL may hold a secret, so no message has more of it than the host.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use ring::hmac;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::metrics::NotifyMetrics;
use crate::regular_file;
use crate::settings::NotifySettings;
use crate::tls::ClientFiles;
use crate::xds::backoff::Backoff;

/// How many events wait to be sent.
pub(crate) const QUEUE_MAX: usize = 1_024;

/// How often an event is sent at most: over about a minute.
const ATTEMPTS_MAX: u32 = 8;

/// How long one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The waits between attempts.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const JITTER: f64 = 0.5;

/// How much of the file of the secret is read.
const SECRET_BYTES_MAX: u64 = 1 << 20;

/// The header with the signature.
const SIGNATURE: &str = "tollgate-signature";

/// Sends events to a URL.
pub(crate) struct Webhook {
    uri: Uri,
    host: String,
    key: Option<hmac::Key>,
    client: HttpClient,
    events: mpsc::Receiver<String>,
    clock: Arc<dyn Clock>,
    metrics: NotifyMetrics,
}

enum HttpClient {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// Why an event was not accepted.
struct Rejection {
    why: String,
    may_pass_later: bool,
}

// === impl Webhook ===

impl Webhook {
    /// The webhook of the settings and its queue; none without a URL.
    ///
    /// # Errors
    ///
    /// When a setting or a file cannot be used.
    pub(crate) fn new(
        settings: &NotifySettings,
        clock: &Arc<dyn Clock>,
        metrics: &NotifyMetrics,
    ) -> Result<Option<(mpsc::Sender<String>, Self)>, String> {
        let Some(url) = &settings.notify_url else {
            return Ok(None);
        };
        let uri = url.0.parse::<Uri>();
        let uri = uri.map_err(|error| format!("--notify-url: {error}"))?;
        let (Some(host), Some(scheme @ ("http" | "https"))) = (uri.host(), uri.scheme_str()) else {
            return Err("--notify-url: write http://HOST/PATH or https://HOST/PATH".to_owned());
        };
        if uri
            .authority()
            .is_some_and(|place| place.as_str().contains('@'))
        {
            return Err(
                "--notify-url: a login is not supported; use --notify-secret-file".to_owned(),
            );
        }
        let key = settings.notify_secret_file.as_deref().map(read_key);
        let key = key.transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let client = Client::builder(TokioExecutor::new());
        let client = if scheme == "http" {
            HttpClient::Plain(client.build(tcp))
        } else {
            let files = ClientFiles {
                ca_bundle: settings.notify_cacert.clone(),
                identity: None,
                ca_setting: "--notify-cacert",
            };
            let tls = files
                .read(&[])
                .map_err(|error| format!("--notify-cacert: {error}"))?;
            let https = HttpsConnectorBuilder::new().with_tls_config((*tls).clone());
            HttpClient::Tls(client.build(https.https_only().enable_http1().wrap_connector(tcp)))
        };
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let webhook = Self {
            host: host.to_owned(),
            uri,
            key,
            client,
            events,
            clock: Arc::clone(clock),
            metrics: metrics.clone(),
        };
        Ok(Some((queue, webhook)))
    }

    /// Sends events for ever, if there is one.
    pub(crate) async fn run(webhook: Option<Self>) {
        if let Some(webhook) = webhook {
            webhook.send_all().await;
        }
    }

    async fn send_all(mut self) {
        // The first failure of a row is logged.
        let mut is_failing = false;
        while let Some(event) = self.events.recv().await {
            let host = &*self.host;
            match self.deliver(&event).await {
                Ok(()) => {
                    self.metrics.sent.inc();
                    if std::mem::take(&mut is_failing) {
                        tracing::warn!(host, "the webhook of limits accepts events again");
                    }
                }
                Err(error) => {
                    self.metrics.failed.inc();
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::error!(host, %error, "the webhook of limits did not accept an event; it is dropped");
                    }
                }
            }
        }
    }

    /// Sends one event until it is accepted, or there is no hope.
    async fn deliver(&self, event: &str) -> Result<(), String> {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, JITTER);
        let mut attempt = 1_u32;
        loop {
            let sent = timeout(ATTEMPT_TIMEOUT, self.send(event)).await;
            let rejection = match sent {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(rejection)) => rejection,
                Err(_) => Rejection {
                    why: format!("no answer within {ATTEMPT_TIMEOUT:?}"),
                    may_pass_later: true,
                },
            };
            if !rejection.may_pass_later || attempt >= ATTEMPTS_MAX {
                return Err(rejection.why);
            }
            attempt = attempt.saturating_add(1);
            self.metrics.retries.inc();
            let chance = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
            sleep(backoff.wait(chance)).await;
        }
    }

    async fn send(&self, event: &str) -> Result<(), Rejection> {
        let failed = |why: String| Rejection {
            why,
            may_pass_later: true,
        };
        let mut request = Request::post(self.uri.clone());
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            let now = self.clock.now().as_us() / 1_000_000;
            request = request.header(SIGNATURE, signature(key, now, event));
        }
        let request = request.body(Full::new(Bytes::from(event.to_owned())));
        let request = request.map_err(|error| failed(error.to_string()))?;
        // Such an error names no URL.
        let response = self.client.request(request).await;
        let status = response
            .map_err(|error| failed(error.to_string()))?
            .status();
        if status.is_success() {
            return Ok(());
        }
        let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        Err(Rejection {
            why: format!("it answered {status}"),
            may_pass_later: status.is_server_error() || later.contains(&status),
        })
    }
}

// === impl HttpClient ===

impl HttpClient {
    fn request(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

/// Reads the secret: a line.
fn read_key(path: &Path) -> Result<hmac::Key, String> {
    let invalid = |why: &str| format!("--notify-secret-file: {}: {why}", path.display());
    let secret = regular_file::read(path, SECRET_BYTES_MAX);
    let secret = secret.map_err(|error| invalid(&error.to_string()))?;
    match secret.trim_ascii() {
        b"" => Err(invalid("the file is empty; write a secret to it")),
        secret => Ok(hmac::Key::new(hmac::HMAC_SHA256, secret)),
    }
}

/// The signature of a body at a time: `t=UNIX_SECONDS,v1=HEX` of the HMAC of `UNIX_SECONDS.BODY`.
fn signature(key: &hmac::Key, seconds: u64, body: &str) -> String {
    let tag = hmac::sign(key, format!("{seconds}.{body}").as_bytes());
    let mut text = format!("t={seconds},v1=");
    for byte in tag.as_ref() {
        // A string grows as needed.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
