{{- /*
Whether `helm test` can send its request, and with which certificates. The pod and the notes share these templates.

What it deliberately does not do: reject values (_guards.tpl), or create a certificate. The user provides the client's.
*/ -}}

{{- /* Host of the request. */ -}}
{{- define "tollgate.askedHost" -}}
{{- printf "%s.%s.svc" (include "tollgate.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- /* Name in the gRPC certificate. */ -}}
{{- define "tollgate.askedName" -}}
{{- .Values.tests.tls.serverName | default (include "tollgate.askedHost" .) -}}
{{- end -}}

{{- /* Secret with the CA bundle for the gRPC certificate; empty if the chart does not know one. */ -}}
{{- define "tollgate.askedCaSecret" -}}
{{- .Values.tests.tls.caSecret | default (ternary (include "tollgate.tlsSecretName" .) "" .Values.tls.enabled) -}}
{{- end -}}

{{- /* Whether clients must send a certificate. */ -}}
{{- define "tollgate.clientsAreKnown" -}}
{{- if or .Values.tls.clientCA.existingSecret .Values.settings.GRPC_CLIENT_TLS_CACERT }}true{{ end -}}
{{- end -}}

{{- /* Why there is no test pod; empty if there is one. */ -}}
{{- define "tollgate.notAsked" -}}
{{- if not .Values.tests.enabled -}}
tests.enabled is false
{{- else if .Values.settings.GRPC_UDS -}}
gRPC listens on a unix socket, which other pods cannot reach
{{- else if include "tollgate.grpcIsTls" . -}}
{{- if and (include "tollgate.clientsAreKnown" .) (not .Values.tests.tls.clientSecret) -}}
gRPC requires a client certificate; set tests.tls.clientSecret to a Secret with one
{{- else if and .Values.tests.tls.caKey (not (include "tollgate.askedCaSecret" .)) -}}
`settings` turn on TLS for gRPC; set tests.tls.caSecret to a Secret with its CA bundle
{{- end -}}
{{- end -}}
{{- end -}}
