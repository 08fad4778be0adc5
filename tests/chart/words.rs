//! What the chart says to people: its notes and its README, each held to what it speaks of.
//!
//! What it deliberately does not do: judge prose.

use std::path::Path;
use std::process::Command;

use crate::rendering::{EXAMPLE, HELMS, OFF, ON, chart, helm, read, rendered, template, yaml};
use crate::running::TOLLGATE;

/// What `helm install` prints at its end. Helm renders notes only for a cluster, so here they are a template of a copy.
pub(crate) fn notes(arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("tollgate");
    copy_folder(&chart(), &copy);
    let text = read("helm/tollgate/templates/NOTES.txt");
    let wrapped = format!(
        "{{{{ define \"notes\" }}}}{text}{{{{ end }}}}\nnotes: {{{{ include \"notes\" . | toJson }}}}\n"
    );
    std::fs::write(copy.join("templates/notes.yaml"), wrapped).expect("the copy");
    let only = [arguments, &["--show-only=templates/notes.yaml"]].concat();
    let [old, new] = HELMS.map(|version| {
        let text = template(version, &copy, &only).expect("the notes render");
        yaml(&text)[0]["notes"].as_str().expect("a text").to_owned()
    });
    assert_eq!(old, new);
    new
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// The `clusters:` of an Envoy bootstrap that notes show, as they are indented there.
pub(crate) fn cluster(notes: &str) -> String {
    let lines = notes.lines().skip_while(|line| *line != "  clusters:");
    let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "{notes}");
    lines.join("\n") + "\n"
}

#[test]
fn the_notes_name_what_was_installed() {
    for (values, address) in [
        (EXAMPLE, "demo-tollgate-headless"),
        (ON, "edge-limits-headless"),
        // Nothing but this one is there.
        (OFF, "demo-tollgate"),
    ] {
        let notes = notes(&[values]);
        let rendered = rendered(&[values]);
        let cluster = &yaml(&cluster(&notes))[0]["clusters"][0];
        let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
        let named = &endpoint["address"]["socket_address"];
        assert_eq!(
            named["address"],
            format!("{address}.prod.svc.cluster.local")
        );
        assert_eq!(cluster["type"], "STRICT_DNS");
        assert_eq!(
            cluster["health_checks"][0]["grpc_health_check"]["service_name"],
            "ratelimit"
        );
        let services = rendered.all("Service");
        let service = services
            .iter()
            .find(|service| service["metadata"]["name"] == address)
            .expect("the Service");
        assert_eq!(service["spec"]["clusterIP"] == "None", values != OFF);
        assert_eq!(service["spec"]["ports"][0]["port"], named["port_value"]);
        let deployment = rendered.only("Deployment")["metadata"]["name"].as_str();
        let deployment = deployment.expect("a name");
        assert!(notes.contains(&format!("service/{deployment} 8081:8081")));
        assert!(notes.contains(&format!("http://{deployment}.prod:8080/metrics")));
        assert!(notes.contains("gRPC keeps one connection for all of its calls"));
        assert_eq!(notes.contains("`helm test demo -n prod`"), values != OFF);
    }
}

#[test]
fn the_notes_warn_of_what_is_easily_overlooked() {
    let notes_of =
        |values: &str| notes(&[&format!("--values=helm/tollgate/ci/{values}-values.yaml")]);
    let example = notes(&[EXAMPLE]);
    assert!(
        example.contains("WARNING: you gave it no rules"),
        "{example}"
    );
    assert!(!example.contains("counts for itself"), "{example}");
    let three = notes(&["--set=replicaCount=3"]);
    assert!(
        three.contains("WARNING: each of the 3 replicas counts for itself"),
        "{three}"
    );
    let on = notes(&[ON]);
    assert!(on.contains("It serves edge.yaml, shop.yaml;"), "{on}");
    assert!(!on.contains("WARNING"), "{on}");
    let off = notes(&[OFF]);
    assert!(off.contains("the rules in your ConfigMap limits"), "{off}");
    assert!(off.contains("settings.GRPC_MAX_CONNECTION_AGE"), "{off}");
    assert!(!off.contains("WARNING"), "{off}");
    let shared = notes(&["--set=redis.url=redis://a,replicaCount=3"]);
    assert!(shared.contains("WARNING: no redis.hashKeyKey"), "{shared}");
    let old = notes(&["--kube-version=1.29"]);
    assert!(
        old.contains("cannot sleep before it stops a container; pods drain 2 s longer"),
        "{old}"
    );
    let xds = notes_of("xds");
    assert!(
        xds.contains("the xDS server rules.edge:18000 sends"),
        "{xds}"
    );
    let rollout = notes_of("cert-manager");
    assert!(rollout.contains("other rules are new pods"), "{rollout}");
    let tls = notes_of("tls");
    let options = "--cacert is the root.pem of the Secret internal-ca, and --server-name, through the port-forward,\nlimits.edge.example.\n";
    assert!(tls.contains(options), "{tls}");
    let options = "--cacert is the ca.crt of the Secret demo-tollgate-tls, and --server-name, through the port-forward,\ndemo-tollgate.prod.svc.\n";
    assert!(rollout.contains(options), "{rollout}");
    assert!(tls.contains("sni: demo-tollgate.prod.svc\n"), "{tls}");
    assert!(tls.contains("private_key: "), "{tls}");
}

/// Values, and why `helm test` asks nothing; nothing where it asks.
const ASKED: [(&str, Option<&str>); 8] = [
    ("replicaCount=1", None),
    ("tls.enabled=true,tls.existingSecret=a", None),
    (
        "tls.enabled=true,tls.existingSecret=a,tls.clientCA.existingSecret=b",
        Some(
            "gRPC asks for a client's certificate; name a Secret with one by tests.tls.clientSecret",
        ),
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,settings.GRPC_CLIENT_TLS_CACERT=/b",
        Some(
            "gRPC asks for a client's certificate; name a Secret with one by tests.tls.clientSecret",
        ),
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,tls.clientCA.existingSecret=b,tests.tls.clientSecret=c",
        None,
    ),
    (
        "settings.GRPC_SERVER_USE_TLS=true",
        Some(
            "gRPC is TLS by `settings`; name a Secret with who signed its certificate by tests.tls.caSecret",
        ),
    ),
    ("settings.GRPC_SERVER_USE_TLS=true,tests.tls.caKey=", None),
    (
        "settings.GRPC_UDS=/run/grpc.sock",
        Some("gRPC is a unix socket, which no other pod reaches"),
    ),
];

#[test]
fn the_notes_say_whether_helm_test_asks_and_why_not() {
    for (values, why_not) in ASKED {
        let set = format!("--set={values}");
        let notes = notes(&[&set]);
        let pods = rendered(&[&set]).all("Pod").len();
        assert_eq!(pods, usize::from(why_not.is_none()), "{values}");
        let words = if let Some(why_not) = why_not {
            format!("\n\n`helm test` asks nothing here: {why_not}.\n")
        } else {
            let by_tls = values.contains("TLS") || values.contains("tls.enabled");
            let tls = if by_tls { ", by TLS" } else { "" };
            format!("asks it for a decision from within the cluster{tls}.\n")
        };
        assert!(notes.contains(&words), "{values}: {notes}");
    }
}

#[test]
fn every_command_in_the_chart_s_readme_runs() {
    let text = read("helm/tollgate/README.md");
    let blocks = text.split("```sh\n").skip(1);
    let mut count = 0;
    for line in blocks.flat_map(|block| block.split("```").next().unwrap().lines()) {
        let words: Vec<_> = line
            .split(' ')
            .map(|word| word.trim_matches('\''))
            .collect();
        match words[..] {
            // There is no cluster here; rendering takes the same arguments.
            ["helm", "install", ref arguments @ ..] => {
                for version in HELMS {
                    let text = helm(version, &[&["template"], arguments].concat()).unwrap();
                    assert!(text.contains("kind: Deployment"), "{line}");
                    assert!(text.contains("edge.yaml: |"), "{line}");
                }
            }
            ["tollgate", ref arguments @ ..] => {
                let status = Command::new(TOLLGATE).args(arguments).status().unwrap();
                assert!(status.success(), "{line}");
            }
            _ => panic!("no test runs `{line}`"),
        }
        count += 1;
    }
    assert!(count > 0);
}
