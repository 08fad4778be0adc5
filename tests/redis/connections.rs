//! Connections to Redis: a socket, TLS with certificates on both sides, users and rotated
//! passwords, the reference service's variables, two servers.

use std::path::{Path, PathBuf};

use tollgate::store::SharedSettings;
use tollgate::store_redis::BACKEND;
use tollgate_test_support::certificates::{Authority, Validity};
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::cluster_log::{repeats_no_line, wait_until_logged};
use super::rate_leases::settings;
use super::{RULES, ask, buckets, decides, passes, shared, shows, verbose};

/// Sends a request to a replica with this store and checks that a bucket was created there.
async fn shares(redis: &RedisServer, store: &str, arguments: &[&str]) {
    let (_tollgate, mut client) = shared(store, arguments).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert_eq!(buckets(redis).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_and_another_database() {
    let redis = RedisServer::start(&[]);
    let url = format!("redis+unix://{}", redis.socket().display());
    shares(&redis, &url, &[]).await;
    let (_tollgate, mut client) = shared(&format!("{}/3", redis.url()), &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let info: String = redis.say(&["INFO", "keyspace"]);
    assert!(info.contains("db3:keys="), "{info}");
}

/// Files of a CA, and of a server's and a client's certificate that it signed.
struct Certified {
    directory: tempfile::TempDir,
}

impl Certified {
    fn new(host: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("an authority");
        file(directory.path(), "ca.crt", &authority.pem);
        for (name, host) in [("server", host), ("client", "tollgate")] {
            let leaf = authority.signs(&[host]);
            file(directory.path(), &format!("{name}.crt"), &leaf.certificate);
            file(directory.path(), &format!("{name}.key"), &leaf.key);
        }
        Self { directory }
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn server(&self) -> RedisServer {
        self.server_with(&[])
    }

    fn server_with(&self, more: &[&str]) -> RedisServer {
        let port = RedisServer::later().to_string();
        let [ca, certificate, key] = ["ca.crt", "server.crt", "server.key"].map(|f| self.file(f));
        let tls = [
            "--tls-port",
            &port,
            "--tls-ca-cert-file",
            &ca,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
        ];
        RedisServer::start(&[&tls, more].concat())
    }
}

fn tls_port(redis: &RedisServer) -> String {
    let said: Vec<String> = redis.say(&["CONFIG", "GET", "tls-port"]);
    said[1].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_certificates_on_both_sides() {
    let certified = Certified::new("localhost");
    let redis = certified.server();
    let url = format!("rediss://localhost:{}", tls_port(&redis));
    let [ca, certificate, key] = ["ca.crt", "client.crt", "client.key"].map(|f| certified.file(f));
    let ours = [
        "--redis-tls-client-cert",
        &certificate,
        "--redis-tls-client-key",
        &key,
    ];
    let all = [&["--redis-tls-cacert", &ca], &ours[..]].concat();
    shares(&redis, &url, &all).await;
    // Without the client certificate, or without the CA, there is no connection, and an error says
    // why.
    for lacking in [&["--redis-tls-cacert", ca.as_str()][..], &ours[..]] {
        let arguments = [&["--store", &url], lacking].concat();
        let tollgate = Tollgate::start(RULES, &arguments);
        shows(&tollgate, "there is no TLS connection to it");
        shows(&tollgate, "ertificate");
    }
}

/// `openssl req -x509` makes such a certificate, and the same file is the CA bundle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_its_own_authority_is_accepted_if_it_is_the_ca_bundle() {
    for (host, validity, refused) in [
        ("localhost", Validity::Valid, None),
        (
            "elsewhere",
            Validity::Valid,
            Some("--redis-tls-skip-hostname-verification"),
        ),
        ("localhost", Validity::Expired, Some("certificate: Expired")),
        (
            "localhost",
            Validity::NotYetValid,
            Some("certificate: NotValidYet"),
        ),
    ] {
        let leaf = Authority::self_signed(&[host], validity);
        let other = Authority::self_signed(&[host], validity);
        let certified = Certified {
            directory: tempfile::tempdir().unwrap(),
        };
        for (name, text) in [
            ("server.crt", &leaf.certificate),
            ("server.key", &leaf.key),
            ("ca.crt", &leaf.certificate),
            ("other.crt", &other.certificate),
        ] {
            file(certified.directory.path(), name, text);
        }
        let redis = certified.server_with(&["--tls-auth-clients", "no"]);
        let url = format!("rediss://localhost:{}", tls_port(&redis));
        let ca = ["ca.crt", "other.crt"].map(|name| certified.file(name));
        let start = |ca: &str| Tollgate::start(RULES, &["--store", &url, "--redis-tls-cacert", ca]);
        match refused {
            None => {
                shares(&redis, &url, &["--redis-tls-cacert", &ca[0]]).await;
                shows(&start(&ca[1]), "there is no TLS connection to it");
            }
            Some(words) => {
                let tollgate = start(&ca[0]);
                shows(&tollgate, "there is no TLS connection to it");
                shows(&tollgate, words);
            }
        }
    }
}

#[test]
fn a_server_without_tls_and_a_missing_password_are_called_what_they_are() {
    let redis = RedisServer::start(&["--requirepass", "hunter2"]);
    let plain = redis.url();
    let tollgate = Tollgate::start(RULES, &["--store", &plain]);
    shows(&tollgate, "there is no access to it");
    shows(&tollgate, "it asks for a password, and none is set");
    let database = format!("{plain}/1");
    let tollgate = Tollgate::start(RULES, &["--store", &database]);
    shows(&tollgate, "it asks for a password, and none is set");
    let tls = plain.replace("redis://", "rediss://");
    let tollgate = Tollgate::start(RULES, &["--store", &tls]);
    shows(&tollgate, "there is no TLS connection to it");
    shows(&tollgate, "does this port use TLS?");
    let sentinel = format!("redis+sentinel://127.0.0.1:{}/main", redis.port());
    let tollgate = Tollgate::start(RULES, &["--store", &sentinel]);
    shows(&tollgate, "set REDIS_SENTINEL_AUTH");
    shows(&tollgate, "there is no access to it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_name_only_where_that_is_allowed() {
    let certified = Certified::new("elsewhere");
    let redis = certified.server();
    let url = format!("rediss://localhost:{}", tls_port(&redis));
    let [ca, certificate, key] = ["ca.crt", "client.crt", "client.key"].map(|f| certified.file(f));
    let all = [
        ["--redis-tls-cacert", &ca],
        ["--redis-tls-client-cert", &certificate],
        ["--redis-tls-client-key", &key],
    ]
    .concat();
    let tollgate = Tollgate::start(RULES, &[&["--store", &url], &all[..]].concat());
    shows(&tollgate, "ertificate");
    let skip = ["--redis-tls-skip-hostname-verification", "true"];
    shares(&redis, &url, &[&all[..], &skip].concat()).await;
}

/// Replaces a file at once: no reader finds a part of it.
fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

/// How many logins the server has seen.
fn logins(redis: &RedisServer) -> u32 {
    let stats: String = redis.say(&["INFO", "commandstats"]);
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_auth:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_password_is_read_again() {
    let redis = RedisServer::start(&[]);
    let user = |password: &str| {
        let rule = format!(">{password}");
        let _: redis::Value =
            redis.say(&["ACL", "SETUSER", "tollgate", "on", &rule, "~tg:*", "+@all"]);
    };
    user("hunter2");
    let directory = tempfile::tempdir().unwrap();
    let password = file(directory.path(), "password", "hunter2\n");
    let password_file = password.display().to_string();
    let login = [
        "--store-user",
        "tollgate",
        "--store-password-file",
        &password_file,
    ];
    let (tollgate, mut client) = shared(&redis.url(), &login).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    // The new password is valid beside the old one, then alone.
    let before = logins(&redis);
    user("correct horse");
    file(directory.path(), "password", "correct horse\n");
    until("the new password is used", || logins(&redis) > before);
    let log: Vec<redis::Value> = redis.say(&["ACL", "LOG"]);
    assert!(log.is_empty(), "{log:?}");
    let _: redis::Value = redis.say(&["ACL", "SETUSER", "tollgate", "<hunter2"]);
    let _: redis::Value = redis.say(&["CLIENT", "KILL", "USER", "tollgate"]);
    // The request that finds the fault may have an unknown outcome.
    let _ = ask(&mut client, "a").await;
    passes(&mut client, "a").await;
    // On a living connection a wrong password is logged once, and its end at the same level.
    file(directory.path(), "password", "wrong horse\n");
    let before = logins(&redis);
    until("the password was tried twice", || {
        logins(&redis) >= before + 2
    });
    file(directory.path(), "password", "correct horse\n");
    wait_until_logged(&tollgate, "probe: the store's new password is not in use");
    let again = "the store's password is in use again";
    wait_until_logged(&tollgate, &format!("probe: {again}"));
    repeats_no_line(&tollgate);
    let lines = tollgate.said();
    let line = lines.lines().find(|line| line.contains(again)).unwrap();
    assert!(line.contains(" WARN "), "{line}");
    // A wrong password is reported and never shown.
    file(directory.path(), "password", "wrong horse\n");
    let _: redis::Value = redis.say(&["CLIENT", "KILL", "USER", "tollgate"]);
    let _ = ask(&mut client, "a").await;
    shows(&tollgate, "there is no access to it");
    file(directory.path(), "password", "correct horse");
    decides(&tollgate);
    let said = tollgate.said() + verbose(&tollgate).as_str();
    for secret in ["hunter2", "horse"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_and_no_password_is_repeated() {
    let reference_in_a_cluster = SharedSettings {
        reference_keys: true,
        ..settings("redis+cluster://me@127.0.0.1:1")
    };
    for (settings, words) in [
        (
            settings("redis://me:hunter2@127.0.0.1:1"),
            "--store-password-file",
        ),
        (reference_in_a_cluster, "does not work in a cluster"),
    ] {
        let refused = (BACKEND.configure)(&settings).err().unwrap().to_string();
        assert!(refused.contains(words), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reference_s_variables_and_its_second_server_for_seconds() {
    let (redis, seconds) = (
        RedisServer::start(&["--requirepass", "hunter2"]),
        RedisServer::start(&[]),
    );
    let (url, path) = (
        format!("127.0.0.1:{}", redis.port()),
        seconds.socket().display().to_string(),
    );
    let variables = [
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", url.as_str()),
        ("REDIS_AUTH", "hunter2"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", path.as_str()),
        ("CACHE_KEY_PREFIX", "mine:"),
        ("TOLLGATE_STORE_DEADLINE_MS", "20000"),
    ];
    // window: of 9,000,000 seconds; the unit alone chooses the server.
    let per_second = "- key: s\n  rate_limit: { unit: second, unit_multiplier: 9000000, requests_per_unit: 9 }\n";
    let tollgate = Tollgate::start_with(&format!("{RULES}{per_second}"), &[], &variables);
    decides(&tollgate);
    until("both servers answer", || {
        let page = verbose(&tollgate);
        if page.matches("answers").count() == 2 {
            Ok(())
        } else {
            Err(page)
        }
    });
    let mut client = super::client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let keys = |server: &RedisServer, password: Option<&str>| -> usize {
        let mut connection = server.connection();
        if let Some(password) = password {
            let mut auth = redis::cmd("AUTH");
            auth.arg(password);
            auth.query::<redis::Value>(&mut connection).unwrap();
        }
        let mut keys = redis::cmd("KEYS");
        keys.arg("mine:tg:{*}:?????*");
        keys.query::<Vec<String>>(&mut connection).unwrap().len()
    };
    assert_eq!(
        (keys(&redis, Some("hunter2")), keys(&seconds, None)),
        (1, 0)
    );
    let a_second = super::request("d", vec![super::descriptor(&[("s", "a")])]);
    client.should_rate_limit(a_second).await.unwrap();
    assert_eq!(buckets(&seconds).len(), 1);
    assert!(!tollgate.said().contains("hunter2"));
}
