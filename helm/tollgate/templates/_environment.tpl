{{- /*
Environment of the pods: the variables derived from blocks of the values, and the Secrets mounted for them.

How: each variable records its block, so that _guards.tpl can reject a variable that is set twice.
Secrets are files, not variables: tollgate loads renewed files without a restart.

What it deliberately does not do: check anything.
*/ -}}

{{- /* Whether rules come from an xDS server. */ -}}
{{- define "tollgate.byXds" -}}
{{- if or .Values.xds.enabled (eq (toString .Values.settings.CONFIG_TYPE) "GRPC_XDS_SOTW") }}true{{ end -}}
{{- end -}}

{{- /* Whether replicas share limits. */ -}}
{{- define "tollgate.shared" -}}
{{- if or .Values.redis.url .Values.redis.urlKey .Values.settings.TOLLGATE_STORE }}true{{ end -}}
{{- end -}}

{{- /* redis.url, rendered if it is a template. */ -}}
{{- define "tollgate.redisUrl" -}}
{{- if contains "{{" .Values.redis.url }}{{ tpl .Values.redis.url . }}{{ else }}{{ .Values.redis.url }}{{ end -}}
{{- end -}}

{{- define "tollgate.grpcIsTls" -}}
{{- if or .Values.tls.enabled .Values.settings.GRPC_SERVER_USE_TLS }}true{{ end -}}
{{- end -}}

{{- /* Whether the admin port requires a token. */ -}}
{{- define "tollgate.adminHasToken" -}}
{{- if or .Values.adminService.token.existingSecret .Values.settings.TOLLGATE_ADMIN_TOKEN_FILE }}true{{ end -}}
{{- end -}}

{{- /* Whether clients of the admin port must send a certificate. */ -}}
{{- define "tollgate.adminClientsAreKnown" -}}
{{- if or .Values.adminService.tls.clientCA.existingSecret .Values.settings.TOLLGATE_ADMIN_CLIENT_CACERT }}true{{ end -}}
{{- end -}}

{{- define "tollgate.adminIsTls" -}}
{{- if or .Values.adminService.tls.enabled .Values.settings.TOLLGATE_ADMIN_TLS_CERT }}true{{ end -}}
{{- end -}}

{{- /* Handler of the readiness probe. Kubernetes' gRPC probe supports neither TLS nor unix sockets. */ -}}
{{- define "tollgate.readinessHandler" -}}
{{- $handler := (.Values.readinessProbe).handler | default "auto" -}}
{{- if ne $handler "auto" -}}
{{- $handler -}}
{{- else if or (include "tollgate.grpcIsTls" .) .Values.settings.GRPC_UDS -}}
httpGet
{{- else -}}
grpc
{{- end -}}
{{- end -}}

{{- /* Variables by name: `by` is the block, then `value` or `valueFrom`. */ -}}
{{- define "tollgate.variables" -}}
{{- $all := dict -}}
{{- $files := "/etc/tollgate" -}}
{{- with .Values.xds -}}
{{- if .enabled -}}
{{- $_ := set $all "CONFIG_TYPE" (dict "by" "xds" "value" "GRPC_XDS_SOTW") -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_SERVER_URL" (dict "by" "xds.server" "value" .server) -}}
{{- with .nodeId -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_NODE_ID" (dict "by" "xds.nodeId" "value" .) -}}
{{- end -}}
{{- if .tls.enabled -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_SERVER_USE_TLS" (dict "by" "xds.tls" "value" "true") -}}
{{- with .tls.serverName -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_SERVER_TLS_SAN" (dict "by" "xds.tls.serverName" "value" .) -}}
{{- end -}}
{{- if and .tls.existingSecret .tls.caKey -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_SERVER_TLS_CACERT" (dict "by" "xds.tls.caKey" "value" (printf "%s/xds-tls/%s" $files .tls.caKey)) -}}
{{- end -}}
{{- if and .tls.existingSecret .tls.certKey -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_CLIENT_TLS_CERT" (dict "by" "xds.tls.certKey" "value" (printf "%s/xds-tls/%s" $files .tls.certKey)) -}}
{{- $_ := set $all "CONFIG_GRPC_XDS_CLIENT_TLS_KEY" (dict "by" "xds.tls.keyKey" "value" (printf "%s/xds-tls/%s" $files .tls.keyKey)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.tls -}}
{{- if .enabled -}}
{{- $_ := set $all "GRPC_SERVER_USE_TLS" (dict "by" "tls" "value" "true") -}}
{{- $_ := set $all "GRPC_SERVER_TLS_CERT" (dict "by" "tls" "value" (printf "%s/tls/tls.crt" $files)) -}}
{{- $_ := set $all "GRPC_SERVER_TLS_KEY" (dict "by" "tls" "value" (printf "%s/tls/tls.key" $files)) -}}
{{- if .clientCA.existingSecret -}}
{{- $_ := set $all "GRPC_CLIENT_TLS_CACERT" (dict "by" "tls.clientCA" "value" (printf "%s/client-ca/%s" $files .clientCA.key)) -}}
{{- end -}}
{{- with .clientNames -}}
{{- $_ := set $all "GRPC_CLIENT_TLS_SAN" (dict "by" "tls.clientNames" "value" (join "," .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.adminService -}}
{{- if .enabled -}}
{{- $_ := set $all "DEBUG_HOST" (dict "by" "adminService.host" "value" .host) -}}
{{- $_ := set $all "DEBUG_PORT" (dict "by" "adminService" "value" "6070") -}}
{{- if .token.existingSecret -}}
{{- $_ := set $all "TOLLGATE_ADMIN_TOKEN_FILE" (dict "by" "adminService.token" "value" (printf "%s/admin-token/%s" $files .token.key)) -}}
{{- end -}}
{{- if .tls.enabled -}}
{{- $_ := set $all "TOLLGATE_ADMIN_TLS_CERT" (dict "by" "adminService.tls" "value" (printf "%s/admin-tls/tls.crt" $files)) -}}
{{- $_ := set $all "TOLLGATE_ADMIN_TLS_KEY" (dict "by" "adminService.tls" "value" (printf "%s/admin-tls/tls.key" $files)) -}}
{{- if .tls.clientCA.existingSecret -}}
{{- $_ := set $all "TOLLGATE_ADMIN_CLIENT_CACERT" (dict "by" "adminService.tls.clientCA" "value" (printf "%s/admin-client-ca/%s" $files .tls.clientCA.key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "tollgate.candidateName" . -}}
{{- $_ := set $all "TOLLGATE_CANDIDATE" (dict "by" "candidate" "value" (printf "%s/candidate" $files)) -}}
{{- end -}}
{{- with .Values.snapshot -}}
{{- if .enabled -}}
{{- $_ := set $all "TOLLGATE_SNAPSHOT" (dict "by" "snapshot" "value" "/var/lib/tollgate/buckets.snapshot") -}}
{{- $_ := set $all "TOLLGATE_SNAPSHOT_INTERVAL_SECONDS" (dict "by" "snapshot.intervalSeconds" "value" (toString (int .intervalSeconds))) -}}
{{- end -}}
{{- end -}}
{{- with .Values.valueHashKey -}}
{{- if .existingSecret -}}
{{- $_ := set $all "TOLLGATE_VALUE_HASH_KEY_FILE" (dict "by" "valueHashKey" "value" (printf "%s/value-hash-key/%s" $files .key)) -}}
{{- end -}}
{{- end -}}
{{- with .Values.notify -}}
{{- if .existingSecret -}}
{{- $_ := set $all "TOLLGATE_NOTIFY_SECRET_FILE" (dict "by" "notify" "value" (printf "%s/notify/%s" $files .key)) -}}
{{- end -}}
{{- end -}}
{{- with .Values.redis -}}
{{- if .url -}}
{{- $_ := set $all "TOLLGATE_STORE" (dict "by" "redis.url" "value" (include "tollgate.redisUrl" $)) -}}
{{- else if .urlKey -}}
{{- $reference := dict "secretKeyRef" (dict "name" .existingSecret "key" .urlKey) -}}
{{- $_ := set $all "TOLLGATE_STORE" (dict "by" "redis.urlKey" "valueFrom" $reference) -}}
{{- end -}}
{{- with .username -}}
{{- $_ := set $all "TOLLGATE_STORE_USER" (dict "by" "redis.username" "value" .) -}}
{{- end -}}
{{- with .passwordKey -}}
{{- $_ := set $all "TOLLGATE_STORE_PASSWORD_FILE" (dict "by" "redis.passwordKey" "value" (printf "%s/redis/%s" $files .)) -}}
{{- end -}}
{{- with .hashKeyKey -}}
{{- $_ := set $all "TOLLGATE_STORE_HASH_KEY_FILE" (dict "by" "redis.hashKeyKey" "value" (printf "%s/redis/%s" $files .)) -}}
{{- end -}}
{{- if .tls.existingSecret -}}
{{- with .tls.caKey -}}
{{- $_ := set $all "REDIS_TLS_CACERT" (dict "by" "redis.tls.caKey" "value" (printf "%s/redis-tls/%s" $files .)) -}}
{{- end -}}
{{- if .tls.certKey -}}
{{- $_ := set $all "REDIS_TLS_CLIENT_CERT" (dict "by" "redis.tls.certKey" "value" (printf "%s/redis-tls/%s" $files .tls.certKey)) -}}
{{- $_ := set $all "REDIS_TLS_CLIENT_KEY" (dict "by" "redis.tls.keyKey" "value" (printf "%s/redis-tls/%s" $files .tls.keyKey)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- /* Secrets by the name of their volume, which is also their folder below /etc/tollgate. */ -}}
{{- define "tollgate.secrets" -}}
{{- $all := dict -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $all "tls" (include "tollgate.tlsSecretName" .) -}}
{{- with .Values.tls.clientCA.existingSecret }}{{ $_ := set $all "client-ca" . }}{{ end -}}
{{- end -}}
{{- with .Values.adminService -}}
{{- if .enabled -}}
{{- with .token.existingSecret }}{{ $_ := set $all "admin-token" . }}{{ end -}}
{{- if .tls.enabled -}}
{{- $_ := set $all "admin-tls" (include "tollgate.adminTlsSecretName" $) -}}
{{- with .tls.clientCA.existingSecret }}{{ $_ := set $all "admin-client-ca" . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.valueHashKey.existingSecret }}{{ $_ := set $all "value-hash-key" . }}{{ end -}}
{{- with .Values.notify.existingSecret }}{{ $_ := set $all "notify" . }}{{ end -}}
{{- with .Values.redis -}}
{{- if or .passwordKey .hashKeyKey }}{{ $_ := set $all "redis" .existingSecret }}{{ end -}}
{{- with .tls.existingSecret }}{{ $_ := set $all "redis-tls" . }}{{ end -}}
{{- end -}}
{{- with .Values.xds -}}
{{- if and .enabled .tls.enabled .tls.existingSecret }}{{ $_ := set $all "xds-tls" .tls.existingSecret }}{{ end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- /* A value as the text of an environment variable. Helm keeps numbers as floats, and 1000000 would become 1e+06. */ -}}
{{- define "tollgate.settingText" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- /* IP families of a Service; empty: the cluster's default. */ -}}
{{- define "tollgate.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* service.trafficDistribution under the name of this Kubernetes version; empty if it has none. PreferClose is the
older name of PreferSameZone. */ -}}
{{- define "tollgate.trafficDistribution" -}}
{{- $wanted := .Values.service.trafficDistribution -}}
{{- $sameZone := has $wanted (list "PreferSameZone" "PreferClose") -}}
{{- if semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version -}}
{{- ternary "PreferSameZone" $wanted $sameZone -}}
{{- else if and $sameZone (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
PreferClose
{{- end -}}
{{- end -}}

{{- /* appProtocol of the gRPC port, for meshes and gateways. */ -}}
{{- define "tollgate.grpcAppProtocol" -}}
{{- .Values.service.grpcAppProtocol | default (ternary "https" "kubernetes.io/h2c" (not (empty (include "tollgate.grpcIsTls" .)))) -}}
{{- end -}}
