//! `docs/guides/agentgateway.md`: what agentgateway and kgateway send for the page's configurations
//! is limited as the page says.
//!
//! How: agentgateway's two checks of a descriptor are sent as its source builds them, with the
//! costs and tokens of the page; real Envoy sends kgateway's translation of a TrafficPolicy.
//!
//! What it deliberately does not do: run either gateway, or evaluate CEL.

use serde_json::{Value, json};
use tollgate_test_support::envoy_process::Envoy;
use tollgate_test_support::grpc_client::{
    Code, RateLimitResponse, RateLimitServiceClient, channel, hits, request,
};
use tollgate_test_support::http_connection::HttpConnection;
use tollgate_test_support::tollgate_process::Tollgate;

use crate::guides::edge::Parts;
use crate::guides::guide::{Page, of_a_year, yaml};

fn page() -> Page {
    Page::guide("agentgateway.md")
}

fn tollgate() -> Tollgate {
    Tollgate::start(&of_a_year(&page().only("The rules", "yaml")), &[])
}

#[tokio::test]
async fn agentgateways_requests_and_tokens_are_limited_as_documented() {
    let config = yaml(&page().only("agentgateway", "yaml")).remove(0);
    let route = &config["binds"][0]["listeners"][0]["routes"][0];
    let limit = &route["policies"]["remoteRateLimit"];
    let domain = limit["domain"].as_str().unwrap();
    let [requests, tokens] = limit["descriptors"].as_array().unwrap().as_slice() else {
        panic!("{limit}");
    };
    let key = |descriptor: &Value| descriptor["entries"][0]["key"].as_str().unwrap().to_owned();
    let cost: u64 = requests["cost"].as_str().unwrap().parse().unwrap();
    assert_eq!((&requests["type"], cost), (&json!("requests"), 2));
    assert_eq!(tokens["type"], "tokens");
    let tollgate = tollgate();
    let client = RateLimitServiceClient::new(channel(tollgate.grpc).await);
    let ask = async |key: String, value: &str, cost: u64| -> RateLimitResponse {
        let asked = request(domain, vec![hits(&key, value, cost)]);
        let answer = client.clone().should_rate_limit(asked).await;
        answer.unwrap().into_inner()
    };
    let allowed = |answer: &RateLimitResponse| answer.overall_code == i32::from(Code::Ok);

    let first = ask(key(requests), "ann", cost).await;
    assert!(allowed(&first), "{first:?}");
    assert_eq!(first.statuses[0].limit_remaining, 1);
    let refused = ask(key(requests), "ann", cost).await;
    assert!(!allowed(&refused), "{refused:?}");
    assert_eq!(&*refused.raw_body, br#"{"error":"slow down"}"#);
    let headers = refused.response_headers_to_add.iter();
    let headers: Vec<_> = headers.map(|one| (&*one.key, &*one.value)).collect();
    assert!(
        headers.contains(&("content-type", "application/json")),
        "{headers:?}"
    );

    // The second response has more tokens than are left, and they count.
    for used in [600, 800] {
        assert!(allowed(&ask(key(tokens), "small", 0).await), "{used}");
        ask(key(tokens), "small", used).await;
    }
    assert!(!allowed(&ask(key(tokens), "small", 0).await));
}

/// Envoy's action for an entry of a TrafficPolicy.
fn action(entry: &Value) -> Value {
    match entry["type"].as_str().unwrap() {
        "RemoteAddress" => json!({ "remote_address": {} }),
        "Header" => json!({ "request_headers": {
            "header_name": entry["header"], "descriptor_key": entry["header"],
        } }),
        other => panic!("{other}"),
    }
}

#[test]
fn kgateways_policy_is_limited_as_documented() {
    let objects = yaml(&page().only("kgateway", "yaml"));
    let (extension, policy) = (&objects[0]["spec"]["rateLimit"], &objects[1]["spec"]);
    assert_eq!(extension["grpcService"]["backendRef"]["port"], 8081);
    let descriptors = policy["rateLimit"]["global"]["descriptors"].as_array();
    let limits = descriptors.unwrap().iter().map(|descriptor| {
        let entries = descriptor["entries"].as_array().unwrap();
        json!({ "actions": entries.iter().map(action).collect::<Vec<_>>() })
    });
    let route = json!({
        "match": { "prefix": "/" },
        "route": { "cluster": "backend", "rate_limits": limits.collect::<Vec<_>>() },
    });
    let mut cluster = yaml(&Page::guide("envoy.md").only("The cluster", "yaml"))[0][0].clone();
    cluster["name"] = json!("tollgate");
    cluster["load_assignment"]["cluster_name"] = cluster["name"].clone();
    let filter = json!({
        "name": "envoy.filters.http.ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": extension["domain"],
            "timeout": extension["timeout"].as_str().unwrap().replace("50ms", "0.05s"),
            "failure_mode_deny": extension["failOpen"] == false,
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": "tollgate" } },
            },
        },
    });
    let host = json!({ "name": "shop", "domains": ["*"], "routes": [route] });
    let parts = Parts {
        clusters: vec![cluster],
        filters: vec![filter],
        virtual_hosts: vec![host],
    };
    let tollgate = tollgate();
    let folder = tempfile::tempdir().unwrap();
    let bootstrap = parts.at(&[tollgate.grpc]).bootstrap(folder.path());
    let envoy = Envoy::start(&bootstrap.to_string());
    let mut caller = HttpConnection::open(envoy.edge);
    let mut get = |user: &str| caller.get_with("/", &[("user", user.as_bytes())]).status;
    // The limit of the address is used up by requests of two users.
    let statuses = ["ann", "bob", "ann", "bob"].map(&mut get);
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(envoy.counts().error, 0);
}
