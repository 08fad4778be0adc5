//! Files of other programs that are given as rules: one error that says what the file is.
//!
//! The first line stays the reference's.
//!
//! What it deliberately does not do: test other files that are no rules (`refused`).

use tollgate::rules::file::{Code, Diagnostic, load};

use crate::reading::{APART, source};

/// The only error of a file of this name.
fn foreign(name: &str, text: &str) -> Diagnostic {
    let mut errors = load(&[source(name, text)], APART).unwrap_err().errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].code, Code::ForeignFile, "{errors:?}");
    errors.remove(0)
}

const LIMITADOR: &str = "- namespace: shop
  name: writes
  max_value: 5
  seconds: 60
  conditions: [\"descriptors[0].method == 'POST'\"]
  variables: [\"descriptors[0].user\"]
";

const ASP_NET_CORE: &str = r#"{
  "Logging": { "LogLevel": { "Default": "Warning" } },
  "IpRateLimiting": {
    "EnableEndpointRateLimiting": true,
    "GeneralRules": [ { "Endpoint": "*", "Period": "1s", "Limit": 2 } ]
  }
}
"#;

#[test]
fn a_limits_file_of_limitador_is_recognised() {
    let error = foreign("limits.yaml", LIMITADOR);
    assert_eq!(
        (
            error.message.as_str(),
            error.span.at.to_string().as_str(),
            error.help.as_str()
        ),
        (
            "error loading config file: yaml: cannot read a list as a mapping",
            "1:3",
            "this is a limits file of limitador; `tollgate convert --from limitador FILE` prints it as rules: docs/guides/from-limitador.md",
        )
    );
}

#[test]
fn a_settings_file_of_asp_net_core_rate_limit_is_recognised() {
    let error = foreign("appsettings.json", ASP_NET_CORE);
    assert_eq!(
        (
            error.message.as_str(),
            error.span.at.to_string().as_str(),
            error.help.as_str()
        ),
        (
            "config error, unknown key 'Logging'",
            "2:3",
            "this is a settings file of AspNetCoreRateLimit; `tollgate convert --from aspnetcoreratelimit FILE` prints it as rules: docs/dotnet.md",
        )
    );
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

#[test]
fn files_that_stand_in_a_rules_directory_by_mistake_are_recognised() {
    for (name, text, message, help) in [
        (
            "docker-compose.yaml",
            "version: '3'\nservices:\n  redis:\n    image: redis:7\n",
            "config error, unknown key 'version'",
            "this is a Docker Compose file; move it out of the rules directory, or name the rules file",
        ),
        (
            "deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: tollgate}\n",
            "config error, unknown key 'apiVersion'",
            "this is a Kubernetes manifest (Deployment); move it out of the rules directory, or name the rules file",
        ),
        (
            "policy.yaml",
            "apiVersion: kuadrant.io/v1\nkind: RateLimitPolicy\nspec: {}\n",
            "config error, unknown key 'apiVersion'",
            "this is a Kubernetes manifest (RateLimitPolicy); docs/guides/from-limitador.md says how to write it as rules",
        ),
        (
            "configmap.yaml",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  README: text\n  shop.yaml: |\n    domain: shop\n    descriptors: []\n",
            "config error, unknown key 'apiVersion'",
            "this is a Kubernetes ConfigMap; save the text of its entry 'shop.yaml' as a file of its own",
        ),
        (
            "configmap.yaml",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  README: text\n",
            "config error, unknown key 'apiVersion'",
            "this is a Kubernetes manifest (ConfigMap); move it out of the rules directory, or name the rules file",
        ),
        (
            "envoy.yaml",
            "admin: {address: {}}\nstatic_resources: {listeners: []}\n",
            "config error, unknown key 'admin'",
            "this is an Envoy configuration; move it out of the rules directory, or name the rules file",
        ),
    ] {
        let error = foreign(name, text);
        assert_eq!(
            (error.message.as_str(), error.help.as_str()),
            (message, help),
            "{name}"
        );
    }
}

#[test]
fn a_foreign_file_hides_no_errors_of_other_files() {
    let files = [
        source("a.yaml", "domain: a\ndescriptors: [{}]\n"),
        source("b.yaml", LIMITADOR),
        source("c.yaml", "domain: c\nservices: 1\n"),
    ];
    let errors = load(&files, APART).unwrap_err().errors;
    let codes: Vec<_> = errors
        .iter()
        .map(|one| (one.file.as_str(), one.code))
        .collect();
    assert_eq!(codes.len(), 3, "{codes:?}");
    assert_eq!(codes[1], ("b.yaml", Code::ForeignFile));
}

#[test]
fn a_rules_file_with_such_a_key_is_no_foreign_file() {
    for text in [
        "domain: d\ndescriptors: []\nstatic_resources: {}\n",
        "domain: d\nservices: {a: 1}\n",
        "kind: d\n",
        "- key: k\n",
        "- 5\n",
    ] {
        let errors = load(&[source("rules.yaml", text)], APART)
            .unwrap_err()
            .errors;
        assert!(
            errors.iter().all(|one| one.code != Code::ForeignFile),
            "{text}"
        );
    }
}
