//! Converts header lists of `tollgate_http2` to types of the `http` crate and back.
//!
//! What it deliberately does not do: convert bodies (`slow_path`).

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use tollgate_http2::{HeaderList, RequestHead};

/// The head as a request. None if a part of it is invalid.
///
/// An invalid authority is left out, since no method depends on it. gRPC's C core sends one for a
/// target with several addresses: `127.0.0.1:1,127.0.0.1:2`.
pub(crate) fn request(head: &RequestHead) -> Option<Request<()>> {
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    *request.method_mut() = Method::from_bytes(head.method()).ok()?;
    let mut uri = http::uri::Parts::default();
    if let Some(authority) = head.authority() {
        uri.authority = Authority::try_from(authority).ok();
    }
    if request.method() != Method::CONNECT {
        let scheme = head.scheme().map(Scheme::try_from).transpose().ok()?;
        uri.path_and_query = Some(PathAndQuery::try_from(head.path()?).ok()?);
        uri.scheme = scheme.filter(|_| uri.authority.is_some());
    }
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.headers_mut() = header_map(head.headers())?;
    Some(request)
}

/// The list as a map. None if it has too many headers or an invalid one.
pub(crate) fn header_map(list: &HeaderList) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in list.iter() {
        let name = HeaderName::from_lowercase(name).ok()?;
        let value = HeaderValue::from_bytes(value).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

/// The name and the value of each header.
pub(crate) fn fields(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}
