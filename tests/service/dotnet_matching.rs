//! Like `dotnet`, for lists of values, networks of addresses and regular expressions.
//!
//! What it deliberately does not do: test all forms of these (`tests/laws`, `tests/rules`).

use crate::dotnet::{asked, serve};

#[tokio::test]
async fn listed_clients_are_allowed() {
    let mut service = serve("client-whitelist").await;
    for (client, codes) in [
        ("admin", "ooo"),
        ("monitor", "ooo"),
        ("cl-key-9", "ooo"),
        ("cl-key-", "o--"),
        ("cl-key-99", "o--"),
        ("Admin", "o--"),
    ] {
        let entries = [("client_id", client)];
        assert_eq!(asked(&mut service, &entries, 3).await, codes, "{client}");
    }
}

#[tokio::test]
async fn one_policy_for_a_list_of_clients_is_a_bucket_each() {
    let mut service = serve("client-list").await;
    for (client, codes) in [
        ("cl-key-1", "oo-"),
        ("cl-key-2", "oo-"),
        ("cl-key-3", "o--"),
    ] {
        let entries = [("client_id", client)];
        assert_eq!(asked(&mut service, &entries, 3).await, codes, "{client}");
    }
}

#[tokio::test]
async fn listed_networks_are_allowed() {
    let mut service = serve("ip-whitelist").await;
    for (address, codes) in [
        ("10.0.0.0", "oo"),
        ("10.255.255.255", "oo"),
        ("11.0.0.0", "o-"),
        ("fdff::1", "oo"),
        ("fe00::1", "o-"),
        // The range, and the addresses on either side of it.
        ("192.168.0.3", "o-"),
        ("192.168.0.4", "oo"),
        ("192.168.0.7", "oo"),
        ("192.168.0.9", "oo"),
        ("192.168.0.10", "o-"),
        // An address has several spellings.
        ("::ffff:10.1.2.3", "oo"),
        ("fd00:0:0::1", "oo"),
    ] {
        let entries = [("remote_address", address)];
        assert_eq!(asked(&mut service, &entries, 2).await, codes, "{address}");
    }
}

#[tokio::test]
async fn the_longest_prefix_has_its_policy() {
    let mut service = serve("ip-ranges").await;
    for (address, codes) in [
        ("192.168.3.1", "oooo-"),
        ("192.168.3.2", "oooo-"), // a bucket each
        ("192.168.4.1", "oo---"),
        ("172.16.0.1", "o----"),
    ] {
        let entries = [("remote_address", address)];
        assert_eq!(asked(&mut service, &entries, 5).await, codes, "{address}");
    }
}

#[tokio::test]
async fn regular_expressions_match_the_whole_value_and_may_ignore_case() {
    let mut service = serve("endpoint-regex").await;
    for (path, codes) in [
        ("/health/live", "ooo"),
        ("/health/ready", "ooo"),
        // Longer values and other letters do not match.
        ("/health/live/more", "o--"),
        ("/x/health/live", "o--"),
        ("/Health/live", "o--"),
        // These share one bucket of three.
        ("/api/values", "o"),
        ("/API/Values/7/", "o"),
        ("/api/values/7?page=2", "o"),
        ("/api/values/", "-"),
        ("/api/values/x", "o--"),
    ] {
        let entries = [("path", path)];
        let asked = asked(&mut service, &entries, codes.len()).await;
        assert_eq!(asked, codes, "{path}");
    }
}
