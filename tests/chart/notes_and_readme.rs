//! Notes and README of the chart, compared with what they describe.
//!
//! What it deliberately does not do: check the wording.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::chart::rendering::{
    EXAMPLE, HELMS, OFF, ON, Rendered, chart, helm, read, rendered, template, text_cases, texts,
    yaml,
};

/// Notes that `helm install` prints. Helm renders notes only with a cluster, so here they are a
/// template of a copy of the chart.
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
        let (_, notes) = text.split_once("\nnotes: ").expect(&text);
        serde_json::from_str::<String>(notes.trim()).expect(notes)
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

/// The `clusters:` section in the notes, with its indentation.
pub(crate) fn cluster(notes: &str) -> String {
    let lines = notes.lines().skip_while(|line| *line != "  clusters:");
    let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "{notes}");
    lines.join("\n") + "\n"
}

#[test]
fn the_notes_name_the_installed_objects() {
    for (values, address) in [
        (EXAMPLE, "demo-tollgate-headless"),
        (ON, "edge-limits-headless"),
        // No other template is left in the copy.
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
        let http = services.iter().find(|service| {
            let ports = service["spec"]["ports"].as_array().expect("ports");
            ports.iter().any(|port| port["name"] == "http")
        });
        let http = http.expect("a Service for HTTP")["metadata"]["name"].as_str();
        let http = format!("http://{}.prod:8080/metrics", http.expect("a name"));
        assert!(notes.contains(&http), "{http}");
        assert!(notes.contains("gRPC keeps one connection for all of its calls"));
        assert_eq!(notes.contains("`helm test demo -n prod`"), values != OFF);
    }
}

#[test]
fn the_notes_say_what_the_table_says() {
    for (line, texts) in text_cases("notes.txt") {
        let notes = notes(&[&line]);
        for text in texts {
            let (text, expected) = match text.strip_prefix("no ") {
                Some(text) => (text, false),
                None => (&*text, true),
            };
            let text = text.replace("\\n", "\n");
            assert_eq!(notes.contains(&text), expected, "{line}: {text}: {notes}");
        }
        let no_pod = rendered(&[&line]).all("Pod").is_empty();
        let off = line.contains("everything-off");
        let said = notes.contains("`helm test` creates no pod: ");
        assert_eq!(no_pod, said || off, "{line}: {notes}");
    }
}

/// The command of the notes names the admin Service, and files that are mounted.
#[test]
fn the_notes_name_a_command_that_finds_every_pod() {
    for (values, flags) in [
        ("production", &["--cacert ", "--admin-token-file "][..]),
        ("cert-manager", &["--cacert "]),
    ] {
        let values = format!("--values=helm/tollgate/ci/{values}-values.yaml");
        let rendered = rendered(&[&values]);
        let notes = notes(&[&values]);
        let services = rendered.all("Service").into_iter();
        let mut names = services.filter_map(|service| service["metadata"]["name"].as_str());
        let name = names.find(|name| name.ends_with("-admin")).unwrap();
        let address = format!("tollgate top --admin https://{name}.prod.svc:6070");
        let (_, command) = notes.split_once(&address).expect(&notes);
        let (command, _) = command.split_once("\n\n").unwrap();
        let mounts = texts(&rendered.container()["volumeMounts"], "mountPath");
        for flag in flags {
            let (_, file) = command.split_once(flag).expect(command);
            let (folder, _) = file
                .split_whitespace()
                .next()
                .unwrap()
                .rsplit_once('/')
                .unwrap();
            assert!(mounts.contains(&folder), "{file}: {mounts:?}");
        }
        assert!(!notes.contains("WARNING: the admin port"), "{notes}");
        assert!(!notes.contains("WARNING: valueHashKey"), "{notes}");
    }
}

/// Longest rollout of a render: number of steps, and seconds for each.
fn rollout(rendered: &Rendered) -> (u64, u64) {
    let spec = &rendered.only("Deployment")["spec"];
    let replicas = spec["replicas"].as_u64().expect("replicas");
    let rolling = &spec["strategy"]["rollingUpdate"];
    let count = |value: &Value, up: u64| match value.as_str() {
        Some(share) => {
            let share: u64 = share.trim_end_matches('%').parse().expect("a share");
            (share * replicas + up) / 100
        }
        None => value.as_u64().expect("a count"),
    };
    // Kubernetes rounds maxSurge up and maxUnavailable down.
    let at_once = count(&rolling["maxSurge"], 99) + count(&rolling["maxUnavailable"], 0);
    let seconds = |probe: &Value, field: &str| probe[field].as_u64().unwrap_or(0);
    let startup = &rendered.container()["startupProbe"];
    let to_start = seconds(startup, "initialDelaySeconds")
        + seconds(startup, "periodSeconds") * seconds(startup, "failureThreshold");
    let to_be_ready = seconds(&rendered.container()["readinessProbe"], "periodSeconds");
    let settling = spec["minReadySeconds"].as_u64().expect("minReadySeconds");
    (
        replicas.div_ceil(at_once),
        to_start + to_be_ready + settling,
    )
}

/// Helm's default timeout, from its own help.
fn patience(version: &str) -> u64 {
    let help = helm(version, &["upgrade", "--help"]).expect("helm's help");
    let line = help
        .lines()
        .find(|line| line.contains("--timeout duration"));
    let (_, default) = line
        .expect("a timeout")
        .split_once("(default ")
        .expect("its default");
    assert!(default.starts_with("5m0s"), "{default}");
    300
}

/// The README's table of rollouts, computed from the renders of its rows, and the notes that warn.
#[test]
fn a_rollout_takes_the_documented_time_and_fits_helms_default_timeout() {
    let page = read("helm/tollgate/README.md");
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| `replicaCount` |"));
    let rows: Vec<Vec<_>> = rows
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 5, "{rows:?}");
    let patience = HELMS.map(patience)[0];
    for row in rows {
        let set = format!(
            "--set=replicaCount={},rollingUpdate.maxSurge={}",
            row[0], row[1]
        );
        let (steps, step) = rollout(&rendered(&[&set]));
        let seconds = steps * step;
        assert_eq!(
            row[2..4],
            [steps.to_string(), format!("{seconds} s")],
            "{row:?}"
        );
        let notes = notes(&[&set]);
        let warning = format!("takes {steps} steps of at most {step} s, {seconds} s in all");
        if seconds <= patience {
            assert_eq!(row[4], "enough", "{row:?}");
            assert!(!notes.contains("steps of at most"), "{row:?}: {notes}");
        } else {
            assert_eq!(row[4], format!("`--timeout={seconds}s`"), "{row:?}");
            assert!(notes.contains(&warning), "{row:?}: {notes}");
            assert!(
                notes.contains(&format!("add --timeout={seconds}s")),
                "{notes}"
            );
        }
    }
    // A percentage of the pods takes at most four steps, whatever their number.
    for replicas in [1, 2, 3, 4, 5, 7, 8, 9, 24, 25, 99, 1000] {
        let (steps, step) = rollout(&rendered(&[&format!("--set=replicaCount={replicas}")]));
        assert!(
            steps <= 4 && steps * step <= patience,
            "{replicas}: {steps} × {step} s"
        );
    }
}

#[test]
fn every_command_of_the_charts_readme_runs() {
    let text = read("helm/tollgate/README.md");
    let blocks = text.split("```sh\n").skip(1);
    // The command that shows why rules were rejected, which the notes have as well.
    assert!(text.contains("\nkubectl logs job/"));
    for line in blocks.flat_map(|block| block.split("```").next().unwrap().lines()) {
        let words: Vec<_> = line
            .split(' ')
            .map(|word| word.trim_matches('\''))
            .collect();
        match words[..] {
            // There is no cluster here, so the command renders with the same arguments.
            ["helm", "install", ref arguments @ ..] => {
                for version in HELMS {
                    let text = helm(version, &[&["template"], arguments].concat()).unwrap();
                    assert!(text.contains("kind: Deployment"), "{line}");
                    assert!(text.contains("edge.yaml: |"), "{line}");
                }
            }
            // These need a cluster; `tests/kubernetes` runs them. Here they must name rendered
            // objects.
            ["helm", "upgrade", "limits", ref arguments @ ..] => {
                let known = ["--reuse-values", "--server-side=true"];
                let arguments = arguments.iter().filter(|word| !known.contains(word));
                let arguments: Vec<_> = arguments.copied().collect();
                let all = [&["template", "limits"], &arguments[..]].concat();
                let text = helm(HELMS[1], &all).unwrap();
                assert!(text.contains("kind: HorizontalPodAutoscaler"), "{line}");
            }
            ["kubectl", "logs", job] => {
                let all = [
                    "template",
                    "limits",
                    "helm/tollgate",
                    "--set=rulesCheck.enabled=true",
                ];
                let objects = Rendered(yaml(&helm(HELMS[1], &all).unwrap()));
                let name = objects.only("Job")["metadata"]["name"].as_str().unwrap();
                assert_eq!(job, format!("job/{name}"));
            }
            ["kubectl", "port-forward", deployment, "6070"] => {
                let all = ["template", "limits", "helm/tollgate"];
                let objects = Rendered(yaml(&helm(HELMS[1], &all).unwrap()));
                let name = &objects.only("Deployment")["metadata"]["name"];
                assert_eq!(deployment, format!("deployment/{}", name.as_str().unwrap()));
            }
            [
                "kubectl",
                "apply",
                "--server-side",
                "--field-manager=autoscaler",
                "--filename",
                file,
            ] => {
                let (_, block) = text.split_once(&format!("```yaml\n# {file}\n")).unwrap();
                let given = &yaml(block.split("```").next().unwrap())[0];
                let all = [
                    "template",
                    "limits",
                    "helm/tollgate",
                    "--set=replicaCount=5",
                ];
                let objects = Rendered(yaml(&helm(HELMS[1], &all).unwrap()));
                let rendered = objects.only("Deployment");
                for path in ["/apiVersion", "/kind", "/metadata/name", "/spec/replicas"] {
                    assert_eq!(given.pointer(path), rendered.pointer(path), "{path}");
                }
            }
            ["tollgate", ref arguments @ ..] => {
                let status = Command::new(tollgate_binary())
                    .args(arguments)
                    .status()
                    .unwrap();
                assert!(status.success(), "{line}");
            }
            _ => panic!("no test runs `{line}`"),
        }
    }
}
