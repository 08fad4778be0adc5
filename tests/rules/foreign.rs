//! Settings files of AspNetCoreRateLimit that are given as rules, in every form that .NET accepts.
//!
//! What it deliberately does not do: other programs' files (`broken/`, `cases/foreign.yaml`).

use tollgate::rules::file::{Code, Diagnostic, load};

use crate::rules::reading::{APART, source};

/// The only error of a file of this name.
fn foreign(name: &str, text: &str) -> Diagnostic {
    let mut errors = load(&[source(name, text)], APART).unwrap_err().errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].code, Code::ForeignFile, "{errors:?}");
    errors.remove(0)
}

const ASP_NET_CORE: &str = r#"{
  "Logging": { "LogLevel": { "Default": "Warning" } },
  "IpRateLimiting": {
    "EnableEndpointRateLimiting": true,
    "GeneralRules": [ { "Endpoint": "*", "Period": "1s", "Limit": 2 } ]
  }
}
"#;

#[test]
fn a_settings_file_of_asp_net_core_rate_limit_is_recognised() {
    foreign("appsettings.json", ASP_NET_CORE);
    for section in [
        "ClientRateLimiting",
        "IpRateLimitPolicies",
        "ClientRateLimitPolicies",
    ] {
        foreign(
            "appsettings.json",
            &ASP_NET_CORE.replace("IpRateLimiting", section),
        );
    }
    // .NET allows comments, commas at the end, and a byte order mark.
    let with_comments = ASP_NET_CORE
        .replace("\"IpRate", "// limits\n  /* of addresses */ \"IpRate")
        .replace("2 } ]", "2, }, ],");
    for text in [
        with_comments.clone(),
        format!("\u{feff}{ASP_NET_CORE}"),
        format!("\u{feff}// settings\n{with_comments}"),
    ] {
        foreign("appsettings.json", &text);
    }
}
