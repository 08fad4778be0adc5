{{- /*
Names, labels and texts that several objects share.

What it deliberately does not do: render objects, reject values (_guards.tpl), or set the pods' environment
(_environment.tpl).
*/ -}}

{{- define "tollgate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tollgate.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if contains $name .Release.Name -}}
{{- $name = .Release.Name -}}
{{- else -}}
{{- $name = printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* The full name with a suffix, at most 63 characters: list CONTEXT SUFFIX. */ -}}
{{- define "tollgate.suffixed" -}}
{{- $suffix := printf "-%s" (last .) -}}
{{- include "tollgate.fullname" (first .) | trunc (int (sub 63 (len $suffix))) | trimSuffix "-" }}{{ $suffix -}}
{{- end -}}

{{- /* Ports of the listeners that a setting turns on, by name. */ -}}
{{- define "tollgate.ingressPorts" -}}
{{- range $name, $variable := dict "auth" "TOLLGATE_AUTH_PORT" "resp" "TOLLGATE_RESP_PORT" "spoe" "TOLLGATE_SPOE_PORT" }}
{{- with get $.Values.settings $variable }}
{{ $name }}: {{ int . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tollgate.headlessName" -}}
{{- include "tollgate.suffixed" (list . "headless") -}}
{{- end -}}

{{- define "tollgate.adminName" -}}
{{- include "tollgate.suffixed" (list . "admin") -}}
{{- end -}}

{{- /* The Service that has the HTTP port. */ -}}
{{- define "tollgate.httpServiceName" -}}
{{- if .Values.service.exposeHttp }}{{ include "tollgate.fullname" . }}{{ else }}{{ include "tollgate.suffixed" (list . "http") }}{{ end -}}
{{- end -}}

{{- define "tollgate.configMapName" -}}
{{- .Values.existingConfigMap | default (include "tollgate.suffixed" (list . "rules")) -}}
{{- end -}}

{{- /* The ConfigMap of the candidate's rules; empty if there is none. */ -}}
{{- define "tollgate.candidateName" -}}
{{- with .Values.candidate -}}
{{- if .rules }}{{ include "tollgate.suffixed" (list $ "candidate") }}{{ else }}{{ .existingConfigMap }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.tlsSecretName" -}}
{{- .Values.tls.existingSecret | default (include "tollgate.suffixed" (list . "tls")) -}}
{{- end -}}

{{- /* The Secret of the admin port's certificate; empty if there is none. */ -}}
{{- define "tollgate.adminTlsSecretName" -}}
{{- .Values.adminService.tls.existingSecret | default (ternary (include "tollgate.tlsSecretName" .) "" .Values.tls.enabled) -}}
{{- end -}}

{{- define "tollgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "tollgate.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tollgate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "tollgate.releaseLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* Labels of an object. The chart's take precedence: Services and monitors select by them. */ -}}
{{- define "tollgate.labels" -}}
{{- $own := printf "%s\n%s" (include "tollgate.selectorLabels" .) (include "tollgate.releaseLabels" .) | fromYaml -}}
{{- mergeOverwrite (deepCopy .Values.commonLabels) $own | toYaml -}}
{{- end -}}

{{- /* Labels of a pod that no Service may select, because it serves nothing: list CONTEXT COMPONENT. */ -}}
{{- define "tollgate.aloneLabels" -}}
app.kubernetes.io/name: {{ printf "%s-%s" (include "tollgate.name" (first .) | trunc 50 | trimSuffix "-") (last .) | quote }}
app.kubernetes.io/instance: {{ (first .).Release.Name | quote }}
{{- end -}}

{{- define "tollgate.image" -}}
{{- with (.Values.global).imageRegistry | default .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if or .Values.image.tag (not .Values.image.digest) }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- /* `imagePullSecrets:` of a pod; empty if there are none. */ -}}
{{- define "tollgate.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.imagePullSecrets ((.Values.global).imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* A value as YAML, rendered if it contains `{{ }}`: list CONTEXT VALUE. */ -}}
{{- define "tollgate.filled" -}}
{{- $text := last . | toYaml -}}
{{- if kindIs "string" (last .) }}{{ $text = last . }}{{ end -}}
{{- if contains "{{" $text }}{{ tpl $text (first .) }}{{ else }}{{ $text }}{{ end -}}
{{- end -}}

{{- /* Rules files by name. */ -}}
{{- define "tollgate.rulesFiles" -}}
{{- $files := dict -}}
{{- range $name, $rules := .Values.rules -}}
{{- $_ := set $files $name (ternary $rules (printf "%s\n" (toYaml $rules)) (kindIs "string" $rules)) -}}
{{- else -}}
{{- $_ := set $files "example.yaml" (.Files.Get "files/example.yaml") -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{- /* Whether Kubernetes has a sleep hook. The image has only one binary, so no `sleep` command. */ -}}
{{- define "tollgate.canSleep" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{- /* Seconds of the sleep, or of the longer drain. The value `lifecycle` replaces the sleep. */ -}}
{{- define "tollgate.preStopSeconds" -}}
{{- if .Values.lifecycle }}0{{ else }}{{ int .Values.preStopSleepSeconds }}{{ end -}}
{{- end -}}

{{- define "tollgate.drainDelaySeconds" -}}
{{- if include "tollgate.canSleep" . -}}
{{- int .Values.drainDelaySeconds -}}
{{- else -}}
{{- add .Values.drainDelaySeconds (include "tollgate.preStopSeconds" . | int) -}}
{{- end -}}
{{- end -}}

{{- /* Seconds of a whole stop: sleep, drain, and the last snapshot, which may take 30 seconds. */ -}}
{{- define "tollgate.stopSeconds" -}}
{{- $snapshot := ternary 30 0 .Values.snapshot.enabled -}}
{{- add (include "tollgate.preStopSeconds" . | int) .Values.drainDelaySeconds .Values.drainTimeoutSeconds $snapshot -}}
{{- end -}}

{{- /* Name of the claim of the snapshot's volume. */ -}}
{{- define "tollgate.snapshotClaim" -}}
{{- .Values.snapshot.existingClaim | default (include "tollgate.suffixed" (list . "snapshot")) -}}
{{- end -}}

{{- /* Security context of the pod. A volume belongs to root unless fsGroup gives it to a group. */ -}}
{{- define "tollgate.podSecurityContext" -}}
{{- $context := .Values.podSecurityContext -}}
{{- $group := $context.runAsGroup -}}
{{- if and .Values.snapshot.enabled $group (not (hasKey $context "fsGroup")) -}}
{{- $context = merge (dict "fsGroup" $group "fsGroupChangePolicy" "OnRootMismatch") $context -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- /* Grace period: a whole stop, plus five seconds to exit. */ -}}
{{- define "tollgate.graceSeconds" -}}
{{- .Values.terminationGracePeriodSeconds | default (add (include "tollgate.stopSeconds" . | int) 5) -}}
{{- end -}}

{{- /* A number or percentage of pods as a number: list VALUE PODS ROUNDUP. */ -}}
{{- define "tollgate.podCount" -}}
{{- $value := index . 0 | toString -}}
{{- if hasSuffix "%" $value -}}
{{- div (add (mul (trimSuffix "%" $value | int) (index . 1)) (ternary 99 0 (index . 2))) 100 -}}
{{- else -}}
{{- int $value -}}
{{- end -}}
{{- end -}}

{{- /*
Maximum duration of a rollout: list CONTEXT PODS. Kubernetes replaces maxSurge + maxUnavailable pods in a step. A step ends
when they have been ready for minReadySeconds. A pod may take the time of startupProbe to start.
*/ -}}
{{- define "tollgate.rollout" -}}
{{- $pods := index . 1 | int -}}
{{- with (first .).Values -}}
{{- $surge := include "tollgate.podCount" (list .rollingUpdate.maxSurge $pods true) | int -}}
{{- $missing := include "tollgate.podCount" (list .rollingUpdate.maxUnavailable $pods false) | int -}}
{{- $atOnce := max 1 (add $surge $missing) | int -}}
{{- $steps := div (add $pods (sub $atOnce 1)) $atOnce -}}
{{- $start := 0 -}}
{{- with .startupProbe -}}
{{- $start = add (.initialDelaySeconds | default 0) (mul (.periodSeconds | default 10) (.failureThreshold | default 3)) -}}
{{- end -}}
{{- with .readinessProbe -}}
{{- $start = add $start (.periodSeconds | default 10) -}}
{{- end -}}
{{- $step := add $start .minReadySeconds -}}
{{- dict "steps" $steps "stepSeconds" $step "seconds" (mul $steps $step) | toYaml -}}
{{- end -}}
{{- end -}}
