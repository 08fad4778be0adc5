{{- /*
Values that contradict one another, refused before anything is installed, each with what to do.

What it deliberately does not do: check types and spelling (values.schema.json), or rules (`tollgate check`).
*/ -}}

{{- define "tollgate.guards" -}}
{{- $fullname := include "tollgate.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $fullname) -}}
{{- fail (printf "%s cannot be the name of a Service: letters, digits and dashes, a letter first; set fullnameOverride" $fullname) -}}
{{- end -}}

{{- if and .Values.rules .Values.existingConfigMap -}}
{{- fail "rules and existingConfigMap are both given; keep one, the other would not be served" -}}
{{- end -}}

{{- $grace := int (include "tollgate.graceSeconds" .) -}}
{{- $drain := int (add .Values.drainDelaySeconds .Values.drainTimeoutSeconds) -}}
{{- if le $grace $drain -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, and a drain may take %d (drainDelaySeconds + drainTimeoutSeconds); give more, or leave it out" $grace $drain) -}}
{{- end -}}

{{- /* A setting's flag is its variable in small letters. */ -}}
{{- $ports := "8081 (gRPC) and 8080 (HTTP) are fixed in the pod" -}}
{{- $rules := "give `rules` or `existingConfigMap`" -}}
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
