//! An xDS server for tests: ADS, state of the world, plaintext or mTLS.
//!
//! A test sets the resources that it sends and reads the requests that it received. Its streams can
//! be cut, and it can reject connections. As go-control-plane does, it sends a rejected version
//! again at once.
//!
//! What it deliberately does not do: validate what it sends.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use prost::Message as _;
use prost_types::Any;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::xds::proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use tollgate::xds::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tollgate::xds::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
use tollgate_test_support::certificates::Leaf;
use tollgate_test_support::polling::until;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

pub(crate) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A running server.
pub(crate) struct Ads {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    /// True rejects new streams and ends open ones.
    closed: watch::Sender<bool>,
    /// Each change ends all open streams.
    cuts: watch::Sender<u32>,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// Number of the stream, counted from 1.
    pub(crate) stream: u32,
    pub(crate) request: DiscoveryRequest,
}

struct Shared {
    heard: Mutex<Vec<Heard>>,
    headers: Mutex<Vec<tonic::metadata::MetadataMap>>,
    sends: watch::Sender<Option<DiscoveryResponse>>,
}

#[derive(Clone)]
struct Service(Arc<Shared>);

// === impl Ads ===

impl Ads {
    /// Starts a server: plaintext, or mTLS with this certificate and client authority.
    pub(crate) async fn start(tls: Option<(&Leaf, &str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            heard: Mutex::default(),
            headers: Mutex::default(),
            sends: watch::Sender::new(None),
        });
        let (closed, cuts) = (watch::Sender::new(false), watch::Sender::new(0));
        let acceptor = tls.map(|(signed, authority)| acceptor(signed, authority));
        let routes = Routes::new(AggregatedDiscoveryServiceServer::new(Service(Arc::clone(
            &shared,
        ))));
        let (is_closed, cut) = (closed.subscribe(), cuts.subscribe());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if *is_closed.borrow() {
                    continue;
                }
                let (acceptor, routes, cut) = (acceptor.clone(), routes.clone(), cut.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, routes, cut).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, routes, cut).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            shared,
            closed,
            cuts,
        }
    }

    /// Sends these rules to every present and later stream.
    pub(crate) fn send(&self, version: &str, configs: &[RateLimitConfig]) {
        let resources = configs.iter().map(|config| Any {
            type_url: TYPE_URL.to_owned(),
            value: config.encode_to_vec(),
        });
        self.send_any(version, TYPE_URL, resources.collect());
    }

    /// Sends these resources as they are.
    pub(crate) fn send_any(&self, version: &str, type_url: &str, resources: Vec<Any>) {
        self.shared.sends.send_replace(Some(DiscoveryResponse {
            version_info: version.to_owned(),
            resources,
            type_url: type_url.to_owned(),
            nonce: format!("nonce of {version}"),
        }));
    }

    /// Ends every open stream.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// With `true`, ends every open stream and rejects new ones until called with `false`.
    pub(crate) fn close(&self, closed: bool) {
        self.closed.send_replace(closed);
        self.cut();
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.shared.heard.lock().unwrap().clone()
    }

    /// The value of a header of the newest stream.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let headers = self.shared.headers.lock().unwrap();
        let value = headers.last()?.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }

    /// Waits for the client's ACK or NACK of a version; returns the version in use afterwards and
    /// the error, if any.
    pub(crate) fn answer_to(&self, version: &str) -> (String, Option<String>) {
        let nonce = format!("nonce of {version}");
        let request = until(&nonce, || {
            let heard = self.heard();
            let mut requests = heard.iter().map(|heard| &heard.request);
            let found = requests.find(|request| request.response_nonce == nonce);
            found.cloned().ok_or(heard)
        });
        let why = request.error_detail.map(|error| error.message);
        (request.version_info, why)
    }

    /// Waits until a version was rejected as often as this.
    pub(crate) fn wait_for_nacks(&self, version: &str, count: usize) {
        let nonce = format!("nonce of {version}");
        until("there are enough rejections", || {
            let heard = self.heard();
            let nacks = heard
                .iter()
                .filter(|heard| heard.request.response_nonce == nonce);
            if nacks.count() >= count {
                Ok(())
            } else {
                Err(heard)
            }
        });
    }

    /// Waits for `count` streams.
    pub(crate) fn wait_for_streams(&self, count: u32) {
        until("there are enough streams", || {
            let heard = self.heard();
            if heard.iter().any(|heard| heard.stream >= count) {
                Ok(())
            } else {
                Err(heard)
            }
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    routes: Routes,
    mut cut: watch::Receiver<u32>,
) {
    cut.mark_unchanged();
    let serving = http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::select! {
        _ = serving => {}
        _ = cut.changed() => {}
    }
}

fn acceptor(signed: &Leaf, authority: &str) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = CertificateDer::pem_slice_iter(signed.certificate.as_bytes());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            chain.collect::<Result<_, _>>().unwrap(),
            PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

// === impl Service ===

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream =
        Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let shared = Arc::clone(&self.0);
        let stream = {
            let mut headers = shared.headers.lock().unwrap();
            headers.push(request.metadata().clone());
            u32::try_from(headers.len()).unwrap()
        };
        let mut requests = request.into_inner();
        let (responses, outgoing) = mpsc::channel(1);
        let mut sends = shared.sends.subscribe();
        sends.mark_changed();
        tokio::spawn(async move {
            // Nothing is sent before the first request, which has the node ID.
            let mut asked = false;
            loop {
                tokio::select! {
                    request = requests.message() => match request {
                        Ok(Some(request)) => {
                            asked = true;
                            let current = sends.borrow().as_ref().map(|sent| sent.nonce.clone());
                            let is_current = current.is_some_and(|it| it == request.response_nonce);
                            if request.error_detail.is_some() && is_current {
                                sends.mark_changed();
                            }
                            shared.heard.lock().unwrap().push(Heard { stream, request });
                        }
                        _ => return,
                    },
                    changed = sends.changed(), if asked => {
                        changed.unwrap();
                        let send = sends.borrow_and_update().clone();
                        if let Some(send) = send
                            && responses.send(Ok(send)).await.is_err()
                        {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}
