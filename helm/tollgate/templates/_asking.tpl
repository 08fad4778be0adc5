{{- /*
Whether `helm test` can ask, and by which certificates. The pod and the notes go by the same words.

What it deliberately does not do: refuse values (_guards.tpl), or make a certificate. A client's is somebody's to give.
*/ -}}

{{- /* The host that is asked. */ -}}
{{- define "tollgate.askedHost" -}}
{{- printf "%s.%s.svc" (include "tollgate.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- /* What the certificate of gRPC must bear. */ -}}
{{- define "tollgate.askedName" -}}
{{- .Values.tests.tls.serverName | default (include "tollgate.askedHost" .) -}}
{{- end -}}

{{- /* The Secret with who signed the certificate of gRPC; nothing where the chart does not know one. */ -}}
{{- define "tollgate.askedCaSecret" -}}
{{- .Values.tests.tls.caSecret | default (ternary (include "tollgate.tlsSecretName" .) "" .Values.tls.enabled) -}}
{{- end -}}

{{- /* Whether clients must show a certificate. */ -}}
{{- define "tollgate.clientsAreKnown" -}}
{{- if or .Values.tls.clientCA.existingSecret .Values.settings.GRPC_CLIENT_TLS_CACERT }}true{{ end -}}
{{- end -}}

{{- /* Why nobody asks; nothing where somebody does. */ -}}
{{- define "tollgate.notAsked" -}}
{{- if not .Values.tests.enabled -}}
tests.enabled is false
{{- else if .Values.settings.GRPC_UDS -}}
gRPC is a unix socket, which no other pod reaches
{{- else if include "tollgate.grpcIsTls" . -}}
{{- if and (include "tollgate.clientsAreKnown" .) (not .Values.tests.tls.clientSecret) -}}
gRPC asks for a client's certificate; name a Secret with one by tests.tls.clientSecret
{{- else if and .Values.tests.tls.caKey (not (include "tollgate.askedCaSecret" .)) -}}
gRPC is TLS by `settings`; name a Secret with who signed its certificate by tests.tls.caSecret
{{- end -}}
{{- end -}}
{{- end -}}
