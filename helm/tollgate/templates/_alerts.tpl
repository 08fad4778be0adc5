{{- /*
The alerts of files/alerts.yaml, as text. Each runbook_url begins with the prefix of the values.
*/ -}}
{{- define "tollgate.alerts" -}}
{{- .Files.Get "files/alerts.yaml" | replace "runbook_url: docs/" (printf "runbook_url: %sdocs/" .Values.alerts.runbookUrlPrefix) -}}
{{- end -}}
