{{- /*
The alerts of files/alerts.yaml, as text. Each runbook_url begins with the prefix of the values. Without a
prefix there is none: a path is no URL.
*/ -}}
{{- define "tollgate.alerts" -}}
{{- $alerts := .Files.Get "files/alerts.yaml" -}}
{{- with .Values.alerts.runbookUrlPrefix -}}
{{- $alerts | replace "runbook_url: docs/" (printf "runbook_url: %sdocs/" .) -}}
{{- else -}}
{{- regexReplaceAll "(?m)^ *runbook_url: .*\n" $alerts "" -}}
{{- end -}}
{{- end -}}
