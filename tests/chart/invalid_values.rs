//! Invalid values: each is rejected with the name of the value and the allowed ones.
//!
//! What it deliberately does not do: settings (`settings`).

use crate::rendering::{HELMS, helm, read, refusal, rendered};

/// An argument and texts that helm's error must contain.
type InvalidValue = (&'static str, &'static [&'static str]);

/// Values that the schema rejects. The last text is what is allowed.
const INVALID: [InvalidValue; 28] = [
    (
        "--set=adminService.host=127.0.0.1",
        &["/adminService/host", "'0.0.0.0', '::'"],
    ),
    (
        "--set=adminService.token.key=",
        &["/adminService/token/key", "minLength"],
    ),
    (
        "--set=tests.tls.serverName=a b",
        &["/tests/tls/serverName", "'^[A-Za-z0-9.:-]*$'"],
    ),
    (
        "--set=replicaCount=two",
        &["/replicaCount", "got string, want integer"],
    ),
    (
        "--set=replicaCount=-1",
        &["/replicaCount", "minimum: got -1, want 0"],
    ),
    (
        "--set=image.pullPolicy=Sometimes",
        &["/image/pullPolicy", "'Always', 'IfNotPresent', 'Never'"],
    ),
    (
        "--set-json=image.tag=1.10",
        &["/image/tag", "got number, want string"],
    ),
    (
        "--set=image.digest=sha256:abc",
        &["/image/digest", "'^(sha256:[0-9a-f]{64})?$'"],
    ),
    (
        "--set=image.repository=Team/Tollgate",
        &["/image/repository", "'^[a-z0-9]+([-._/:]+[a-z0-9]+)*$'"],
    ),
    (
        "--set=config.reload=restart",
        &["/config/reload", "'watch', 'rollout'"],
    ),
    (
        "--set=xds.server=rules.edge",
        &["/xds/server", "[0-9]{1,5})?$'"],
    ),
    (
        "--set=redis.url=http://cache",
        &["/redis/url", "'^((redis|rediss|valkey|valkeys)"],
    ),
    (
        "--set=tls.enabled=yes please",
        &["/tls/enabled", "got string, want boolean"],
    ),
    (
        "--set=tls.certManager.keyAlgorithm=DSA",
        &["/tls/certManager/keyAlgorithm", "'RSA', 'ECDSA', 'Ed25519'"],
    ),
    (
        "--set=tls.certManager.keySize=1024",
        &["/tls/certManager/keySize", "256, 384, 521, 2048"],
    ),
    (
        "--set=tls.certManager.duration=90d",
        &[
            "/tls/certManager/duration",
            "([0-9]+h)?([0-9]+m)?([0-9]+s)?",
        ],
    ),
    (
        "--set=service.type=ExternalName",
        &["/service/type", "'ClusterIP', 'NodePort', 'LoadBalancer'"],
    ),
    (
        "--set=service.trafficDistribution=Near",
        &["/service/trafficDistribution", "'PreferSameZone'"],
    ),
    (
        "--set=autoscaling.minReplicas=0",
        &["/autoscaling/minReplicas", "minimum: got 0, want 1"],
    ),
    (
        "--set=podDisruptionBudget.maxUnavailable=150%",
        &["/podDisruptionBudget/maxUnavailable", "100%"],
    ),
    (
        "--set=podDisruptionBudget.unhealthyPodEvictionPolicy=Never",
        &[
            "/unhealthyPodEvictionPolicy",
            "'AlwaysAllow', 'IfHealthyBudget'",
        ],
    ),
    (
        "--set=networkPolicy.egress.redisPorts[0]=70000",
        &[
            "/networkPolicy/egress/redisPorts/0",
            "maximum: got 70,000, want 65,535",
        ],
    ),
    (
        "--set=serviceMonitor.interval=soon",
        &["/serviceMonitor/interval", "(ms|s|m|h)"],
    ),
    (
        "--set=readinessProbe.handler=tcp",
        &["/readinessProbe/handler", "'auto', 'grpc', 'httpGet'"],
    ),
    (
        "--set=resources.limits.memory=256MB",
        &["/resources/limits/memory", "[KMGTPE]i)?$'"],
    ),
    (
        "--set=drainDelaySeconds=5s",
        &["/drainDelaySeconds", "got string, want integer"],
    ),
    (
        "--set=commonLabels.team=a b",
        &["/commonLabels/team", "[A-Za-z0-9])?$'"],
    ),
    (
        "--set=tests.descriptor=hello",
        &["/tests/descriptor", "=[^,]*"],
    ),
];

/// Misspelt or misplaced keys.
const UNKNOWN: [InvalidValue; 11] = [
    ("--set=replicas=2", &["'replicas'"]),
    ("--set=image.tga=1.0", &["/image", "'tga'"]),
    ("--set=settings.LOG_LVEL=info", &["/settings", "'LOG_LVEL'"]),
    (
        "--set=livenessProbe.httpGet.path=/",
        &["/livenessProbe", "'httpGet'"],
    ),
    (
        "--set=livenessProbe.handler=grpc",
        &["/livenessProbe", "'handler'"],
    ),
    (
        "--set=extraEnv[0].name=A,extraEnv[0].value=1",
        &["/extraEnv/0/value", "want string"],
    ),
    ("--set=extraArgs[0]=other.yaml", &["/extraArgs/0", "'^--'"]),
    // A value follows `=`; alone it would be a second RULES argument.
    (
        "--set=extraArgs={--near-limit-ratio,0.5}",
        &["/extraArgs/1", "'^--'"],
    ),
    (
        "--set=extraContainers[0].name=tollgate",
        &["/extraContainers/0/name"],
    ),
    (
        r#"--set-json=rules={"a.yaml":{}}"#,
        &["/rules/a.yaml", "domain"],
    ),
    (
        r#"--set-json=rules={"a.yaml":{"domain":"a","descriptors":[{"key":"k","descriptors":[{"value":true}]}]}}"#,
        &[
            "/rules/a.yaml/descriptors/0/descriptors/0/value",
            "want string",
        ],
    ),
];

/// Contradicting values, one case for each guard except those of `settings` and of names.
const CONTRADICTIONS: [(&str, &str); 79] = [
    (
        "snapshot.enabled=true,replicaCount=2",
        "snapshot.enabled keeps the buckets of one pod, and replicaCount is 2; set it to 1, or share limits by redis",
    ),
    (
        "snapshot.enabled=true,autoscaling.enabled=true,autoscaling.maxReplicas=2",
        "snapshot.enabled keeps the buckets of one pod, and autoscaling.enabled is true",
    ),
    (
        "snapshot.enabled=true,keda.enabled=true,keda.maxReplicaCount=2",
        "snapshot.enabled keeps the buckets of one pod, and keda.enabled is true",
    ),
    (
        "snapshot.enabled=true,redis.url=redis://a",
        "snapshot.enabled keeps buckets in memory, and redis keeps them elsewhere; remove one of the two",
    ),
    (
        "snapshot.existingClaim=a",
        "snapshot.existingClaim is given, and snapshot.enabled is false; set it to true",
    ),
    (
        "snapshot.enabled=true,settings.TOLLGATE_SNAPSHOT=/a",
        "settings.TOLLGATE_SNAPSHOT and snapshot both set it; keep one",
    ),
    (
        "rules.a=b,existingConfigMap=mine",
        "rules and existingConfigMap are both given; keep one",
    ),
    (
        "candidate.rules.a=b,candidate.existingConfigMap=mine",
        "candidate.rules and candidate.existingConfigMap are both given; keep one",
    ),
    (
        "rules.a=b,settings.CONFIG_TYPE=GRPC_XDS_SOTW",
        "rules is given, and rules come from an xDS server",
    ),
    (
        "xds.enabled=true,xds.server=a:1,rulesCheck.enabled=true",
        "rulesCheck.enabled is given, and rules come from an xDS server",
    ),
    (
        "xds.enabled=true",
        "xds.enabled needs xds.server, HOST:PORT",
    ),
    (
        "xds.server=a:1",
        "xds.server is given, and xds.enabled is false; set it to true",
    ),
    (
        "xds.enabled=true,xds.server=a:1,xds.tls.existingSecret=a",
        "xds.tls.existingSecret is given, and xds.tls.enabled is false",
    ),
    (
        "xds.enabled=true,xds.server=a:1,xds.tls.enabled=true,xds.tls.existingSecret=a,xds.tls.certKey=",
        "xds.tls.certKey and xds.tls.keyKey belong together",
    ),
    (
        "existingConfigMap=mine,config.reload=rollout",
        "config.reload is rollout, which works with `rules` only",
    ),
    (
        "tests.domain=a",
        "tests.domain and tests.descriptor belong together",
    ),
    (
        "tls.enabled=true",
        "tls.enabled needs a certificate: give tls.existingSecret, or set tls.certManager.enabled",
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,tls.certManager.enabled=true",
        "tls.existingSecret and tls.certManager.enabled are both given; keep one",
    ),
    (
        "tls.existingSecret=a",
        "tls.existingSecret is given, and tls.enabled is false: gRPC would be plain",
    ),
    (
        "tls.clientCA.existingSecret=a",
        "tls.clientCA.existingSecret is given, and tls.enabled is false",
    ),
    (
        "tls.enabled=true,tls.certManager.enabled=true",
        "tls.certManager.enabled needs tls.certManager.issuerRef.name",
    ),
    (
        "tls.enabled=true,tls.certManager.enabled=true,tls.certManager.issuerRef.name=a,tls.certManager.keyAlgorithm=RSA",
        "tls.certManager.keySize is 256; for RSA it must be 2048, 3072, 4096, 8192",
    ),
    (
        "tls.enabled=true,tls.certManager.enabled=true,tls.certManager.issuerRef.name=a,tls.certManager.keyAlgorithm=Ed25519",
        "for Ed25519 it must be null",
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,tls.clientNames={a}",
        "tls.clientNames needs tls.clientCA.existingSecret",
    ),
    (
        "tests.tls.clientSecret=a",
        "tests.tls.clientSecret is given, and gRPC is plain; leave it out, or set tls.enabled to true",
    ),
    (
        "tests.tls.caSecret=a",
        "tests.tls.caSecret is given, and gRPC is plain",
    ),
    (
        "tests.tls.serverName=a",
        "tests.tls.serverName is given, and gRPC is plain",
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,tests.tls.caSecret=a,tests.tls.caKey=",
        "tests.tls.caSecret is given, and tests.tls.caKey is empty",
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,tests.tls.clientSecret=a,tests.tls.keyKey=",
        "tests.tls.clientSecret needs tests.tls.certKey and tests.tls.keyKey",
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,readinessProbe.handler=grpc",
        "readinessProbe.handler is grpc, and Kubernetes' gRPC probe supports neither TLS nor unix sockets",
    ),
    (
        "adminService.enabled=true",
        "adminService.enabled opens the admin port to other pods, so it needs a token or client certificates: give adminService.token.existingSecret, or adminService.tls.clientCA.existingSecret",
    ),
    (
        "adminService.enabled=true,adminService.tls.enabled=true,adminService.tls.existingSecret=a",
        "adminService.enabled opens the admin port to other pods, so it needs a token or client certificates",
    ),
    (
        "adminService.enabled=true,adminService.token.existingSecret=a,adminService.tls.enabled=true",
        "adminService.tls.enabled needs a certificate: give adminService.tls.existingSecret, or set tls.enabled to true",
    ),
    (
        "adminService.enabled=true,adminService.tls.clientCA.existingSecret=a",
        "adminService.tls.clientCA.existingSecret is given, and adminService.tls.enabled is false: the admin port would be plain",
    ),
    (
        "adminService.token.existingSecret=a",
        "adminService.token.existingSecret is given, and adminService.enabled is false; set it to true, or remove adminService.token.existingSecret",
    ),
    (
        "networkPolicy.enabled=true,networkPolicy.ingress.adminFrom[0].podSelector.matchLabels.a=b",
        "networkPolicy.ingress.adminFrom is given, and adminService.enabled is false",
    ),
    (
        "adminService.enabled=true,adminService.token.existingSecret=a,settings.DEBUG_HOST=127.0.0.1",
        "settings.DEBUG_HOST and adminService.host both set it; keep one",
    ),
    (
        "redis.url=redis://:hush@cache",
        "redis.url has a user or a password in it; use redis.username and redis.passwordKey",
    ),
    (
        "redis.url=redis://a,redis.urlKey=a,redis.existingSecret=a",
        "redis.url and redis.urlKey are both given; keep one",
    ),
    (
        "redis.url=redis://a,redis.passwordKey=a",
        "redis.passwordKey is a key of a Secret; give redis.existingSecret",
    ),
    (
        "redis.url=redis://a,redis.existingSecret=a",
        "redis.existingSecret is given without any of its keys",
    ),
    (
        "redis.username=a",
        "redis.username is given, and no Redis: give redis.url or redis.urlKey",
    ),
    (
        "redis.url=redis://a,redis.tls.existingSecret=a",
        "redis.tls.existingSecret is given, and redis.url redis://a is plain; begin it with rediss",
    ),
    (
        "redis.url=rediss://a,redis.tls.existingSecret=a,redis.tls.certKey=a",
        "redis.tls.certKey and redis.tls.keyKey belong together",
    ),
    (
        "redis.url=rediss://a,redis.tls.certKey=a,redis.tls.keyKey=b",
        "redis.tls.certKey is a key of a Secret; give redis.tls.existingSecret",
    ),
    (
        "redis.url=a-{{ .Release.Name }}",
        "redis.url is a template that renders to `a-demo`; it must render to a URL such as redis://HOST:6379",
    ),
    (
        "redis.url=redis://:{{ print `hush@` }}cache",
        "redis.url has a user or a password in it",
    ),
    (
        "redis.url=redis://{{ .Release.Name }},redis.tls.existingSecret=a",
        "redis.tls.existingSecret is given, and redis.url redis://demo is plain",
    ),
    (
        "service.loadBalancerSourceRanges={10.0.0.0/8},service.type=NodePort",
        "service.loadBalancerSourceRanges is given, and service.type is NodePort; set it to LoadBalancer",
    ),
    (
        "service.externalTrafficPolicy=Local",
        "service.externalTrafficPolicy is given, and service.type is ClusterIP, which has no node ports",
    ),
    (
        "service.nodePorts.grpc=30081",
        "service.nodePorts.grpc is given, and service.type is ClusterIP",
    ),
    (
        "service.type=NodePort,service.nodePorts.http=30080,service.exposeHttp=false",
        "service.nodePorts.http is given, and service.exposeHttp is false",
    ),
    (
        "service.type=NodePort,service.nodePorts.http=30080,service.nodePorts.grpc=30080",
        "service.nodePorts.grpc and service.nodePorts.http are both 30080; choose two ports",
    ),
    (
        "service.ipFamilies={IPv6,IPv6}",
        "service.ipFamilies has IPv6 twice; keep one",
    ),
    (
        "service.ipFamilies={IPv6,IPv4},service.ipFamilyPolicy=SingleStack",
        "service.ipFamilies has two families; set service.ipFamilyPolicy to PreferDualStack",
    ),
    (
        "progressDeadlineSeconds=10",
        "progressDeadlineSeconds is 10, and minReadySeconds 10: every rollout would be reported as failed",
    ),
    (
        "extraContainers[0].name=a,initContainers[0].name=b,initContainers[1].name=a",
        "extraContainers[0] and initContainers[1] are both called a",
    ),
    (
        "tls.enabled=true,tls.existingSecret=a,extraVolumeMounts[0].name=a,extraVolumeMounts[0].mountPath=/etc/tollgate/tls/",
        "extraVolumeMounts[0].mountPath is /etc/tollgate/tls/, where the chart mounts its own files",
    ),
    (
        "prometheusRule.additionalGroups[0].name=tollgate-replicas,prometheusRule.additionalGroups[0].rules={}",
        "prometheusRule.additionalGroups[0].name is tollgate-replicas, which the chart already has; choose another",
    ),
    (
        "commonLabels.a b=c",
        "commonLabels has the key `a b`; write NAME or DOMAIN/NAME",
    ),
    ("rules.a b=c", "rules has the key `a b`; write a file name"),
    (
        "autoscaling.enabled=true,autoscaling.maxReplicas=3,keda.enabled=true",
        "autoscaling.enabled and keda.enabled are both true; keep one",
    ),
    (
        "autoscaling.enabled=true",
        "autoscaling.enabled needs autoscaling.maxReplicas",
    ),
    (
        "autoscaling.enabled=true,autoscaling.maxReplicas=1",
        "autoscaling.minReplicas is 2, more than autoscaling.maxReplicas, 1",
    ),
    (
        "autoscaling.enabled=true,autoscaling.maxReplicas=3,autoscaling.targetCPUUtilizationPercentage=null",
        "autoscaling.enabled needs something to measure",
    ),
    (
        "autoscaling.enabled=true,autoscaling.maxReplicas=3,resources.requests=null",
        "autoscaling.targetCPUUtilizationPercentage is a percentage of resources.requests.cpu, which is not given",
    ),
    (
        "keda.enabled=true",
        "keda.enabled needs keda.maxReplicaCount",
    ),
    (
        "keda.enabled=true,keda.maxReplicaCount=1",
        "keda.minReplicaCount is 2, more than keda.maxReplicaCount, 1",
    ),
    (
        "keda.enabled=true,keda.maxReplicaCount=3",
        "keda.enabled needs keda.triggers, at least one",
    ),
    (
        "podDisruptionBudget.minAvailable=1",
        "podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable are both given; Kubernetes takes one",
    ),
    (
        "podDisruptionBudget.maxUnavailable=null",
        "podDisruptionBudget.enabled needs podDisruptionBudget.maxUnavailable or",
    ),
    (
        "rollingUpdate.maxSurge=0",
        "rollingUpdate.maxUnavailable and rollingUpdate.maxSurge are both 0",
    ),
    (
        "serviceMonitor.enabled=true,podMonitor.enabled=true",
        "serviceMonitor.enabled and podMonitor.enabled are both true; keep one",
    ),
    (
        "terminationGracePeriodSeconds=12",
        "terminationGracePeriodSeconds is 12, and a stop may take 12 (preStopSleepSeconds + drainDelaySeconds + drainTimeoutSeconds); raise it, or remove it",
    ),
    (
        "drainDelaySeconds=20,terminationGracePeriodSeconds=25",
        "terminationGracePeriodSeconds is 25, and a stop may take 27",
    ),
    (
        "redis.url=redis://a,settings.TOLLGATE_STORE=redis://b",
        "settings.TOLLGATE_STORE and redis.url both set it; keep one",
    ),
    (
        "extraEnv[0].name=TOLLGATE_CORES,settings.TOLLGATE_CORES=1",
        "extraEnv and settings both have TOLLGATE_CORES; keep one",
    ),
    (
        "redis.url=redis://a,extraArgs={--store-user=b},redis.username=c",
        "extraArgs has --store-user, which is the chart's: `redis.username` sets it",
    ),
    (
        "extraEnv[0].name=GRPC_UDS",
        "extraEnv has GRPC_UDS, which is the chart's: give `settings.GRPC_UDS`, so that the chart sees it",
    ),
];

/// Lists whose items Kubernetes identifies by a name, each with a duplicate, and the error. Helm 4
/// would pass them on, and the API server would reject them.
const DUPLICATES: [(&str, &str, &str); 6] = [
    (
        "extraEnv",
        r#"{"name":"A","value":"1"},{"name":"B","value":"1"},{"name":"A","value":"2"}"#,
        "extraEnv[0] and extraEnv[2] both have name A; keep one",
    ),
    (
        "topologySpreadConstraints",
        r#"{"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","maxSkew":1},{"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","maxSkew":2}"#,
        "topologySpreadConstraints[0] and topologySpreadConstraints[1] both have topologyKey z and whenUnsatisfiable ScheduleAnyway",
    ),
    (
        "extraVolumes",
        r#"{"name":"a","emptyDir":{}},{"name":"a","emptyDir":{}}"#,
        "extraVolumes[0] and extraVolumes[1] both have name a",
    ),
    (
        "extraVolumeMounts",
        r#"{"name":"a","mountPath":"/a"},{"name":"b","mountPath":"/a"}"#,
        "extraVolumeMounts[0] and extraVolumeMounts[1] both have mountPath /a",
    ),
    (
        "hostAliases",
        r#"{"ip":"10.1.2.3","hostnames":["a"]},{"ip":"10.1.2.3","hostnames":["b"]}"#,
        "hostAliases[0] and hostAliases[1] both have ip 10.1.2.3",
    ),
    (
        "extraContainers",
        r#"{"name":"a"},{"name":"a"}"#,
        "extraContainers[0] and extraContainers[1] are both called a",
    ),
];

#[test]
fn duplicate_list_items_are_reported_with_both_positions() {
    for (name, items, named) in DUPLICATES {
        for version in HELMS {
            let said = refusal(version, &[&format!("--set-json={name}=[{items}]")]);
            assert!(said.contains(named), "helm {version}, {name}: {said}");
        }
    }
    // The same key is no duplicate when another field differs.
    let items = r#"[{"topologyKey":"z","whenUnsatisfiable":"ScheduleAnyway","maxSkew":1},{"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","maxSkew":1}]"#;
    rendered(&[&format!("--set-json=topologySpreadConstraints={items}")]);
}

/// Maps with free keys. In Helm 4 the schema would report an invalid key at a path that changes
/// from run to run.
const MAP_KEYS: [&str; 19] = [
    "adminService.annotations",
    "alertsConfigMap.labels",
    "commonLabels",
    "dashboard.annotations",
    "dashboard.labels",
    "deploymentAnnotations",
    "headlessService.annotations",
    "nodeSelector",
    "podAnnotations",
    "podLabels",
    "podMonitor.labels",
    "prometheusRule.labels",
    "resources.limits",
    "resources.requests",
    "rulesCheck.resources.limits",
    "rulesCheck.resources.requests",
    "service.annotations",
    "serviceAccount.annotations",
    "serviceMonitor.labels",
];

#[test]
fn an_invalid_key_is_reported_at_the_path_of_its_map() {
    let long = format!("a/{}", "b".repeat(64));
    let wrong = ["a b", "-a", "a/b/c", &long];
    for (index, path) in MAP_KEYS.iter().enumerate() {
        // One template judges keys for every map: all wrong keys at the first path, then one a
        // path.
        let keys = if index == 0 {
            &wrong[..]
        } else {
            &wrong[index % wrong.len()..][..1]
        };
        for key in keys {
            let value = if path.contains("resources") { "1" } else { "c" };
            let map = serde_json::json!({ *key: value });
            let said = refusal(HELMS[index % 2], &[&format!("--set-json={path}={map}")]);
            let named = format!("{path} has the key `{key}`; write NAME or DOMAIN/NAME");
            assert!(said.contains(&named), "{said}");
        }
    }
    for version in HELMS {
        for path in ["rules", "candidate.rules"] {
            let files = format!(r#"--set-json={path}={{"..data":"domain: a"}}"#);
            let said = refusal(version, &[&files]);
            let named = format!("{path} has the key `..data`; write a file name");
            assert!(said.contains(&named), "{said}");
        }
    }
    let schema = read("helm/tollgate/values.schema.json");
    assert!(!schema.contains("\"propertyNames\""));
    // Every map with free keys is listed above.
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let mut free = Vec::new();
    keyed("", &schema, &schema, &mut free);
    free.sort();
    let mut known: Vec<_> = MAP_KEYS.iter().map(|&path| path.to_owned()).collect();
    known.extend(["rules", "candidate.rules"].map(str::to_owned));
    known.sort();
    assert_eq!(free, known);
}

/// Paths of a schema's maps with free keys.
fn keyed(
    path: &str,
    schema: &serde_json::Value,
    root: &serde_json::Value,
    found: &mut Vec<String>,
) {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = root.pointer(name.trim_start_matches('#')).expect(name);
        return keyed(path, schema, root, found);
    }
    if schema["additionalProperties"].is_object() {
        found.push(path.to_owned());
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        keyed(&format!("{path}{dot}{name}"), schema, root, found);
    }
}

/// Texts of all guards, up to the first placeholder.
pub(crate) fn guards() -> Vec<String> {
    let text = read("helm/tollgate/templates/_guards.tpl");
    let guards = text.split("{{- fail ").skip(1).map(|rest| {
        let text = rest.split('"').nth(1).expect("a text");
        let parts = text.split(['%', '`']);
        let parts = parts.map(|part| part.trim_start_matches(['s', 'd']));
        parts
            .max_by_key(|part| part.len())
            .expect("a part")
            .to_owned()
    });
    guards.collect()
}

#[test]
fn an_invalid_value_is_reported_with_the_allowed_ones() {
    let all = INVALID.iter().chain(&UNKNOWN);
    for (index, (set, named)) in all.enumerate() {
        let version = HELMS[index % 2];
        let said = refusal(version, &[set]);
        assert!(said.contains("schema"), "helm {version}, {set}: {said}");
        for named in *named {
            assert!(
                said.contains(named),
                "helm {version}, {set}: no {named} in: {said}"
            );
        }
    }
}

#[test]
fn contradicting_values_are_rejected_with_advice() {
    let mut met = Vec::new();
    for (index, (set, named)) in CONTRADICTIONS.iter().enumerate() {
        let version = HELMS[index % 2];
        let said = refusal(version, &[&format!("--set={set}")]);
        assert!(said.contains(named), "helm {version}, {set}: {said}");
        assert!(!said.contains("hush"), "{said}");
        met.push(said);
    }
    for (name, items, _) in DUPLICATES {
        met.push(refusal(
            HELMS[0],
            &[&format!("--set-json={name}=[{items}]")],
        ));
    }
    for release in ["1st", "a.b"] {
        let said = helm(HELMS[0], &["template", release, "helm/tollgate"]).unwrap_err();
        assert!(said.contains("set fullnameOverride"), "{said}");
        met.push(said);
    }
    for guard in guards() {
        assert!(
            met.iter().any(|said| said.contains(&guard)),
            "nothing meets the guard `{guard}`"
        );
    }
}
