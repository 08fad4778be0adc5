//! Entries of descriptors, filled from a request.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;

use super::path_template::PathTemplate;
use super::remote_address::{AddressBlock, remote_address};

/// A function that finds the address of the connection of a request.
pub(crate) type PeerAddress = Arc<dyn Fn(&Parts) -> Option<SocketAddr> + Send + Sync>;
type ValueFunction = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// One entry of a descriptor: a key, and where its value comes from.
///
/// Without a value and without a [default](RequestEntry::or), the descriptor is left out.
#[derive(Clone)]
pub struct RequestEntry {
    key: String,
    source: ValueSource,
    default: Option<String>,
}

#[derive(Clone)]
enum ValueSource {
    Value(String),
    Header(String),
    Method,
    Path,
    PathTemplates(Vec<PathTemplate>),
    RemoteAddress,
    Function(ValueFunction),
}

impl fmt::Debug for RequestEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestEntry")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl RequestEntry {
    fn new(key: impl Into<String>, source: ValueSource) -> Self {
        Self {
            key: key.into(),
            source,
            default: None,
        }
    }

    /// A fixed value.
    pub fn value(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(key, ValueSource::Value(value.into()))
    }

    /// The values of a header, joined by `,`. Missing if empty. Case of the name is ignored.
    pub fn header(key: impl Into<String>, name: impl Into<String>) -> Self {
        Self::new(key, ValueSource::Header(name.into()))
    }

    /// The HTTP method. In gRPC `POST`.
    pub fn method(key: impl Into<String>) -> Self {
        Self::new(key, ValueSource::Method)
    }

    /// The path without the query, as sent. In gRPC `/package.Service/Method`.
    pub fn path(key: impl Into<String>) -> Self {
        Self::new(key, ValueSource::Path)
    }

    /// The first of these templates that matches the path.
    ///
    /// `{name}` matches one segment that is not empty. `{name...}` at the end matches the rest,
    /// which may be empty. A path is not decoded.
    pub fn path_templates<T: Into<String>>(
        key: impl Into<String>,
        templates: impl IntoIterator<Item = T>,
    ) -> Self {
        let templates = templates.into_iter().map(PathTemplate::new).collect();
        Self::new(key, ValueSource::PathTemplates(templates))
    }

    /// The address of the client, behind trusted proxies. It needs
    /// [`peer_address`](super::RateLimitBuilder::peer_address).
    pub fn remote_address(key: impl Into<String>) -> Self {
        Self::new(key, ValueSource::RemoteAddress)
    }

    /// The text of a function, or nothing.
    pub fn function(
        key: impl Into<String>,
        function: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::new(key, ValueSource::Function(Arc::new(function)))
    }

    /// Sets the value that is used where the source has none.
    #[must_use]
    pub fn or(mut self, default: impl Into<String>) -> Self {
        self.default = Some(default.into());
        self
    }

    pub(crate) fn needs_peer(&self) -> bool {
        matches!(self.source, ValueSource::RemoteAddress)
    }

    /// Name of the header, if it is none that HTTP allows.
    pub(crate) fn invalid_header(&self) -> Option<&str> {
        match &self.source {
            ValueSource::Header(name) if name.parse::<HeaderName>().is_err() => Some(name),
            _ => None,
        }
    }

    /// The key and the value of this request. `None` if the value is missing.
    pub(crate) fn of(
        &self,
        request: &Parts,
        peer: Option<SocketAddr>,
        trusted: &[AddressBlock],
    ) -> Option<(String, String)> {
        let value = match &self.source {
            ValueSource::Value(value) => Some(value.clone()),
            ValueSource::Header(name) => header(request, name),
            ValueSource::Method => Some(request.method.to_string()),
            ValueSource::Path => Some(request.uri.path().to_owned()),
            ValueSource::PathTemplates(templates) => templates
                .iter()
                .find(|template| template.matches(request.uri.path()))
                .map(|template| template.text().to_owned()),
            ValueSource::RemoteAddress => {
                peer.map(|peer| remote_address(peer, &request.headers, trusted).to_string())
            }
            ValueSource::Function(function) => function(request),
        };
        let value = value.or_else(|| self.default.clone())?;
        Some((self.key.clone(), value))
    }
}

fn header(request: &Parts, name: &str) -> Option<String> {
    let values = request.headers.get_all(name).iter();
    let texts: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    Some(texts.join(",")).filter(|value| !value.is_empty())
}
