//! Tests of URLs and of the reference service's variables.

use super::*;

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp(host.to_owned(), port)
}

#[test]
fn urls_are_parsed() {
    let single = |url: &str| match Target::of_url(url).unwrap() {
        Target {
            servers: Servers::Single(address),
            tls,
            database,
            ..
        } => (address, tls, database),
        other => panic!("{other:?}"),
    };
    assert_eq!(single("redis://cache"), (tcp("cache", 6379), false, 0));
    assert_eq!(single("redis://cache:7/3"), (tcp("cache", 7), false, 3));
    assert_eq!(single("valkeys://cache:7"), (tcp("cache", 7), true, 0));
    assert_eq!(single("redis://[::1]:7"), (tcp("::1", 7), false, 0));
    assert_eq!(single("redis://[::1]"), (tcp("::1", 6379), false, 0));
    let socket = Address::Unix(PathBuf::from("/run/a b"));
    assert_eq!(single("unix:///run/a%20b?db=2"), (socket, false, 2));
    let sentinel = Target::of_url("rediss+sentinel://a,b:7/main/1").unwrap();
    assert_eq!(
        sentinel.to_string(),
        "main by sentinel a:26379, b:7",
        "{sentinel:?}"
    );
    assert!(sentinel.tls);
    assert_eq!(sentinel.database, 1);
    let cluster = Target::of_url("valkeys+cluster://a,b:7,[::1]:8/0").unwrap();
    assert_eq!(
        cluster.to_string(),
        "the cluster of a:6379, b:7, [::1]:8",
        "{cluster:?}"
    );
    assert!(cluster.tls);
}

#[test]
fn a_server_of_a_cluster_may_leave_out_the_host_that_is_its_own() {
    let asked = tcp("10.0.0.1", 6379);
    let said = |text| Address::reported_by(text, &asked);
    assert_eq!(said("10.0.0.2:7"), Some(tcp("10.0.0.2", 7)));
    assert_eq!(said(":7"), Some(tcp("10.0.0.1", 7)));
    assert_eq!(said("fd00::2:7"), Some(tcp("fd00::2", 7)));
    for text in ["?:7", "a:0", "a", "a:x"] {
        assert_eq!(said(text), None, "{text}");
    }
}

#[test]
fn url_errors_do_not_repeat_the_url() {
    let wrong = [
        ("cache:6379", TargetError::Scheme),
        ("http://hunter2", TargetError::Scheme),
        ("redis+other://hunter2", TargetError::Scheme),
        ("redis+cluster://hunter2/1", TargetError::ClusterDatabase),
        ("redis+cluster://u:hunter2@", TargetError::NoServer),
        ("redis://", TargetError::NoServer),
        ("redis://u:hunter2@:7", TargetError::NoServer),
        ("redis://u:hunter2@host:port", TargetError::Port),
        ("redis://u:hunter2@host/x", TargetError::Database),
        ("redis://u:hunter%2@host", TargetError::Escape),
        ("redis://u:hunter2@a,b", TargetError::Several),
        ("redis+sentinel://hunter2", TargetError::NoPrimary),
        ("redis+sentinel://hunter2/", TargetError::NoPrimary),
        ("redis://a:1,redis://u:hunter2@b:2", TargetError::Several),
        (
            "redis+cluster://u:hunter2@a,u:hunter2@b",
            TargetError::Login,
        ),
        ("redis+sentinel://a/hunter2@b", TargetError::NoPrimary),
        ("redis+sentinel://a/hunter2%40b", TargetError::Primary),
        ("redis://host,password=hunter2", TargetError::Host),
        ("redis://host hunter2", TargetError::Host),
        (
            "redis://:hun?hunter2@host",
            TargetError::Parameter(String::new()),
        ),
        (
            "redis://host?hunter2",
            TargetError::Parameter(String::new()),
        ),
        (
            "redis://host?timeout=hunter2",
            TargetError::Parameter("timeout ".to_owned()),
        ),
    ];
    for (url, error) in wrong {
        assert_eq!(Target::of_url(url), Err(error.clone()), "{url}");
        assert!(!error.to_string().contains("hunter"));
    }
}

/// As radix v4, the client of the reference, reads them.
#[test]
fn the_query_completes_a_url() {
    let read = |url: &str| {
        let target = Target::of_url(url).unwrap();
        let password = match target.login.password {
            Password::Given(secret) => secret.reveal().to_owned(),
            _ => String::new(),
        };
        (
            target.login.user.unwrap_or_default(),
            password,
            target.database,
        )
    };
    let expected =
        |user: &str, password: &str, database| (user.to_owned(), password.to_owned(), database);
    for (url, login) in [
        ("redis://h?db=3", expected("", "", 3)),
        ("redis://h/?db=3", expected("", "", 3)),
        ("redis://h/1?db=3", expected("", "", 1)),
        ("redis://h?db=", expected("", "", 0)),
        ("redis://h?password=a%40b+c", expected("", "a@b c", 0)),
        ("redis://h?username=me&password=p", expected("me", "p", 0)),
        (
            "redis://you:q@h?username=me&password=p",
            expected("you", "q", 0),
        ),
        ("redis://you@h?password=p", expected("you", "p", 0)),
        ("redis+sentinel://h/main?db=2", expected("", "", 2)),
        ("redis+unix:///s?db=2&password=p", expected("", "p", 2)),
    ] {
        assert_eq!(read(url), login, "{url}");
    }
    let cluster = Target::of_url("redis+cluster://h?db=1");
    assert_eq!(cluster, Err(TargetError::ClusterDatabase));
}

#[test]
fn a_password_is_read_and_never_shown() {
    let target = Target::of_url("redis://me:hunter%32@@cache:1").unwrap();
    assert_eq!(target.login.user.as_deref(), Some("me"));
    assert!(target.holds_password());
    let Password::Given(secret) = &target.login.password else {
        panic!("{target:?}");
    };
    assert_eq!(secret.reveal(), "hunter2@");
    let shown = format!("{target:?} {target}");
    assert!(!shown.contains("hunter"), "{shown}");
    // A password in the place of the user, and text that a server repeats.
    let user = Target::of_url("redis://hunter2@cache").unwrap();
    assert!(!format!("{user:?} {user}").contains("hunter"));
    let repeated = "unknown command 'AUTH', with args: 'hunter2@'";
    assert_eq!(
        secret.hide_in(repeated),
        "unknown command 'AUTH', with args: '***'"
    );
}

#[test]
fn a_list_of_the_references_variables_may_have_urls() {
    let of = |kind: &str, url: &str| {
        Target::of_reference(&ReferenceVariables {
            url: Secret::new(url),
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            ..ReferenceVariables::default()
        })
    };
    let hunter2 = Login {
        user: Some("me".to_owned()),
        password: Password::Given(Secret::new("hunter2")),
    };
    let cluster = of(
        "CLUSTER",
        "rediss://me:hunter2@a:1, b,rediss://me:hunter2@c",
    )
    .unwrap();
    assert_eq!(cluster.to_string(), "the cluster of a:1, b:6379, c:6379");
    assert_eq!((cluster.tls, &cluster.login), (true, &hunter2));
    let sentinel = of("SENTINEL", "main,redis://me:hunter2@a,b").unwrap();
    assert_eq!(sentinel.to_string(), "main by sentinel a:26379, b:26379");
    // As the reference, which logs in at the servers by REDIS_AUTH.
    assert_eq!(sentinel.sentinel_login, hunter2);
    assert_eq!(sentinel.login, Login::default());
    for kind in ["", "SINGLE", "CLUSTER"] {
        let whole = of(kind, "redis+cluster://me:hunter2@a,b").unwrap();
        assert_eq!(whole.to_string(), "the cluster of a:6379, b:6379", "{kind}");
    }
    for (kind, url, error) in [
        ("", "a:1,b:2", TargetError::List),
        ("", "mymaster,a:26379", TargetError::List),
        (
            "",
            "redis://:hunter2@a,redis://:hunter2@b",
            TargetError::List,
        ),
        ("", "redis://:hunter2@a,b", TargetError::List),
        ("", ":hunter2@a:1", TargetError::Login),
        ("", "me:hunter2@a", TargetError::Login),
        ("CLUSTER", "me:hunter2@a:1,b:2", TargetError::Login),
        ("CLUSTER", "redis://:hun,ter2@a", TargetError::Port),
        (
            "CLUSTER",
            "redis://:hunter2@a,redis://:other@b",
            TargetError::Differ,
        ),
        ("CLUSTER", "redis://a/1", TargetError::ClusterDatabase),
        (
            "SENTINEL",
            "redis://:hunter2@a,redis://:hunter2@b",
            TargetError::Primary,
        ),
        ("SENTINEL", "main,:hunter2@a", TargetError::Login),
        (
            "SENTINEL",
            "main,redis://a/1",
            TargetError::SentinelDatabase,
        ),
    ] {
        assert_eq!(of(kind, url), Err(error), "{kind} {url}");
    }
}

#[test]
fn the_references_variables_keep_their_meaning() {
    let names = |url: &str| ReferenceVariables {
        url: Secret::new(url),
        ..ReferenceVariables::default()
    };
    let of = |names: &ReferenceVariables| Target::of_reference(names).unwrap();
    assert_eq!(
        of(&names("cache:7")).servers,
        Servers::Single(tcp("cache", 7))
    );
    let socket = Servers::Single(Address::Unix(PathBuf::from("/run/redis.sock")));
    assert_eq!(of(&names("/run/redis.sock")).servers, socket);
    let url = of(&names("rediss://me:x@cache/2"));
    assert_eq!((url.tls, url.database), (true, 2));
    let auth = of(&ReferenceVariables {
        auth: Some(Secret::new("me:hunter2")),
        tls: Some("T".to_owned()),
        ..names("cache:7")
    });
    assert_eq!(auth.login.user.as_deref(), Some("me"));
    let user_of_url = of(&ReferenceVariables {
        auth: Some(Secret::new("hunter2")),
        ..names("redis://me@cache:7")
    });
    assert_eq!(user_of_url.login.user.as_deref(), Some("me"));
    assert!(auth.tls);
    let password = of(&ReferenceVariables {
        auth: Some(Secret::new("hunter2")),
        ..names("cache:7")
    });
    assert_eq!(password.login.user, None);
    let sentinel = of(&ReferenceVariables {
        kind: Some("sentinel".to_owned()),
        ..names("main,a:1,b:2")
    });
    assert_eq!(sentinel.to_string(), "main by sentinel a:1, b:2");
    let cluster = of(&ReferenceVariables {
        kind: Some("Cluster".to_owned()),
        ..names("a:1, b:2")
    });
    assert_eq!(cluster.to_string(), "the cluster of a:1, b:2");
    let other = ReferenceVariables {
        kind: Some("other".to_owned()),
        ..names("cache:7")
    };
    assert!(matches!(
        Target::of_reference(&other),
        Err(TargetError::InvalidWord(_))
    ));
}
