{{- /*
Rejects contradictory values before an installation, each with a hint.

What it deliberately does not do: check types and spelling (values.schema.json), or rules (`tollgate check`).
*/ -}}

{{- define "tollgate.guards" -}}
{{- include "tollgate.guardNames" . -}}
{{- include "tollgate.guardKeys" . -}}
{{- include "tollgate.guardRules" . -}}
{{- include "tollgate.guardTls" . -}}
{{- include "tollgate.guardAdmin" . -}}
{{- include "tollgate.guardRedis" . -}}
{{- include "tollgate.guardSnapshot" . -}}
{{- include "tollgate.guardReplicas" . -}}
{{- include "tollgate.guardServices" . -}}
{{- include "tollgate.guardPods" . -}}
{{- include "tollgate.guardTwice" . -}}
{{- include "tollgate.guardSettings" . -}}
{{- end -}}

{{- define "tollgate.guardNames" -}}
{{- $fullname := include "tollgate.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "%s cannot be the name of a Service: letters, digits and dashes, a letter first; set fullnameOverride" $fullname) -}}
{{- end -}}
{{- end -}}

{{- /* Keys of maps with free keys. Not in the schema, because Helm 4 reports a wrong key at a random path. */ -}}
{{- define "tollgate.guardKeys" -}}
{{- $all := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "podAnnotations" .Values.podAnnotations -}}
{{- $_ := set $all "deploymentAnnotations" .Values.deploymentAnnotations -}}
{{- $_ := set $all "nodeSelector" .Values.nodeSelector -}}
{{- range $block := list "serviceMonitor" "podMonitor" "prometheusRule" "alertsConfigMap" "dashboard" -}}
{{- $_ := set $all (printf "%s.labels" $block) (get $.Values $block).labels -}}
{{- end -}}
{{- range $block := list "service" "headlessService" "adminService" "dashboard" "serviceAccount" -}}
{{- $_ := set $all (printf "%s.annotations" $block) (get $.Values $block).annotations -}}
{{- end -}}
{{- range $path, $resources := dict "resources" .Values.resources "rulesCheck.resources" .Values.rulesCheck.resources -}}
{{- range $kind := list "requests" "limits" -}}
{{- $_ := set $all (printf "%s.%s" $path $kind) (get ($resources | default dict) $kind | default dict) -}}
{{- end -}}
{{- end -}}
{{- range $path, $map := $all -}}
{{- range $key, $_ := $map -}}
{{- $parts := splitList "/" $key -}}
{{- $prefix := ternary (first $parts) "" (gt (len $parts) 1) -}}
{{- if or (not (regexMatch "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$" $key)) (gt (len $prefix) 253) (gt (len (last $parts)) 63) -}}
{{- fail (printf "%s has the key `%s`; write NAME or DOMAIN/NAME: in NAME at most 63 letters, digits, dashes, underscores and dots, a letter or a digit first and last" $path $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $path, $files := dict "rules" .Values.rules "candidate.rules" .Values.candidate.rules -}}
{{- range $key, $_ := $files -}}
{{- if or (not (regexMatch "^[A-Za-z0-9_-][-A-Za-z0-9_.]*$" $key)) (gt (len $key) 253) -}}
{{- fail (printf "%s has the key `%s`; write a file name: at most 253 letters, digits, dashes, underscores and dots, no dot first" $path $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardRules" -}}
{{- with .Values -}}
{{- if and .rules .existingConfigMap -}}
{{- fail "rules and existingConfigMap are both given; keep one: only one can be served" -}}
{{- end -}}
{{- if and .candidate.rules .candidate.existingConfigMap -}}
{{- fail "candidate.rules and candidate.existingConfigMap are both given; keep one: only one can be tried" -}}
{{- end -}}
{{- $byXds := include "tollgate.byXds" $ -}}
{{- range $name, $given := dict "rules" .rules "existingConfigMap" .existingConfigMap "rulesCheck.enabled" .rulesCheck.enabled -}}
{{- if and $given $byXds -}}
{{- fail (printf "%s is given, and rules come from an xDS server; keep one" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .xds.enabled (not .xds.server) -}}
{{- fail "xds.enabled needs xds.server, HOST:PORT" -}}
{{- end -}}
{{- range $name, $given := dict "server" .xds.server "nodeId" .xds.nodeId "tls.enabled" .xds.tls.enabled -}}
{{- if and $given (not $.Values.xds.enabled) -}}
{{- fail (printf "xds.%s is given, and xds.enabled is false; set it to true, or remove xds.%s" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if and .xds.tls.existingSecret (not .xds.tls.enabled) -}}
{{- fail "xds.tls.existingSecret is given, and xds.tls.enabled is false: the connection would be plain; set it to true" -}}
{{- end -}}
{{- if and .xds.tls.existingSecret (ne (empty .xds.tls.certKey) (empty .xds.tls.keyKey)) -}}
{{- fail "xds.tls.certKey and xds.tls.keyKey belong together; give both, or neither" -}}
{{- end -}}
{{- if and (eq .config.reload "rollout") (or .existingConfigMap $byXds) -}}
{{- fail "config.reload is rollout, which works with `rules` only, because the chart does not see other rules change; set it to watch" -}}
{{- end -}}
{{- if ne (empty .tests.domain) (empty .tests.descriptor) -}}
{{- fail "tests.domain and tests.descriptor belong together; give both, or neither" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardTls" -}}
{{- with .Values.tls -}}
{{- if and .enabled (not .existingSecret) (not .certManager.enabled) -}}
{{- fail "tls.enabled needs a certificate: give tls.existingSecret, or set tls.certManager.enabled to true" -}}
{{- end -}}
{{- if and .existingSecret .certManager.enabled -}}
{{- fail "tls.existingSecret and tls.certManager.enabled are both given; keep one: cert-manager would overwrite your Secret" -}}
{{- end -}}
{{- range $name, $given := dict "existingSecret" .existingSecret "certManager.enabled" .certManager.enabled "clientCA.existingSecret" .clientCA.existingSecret "clientNames" .clientNames -}}
{{- if and $given (not $.Values.tls.enabled) -}}
{{- fail (printf "tls.%s is given, and tls.enabled is false: gRPC would be plain; set it to true" $name) -}}
{{- end -}}
{{- end -}}
{{- if .certManager.enabled -}}
{{- if not .certManager.issuerRef.name -}}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef.name, the name of the issuer" -}}
{{- end -}}
{{- $sizes := dict "ECDSA" (list 256 384 521) "RSA" (list 2048 3072 4096 8192) "Ed25519" (list) -}}
{{- $allowed := get $sizes .certManager.keyAlgorithm -}}
{{- with .certManager.keySize -}}
{{- if not (has (int .) $allowed) -}}
{{- fail (printf "tls.certManager.keySize is %d; for %s it must be %s" (int .) $.Values.tls.certManager.keyAlgorithm (join ", " $allowed | default "null")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .clientNames (not .clientCA.existingSecret) -}}
{{- fail "tls.clientNames needs tls.clientCA.existingSecret: without it no client sends a certificate" -}}
{{- end -}}
{{- end -}}
{{- with .Values.tests.tls -}}
{{- range $name, $given := dict "caSecret" .caSecret "clientSecret" .clientSecret "serverName" .serverName -}}
{{- if and $given (not (include "tollgate.grpcIsTls" $)) -}}
{{- fail (printf "tests.tls.%s is given, and gRPC is plain; leave it out, or set tls.enabled to true" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .caSecret (not .caKey) -}}
{{- fail "tests.tls.caSecret is given, and tests.tls.caKey is empty: the system roots of the image would be used; keep one" -}}
{{- end -}}
{{- if and .clientSecret (not (and .certKey .keyKey)) -}}
{{- fail "tests.tls.clientSecret needs tests.tls.certKey and tests.tls.keyKey, the keys in that Secret" -}}
{{- end -}}
{{- end -}}
{{- if eq ((.Values.readinessProbe).handler | default "auto") "grpc" -}}
{{- if or (include "tollgate.grpcIsTls" .) .Values.settings.GRPC_UDS -}}
{{- fail "readinessProbe.handler is grpc, and Kubernetes' gRPC probe supports neither TLS nor unix sockets; set it to auto or httpGet" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardAdmin" -}}
{{- with .Values.adminService -}}
{{- if .enabled -}}
{{- if and (not (include "tollgate.adminHasToken" $)) (not (include "tollgate.adminClientsAreKnown" $)) -}}
{{- fail "adminService.enabled opens the admin port to other pods, so it needs a token or client certificates: give adminService.token.existingSecret, or adminService.tls.clientCA.existingSecret" -}}
{{- end -}}
{{- if and .tls.enabled (not (include "tollgate.adminTlsSecretName" $)) -}}
{{- fail "adminService.tls.enabled needs a certificate: give adminService.tls.existingSecret, or set tls.enabled to true to use that of gRPC" -}}
{{- end -}}
{{- range $name, $given := dict "existingSecret" .tls.existingSecret "clientCA.existingSecret" .tls.clientCA.existingSecret -}}
{{- if and $given (not $.Values.adminService.tls.enabled) -}}
{{- fail (printf "adminService.tls.%s is given, and adminService.tls.enabled is false: the admin port would be plain; set it to true" $name) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- range $name, $given := dict "token.existingSecret" .token.existingSecret "tls.enabled" .tls.enabled "tls.existingSecret" .tls.existingSecret "tls.clientCA.existingSecret" .tls.clientCA.existingSecret -}}
{{- if $given -}}
{{- fail (printf "adminService.%s is given, and adminService.enabled is false; set it to true, or remove adminService.%s" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if $.Values.networkPolicy.ingress.adminFrom -}}
{{- fail "networkPolicy.ingress.adminFrom is given, and adminService.enabled is false: the admin port listens on the pod's loopback; set it to true, or remove adminFrom" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardRedis" -}}
{{- $url := include "tollgate.redisUrl" . -}}
{{- with .Values.redis -}}
{{- if contains "@" $url -}}
{{- fail "redis.url has a user or a password in it; use redis.username and redis.passwordKey instead" -}}
{{- end -}}
{{- if and .url (not (regexMatch "^(redis|rediss|valkey|valkeys)(\\+(unix|sentinel|cluster))?://\\S+$" $url)) -}}
{{- fail (printf "redis.url is a template that renders to `%s`; it must render to a URL such as redis://HOST:6379" $url) -}}
{{- end -}}
{{- if and .url .urlKey -}}
{{- fail "redis.url and redis.urlKey are both given; keep one" -}}
{{- end -}}
{{- range $name := list "urlKey" "passwordKey" "hashKeyKey" -}}
{{- if and (get $.Values.redis $name) (not $.Values.redis.existingSecret) -}}
{{- fail (printf "redis.%s is a key of a Secret; give redis.existingSecret, its name" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .existingSecret (not (or .urlKey .passwordKey .hashKeyKey)) -}}
{{- fail "redis.existingSecret is given without any of its keys; give redis.urlKey, redis.passwordKey or redis.hashKeyKey" -}}
{{- end -}}
{{- if not (include "tollgate.shared" $) -}}
{{- range $name, $given := dict "existingSecret" .existingSecret "username" .username "tls.existingSecret" .tls.existingSecret -}}
{{- if $given -}}
{{- fail (printf "redis.%s is given, and no Redis: give redis.url or redis.urlKey" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .tls.existingSecret .url (not (regexMatch "^(rediss|valkeys)[+:]" $url)) -}}
{{- fail (printf "redis.tls.existingSecret is given, and redis.url %s is plain; begin it with rediss" $url) -}}
{{- end -}}
{{- if ne (empty .tls.certKey) (empty .tls.keyKey) -}}
{{- fail "redis.tls.certKey and redis.tls.keyKey belong together; give both, or neither" -}}
{{- end -}}
{{- if and .tls.certKey (not .tls.existingSecret) -}}
{{- fail "redis.tls.certKey is a key of a Secret; give redis.tls.existingSecret, its name" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardSnapshot" -}}
{{- with .Values -}}
{{- if .snapshot.enabled -}}
{{- if gt (int .replicaCount) 1 -}}
{{- fail (printf "snapshot.enabled keeps the buckets of one pod, and replicaCount is %d; set it to 1, or share limits by redis" (int .replicaCount)) -}}
{{- end -}}
{{- range $name, $given := dict "autoscaling.enabled" .autoscaling.enabled "keda.enabled" .keda.enabled -}}
{{- if $given -}}
{{- fail (printf "snapshot.enabled keeps the buckets of one pod, and %s is true; set one of the two to false, or share limits by redis" $name) -}}
{{- end -}}
{{- end -}}
{{- if include "tollgate.shared" $ -}}
{{- fail "snapshot.enabled keeps buckets in memory, and redis keeps them elsewhere; remove one of the two" -}}
{{- end -}}
{{- else if .snapshot.existingClaim -}}
{{- fail "snapshot.existingClaim is given, and snapshot.enabled is false; set it to true, or remove snapshot.existingClaim" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardReplicas" -}}
{{- with .Values -}}
{{- if and .autoscaling.enabled .keda.enabled -}}
{{- fail "autoscaling.enabled and keda.enabled are both true; keep one: both would set the same replicas" -}}
{{- end -}}
{{- if .autoscaling.enabled -}}
{{- if kindIs "invalid" .autoscaling.maxReplicas -}}
{{- fail "autoscaling.enabled needs autoscaling.maxReplicas, the maximum number of pods" -}}
{{- end -}}
{{- if gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d, more than autoscaling.maxReplicas, %d" (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if not (or .autoscaling.targetCPUUtilizationPercentage .autoscaling.targetMemoryUtilizationPercentage .autoscaling.metrics) -}}
{{- fail "autoscaling.enabled needs something to measure: targetCPUUtilizationPercentage, targetMemoryUtilizationPercentage or metrics" -}}
{{- end -}}
{{- range $name, $resource := dict "targetCPUUtilizationPercentage" "cpu" "targetMemoryUtilizationPercentage" "memory" -}}
{{- $given := or (get ($.Values.resources.requests | default dict) $resource) (get ($.Values.resources.limits | default dict) $resource) -}}
{{- if and (get $.Values.autoscaling $name) (not $given) -}}
{{- fail (printf "autoscaling.%s is a percentage of resources.requests.%s, which is not given" $name $resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .keda.enabled -}}
{{- if kindIs "invalid" .keda.maxReplicaCount -}}
{{- fail "keda.enabled needs keda.maxReplicaCount, the maximum number of pods" -}}
{{- end -}}
{{- if gt (int .keda.minReplicaCount) (int .keda.maxReplicaCount) -}}
{{- fail (printf "keda.minReplicaCount is %d, more than keda.maxReplicaCount, %d" (int .keda.minReplicaCount) (int .keda.maxReplicaCount)) -}}
{{- end -}}
{{- if not .keda.triggers -}}
{{- fail "keda.enabled needs keda.triggers, at least one" -}}
{{- end -}}
{{- end -}}
{{- with .podDisruptionBudget -}}
{{- $missing := kindIs "invalid" .maxUnavailable -}}
{{- $left := kindIs "invalid" .minAvailable -}}
{{- if and .enabled (not $missing) (not $left) -}}
{{- fail "podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable are both given; Kubernetes takes one: set the other to null" -}}
{{- end -}}
{{- if and .enabled $missing $left -}}
{{- fail "podDisruptionBudget.enabled needs podDisruptionBudget.maxUnavailable or podDisruptionBudget.minAvailable" -}}
{{- end -}}
{{- end -}}
{{- $none := list "0" "0%" "00%" -}}
{{- if and (has (toString .rollingUpdate.maxUnavailable) $none) (has (toString .rollingUpdate.maxSurge) $none) -}}
{{- fail "rollingUpdate.maxUnavailable and rollingUpdate.maxSurge are both 0, so no pod could ever be replaced; raise one of them" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardServices" -}}
{{- with .Values.service -}}
{{- if and .loadBalancerSourceRanges (ne .type "LoadBalancer") -}}
{{- fail (printf "service.loadBalancerSourceRanges is given, and service.type is %s; set it to LoadBalancer" .type) -}}
{{- end -}}
{{- range $name, $given := dict "externalTrafficPolicy" .externalTrafficPolicy "nodePorts.grpc" .nodePorts.grpc "nodePorts.http" .nodePorts.http -}}
{{- if and $given (eq $.Values.service.type "ClusterIP") -}}
{{- fail (printf "service.%s is given, and service.type is ClusterIP, which has no node ports; set it to NodePort or LoadBalancer" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .nodePorts.http (not .exposeHttp) -}}
{{- fail "service.nodePorts.http is given, and service.exposeHttp is false; set it to true, or remove the port" -}}
{{- end -}}
{{- if and .nodePorts.http (eq (int .nodePorts.http) (int .nodePorts.grpc)) -}}
{{- fail (printf "service.nodePorts.grpc and service.nodePorts.http are both %d; choose two ports" (int .nodePorts.http)) -}}
{{- end -}}
{{- if ne (len .ipFamilies) (len (uniq .ipFamilies)) -}}
{{- fail (printf "service.ipFamilies has %s twice; keep one" (first .ipFamilies)) -}}
{{- end -}}
{{- if and (gt (len .ipFamilies) 1) (not (has .ipFamilyPolicy (list "PreferDualStack" "RequireDualStack"))) -}}
{{- fail "service.ipFamilies has two families; set service.ipFamilyPolicy to PreferDualStack or RequireDualStack" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.guardPods" -}}
{{- if le (int .Values.progressDeadlineSeconds) (int .Values.minReadySeconds) -}}
{{- fail (printf "progressDeadlineSeconds is %d, and minReadySeconds %d: every rollout would be reported as failed; raise it" (int .Values.progressDeadlineSeconds) (int .Values.minReadySeconds)) -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled are both true; keep one: every pod would be scraped twice" -}}
{{- end -}}
{{- $grace := int (include "tollgate.graceSeconds" .) -}}
{{- $stop := int (include "tollgate.stopSeconds" .) -}}
{{- if le $grace $stop -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, and a stop may take %d (preStopSleepSeconds + drainDelaySeconds + drainTimeoutSeconds); raise it, or remove it" $grace $stop) -}}
{{- end -}}
{{- end -}}

{{- /*
Items that Kubernetes identifies by a name, given twice. A server-side apply (Helm 4) rejects them, and an update by Helm 3
silently keeps one. uniqueItems of the schema compares whole items.
*/ -}}
{{- define "tollgate.guardTwice" -}}
{{- $lists := dict "extraEnv" (list "name") "extraVolumes" (list "name") "extraVolumeMounts" (list "mountPath") -}}
{{- $_ := set $lists "hostAliases" (list "ip") -}}
{{- $_ := set $lists "topologySpreadConstraints" (list "topologyKey" "whenUnsatisfiable") -}}
{{- range $path, $keys := $lists -}}
{{- $seen := dict -}}
{{- range $index, $item := get $.Values $path -}}
{{- $texts := list -}}
{{- range $keys }}{{ $texts = append $texts (printf "%s %s" . (get $item .)) }}{{ end -}}
{{- $same := join " and " $texts -}}
{{- if hasKey $seen $same -}}
{{- fail (printf "%s[%d] and %s[%d] both have %s; keep one" $path (int (get $seen $same)) $path $index $same) -}}
{{- end -}}
{{- $_ := set $seen $same $index -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $path := list "extraContainers" "initContainers" -}}
{{- range $index, $item := get $.Values $path -}}
{{- $at := printf "%s[%d]" $path $index -}}
{{- with get $seen $item.name -}}
{{- fail (printf "%s and %s are both called %s; containers of a pod need a name each" . $at $item.name) -}}
{{- end -}}
{{- $_ := set $seen $item.name $at -}}
{{- end -}}
{{- end -}}
{{- $mounted := dict "/etc/tollgate/rules" "rules" "/etc/tollgate/candidate" "candidate" -}}
{{- if .Values.snapshot.enabled -}}
{{- $_ := set $mounted "/var/lib/tollgate" "snapshot" -}}
{{- end -}}
{{- range $name, $_ := include "tollgate.secrets" . | fromYaml -}}
{{- $_ := set $mounted (printf "/etc/tollgate/%s" $name) $name -}}
{{- end -}}
{{- range $index, $mount := .Values.extraVolumeMounts -}}
{{- if hasKey $mounted ($mount.mountPath | trimSuffix "/") -}}
{{- fail (printf "extraVolumeMounts[%d].mountPath is %s, where the chart mounts its own files; choose another" $index $mount.mountPath) -}}
{{- end -}}
{{- end -}}
{{- $groups := dict -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups }}{{ $_ := set $groups .name "the chart" }}{{ end -}}
{{- range $index, $group := .Values.prometheusRule.additionalGroups -}}
{{- with get $groups $group.name -}}
{{- fail (printf "prometheusRule.additionalGroups[%d].name is %s, which %s already has; choose another" $index $group.name .) -}}
{{- end -}}
{{- $_ := set $groups $group.name (printf "prometheusRule.additionalGroups[%d]" $index) -}}
{{- end -}}
{{- end -}}

{{- /* A setting's flag is its variable in lower case. */ -}}
{{- define "tollgate.guardSettings" -}}
{{- $ports := "8081 (gRPC) and 8080 (HTTP) are fixed in the pod" -}}
{{- $rules := "give `rules` or `existingConfigMap`" -}}
{{- $seen := "give `settings.%s`, so that the chart sees it" -}}
{{- $owned := dict
  "TOLLGATE_RULES" $rules
  "RUNTIME_ROOT" $rules
  "RUNTIME_SUBDIRECTORY" $rules
  "RUNTIME_APPDIRECTORY" $rules
  "RUNTIME_IGNOREDOTFILES" $rules
  "TOLLGATE_DRAIN_DELAY" "give `drainDelaySeconds`"
  "TOLLGATE_DRAIN_TIMEOUT" "give `drainTimeoutSeconds`"
  "GRPC_PORT" $ports
  "PORT" $ports
-}}
{{- range list "GRPC_SERVER_USE_TLS" "GRPC_UDS" "CONFIG_TYPE" "TOLLGATE_STORE" -}}
{{- $_ := set $owned . (printf $seen .) -}}
{{- end -}}
{{- range $name, $variable := include "tollgate.variables" . | fromYaml -}}
{{- if hasKey $.Values.settings $name -}}
{{- if not (kindIs "invalid" (get $.Values.settings $name)) -}}
{{- fail (printf "settings.%s and %s both set it; keep one" $name $variable.by) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $owned $name (printf "`%s` sets it" $variable.by) -}}
{{- end -}}
{{- range $name, $instead := $owned -}}
{{- $flag := printf "--%s" ($name | trimPrefix "TOLLGATE_" | lower | replace "_" "-") -}}
{{- range $.Values.extraArgs -}}
{{- if eq $flag (splitList "=" . | first) -}}
{{- fail (printf "extraArgs has %s, which is the chart's: %s" $flag $instead) -}}
{{- end -}}
{{- end -}}
{{- range $.Values.extraEnv -}}
{{- if eq $name .name -}}
{{- fail (printf "extraEnv has %s, which is the chart's: %s" $name $instead) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $.Values.settings .name -}}
{{- fail (printf "extraEnv and settings both have %s; keep one" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
