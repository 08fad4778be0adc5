//! Requests to Envoy's rate limit service, and the client that sends them.

use std::net::SocketAddr;

use tollgate::proto::envoy::extensions::common::ratelimit::v3 as common;
use tollgate::proto::envoy::service::ratelimit::v3 as rls;
use tonic::transport::{Channel, Endpoint};

pub use common::RateLimitDescriptor as Descriptor;
pub use common::rate_limit_descriptor::{Entry, RateLimitOverride};
pub use rls::rate_limit_response::{Code, DescriptorStatus};
pub use rls::rate_limit_service_client::RateLimitServiceClient;
pub use rls::{RateLimitRequest, RateLimitResponse};

/// A connected channel.
pub async fn channel(grpc: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}

/// A request with no addend of its own.
pub fn request(domain: &str, descriptors: Vec<Descriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned().into(),
        descriptors,
        hits_addend: 0,
    }
}

/// A descriptor of these entries, given as bytes or text.
pub fn descriptor<K: AsRef<[u8]>, V: AsRef<[u8]>>(entries: &[(K, V)]) -> Descriptor {
    let entry = |(key, value): &(K, V)| Entry {
        key: key.as_ref().to_vec().into(),
        value: value.as_ref().to_vec().into(),
    };
    Descriptor {
        entries: entries.iter().map(entry).collect(),
        ..Default::default()
    }
}

/// A descriptor of one entry that takes so many hits.
pub fn hits(key: &str, value: &str, hits: u64) -> Descriptor {
    Descriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(key, value)])
    }
}
