{{/* Returns the name of the Secret with the webhook's certificate. The injector or cert-manager creates the Secret, or it exists. */}}
{{- define "tokengauge.injector.secret" -}}
{{- if eq .Values.injector.certificates.mode "secret" }}
{{- .Values.injector.certificates.secret.name }}
{{- else }}
{{- include "tokengauge.injector" . }}-certificate
{{- end }}
{{- end }}

{{/* Returns the name of the MutatingWebhookConfiguration, a cluster-scoped object. */}}
{{- define "tokengauge.injector.webhook" -}}
{{- include "tokengauge.injector" . }}
{{- end }}

{{- define "tokengauge.injector.args" -}}
{{- $injector := .Values.injector }}
- injector
{{- if eq $injector.certificates.mode "selfSigned" }}
- --self-signed
- --service={{ include "tokengauge.injector" . }}
- --namespace={{ .Release.Namespace }}
- --webhook-configuration={{ include "tokengauge.injector.webhook" . }}
- --secret={{ include "tokengauge.injector.secret" . }}
{{- else }}
- --cert=/etc/tokengauge/tls/tls.crt
- --key=/etc/tokengauge/tls/tls.key
{{- end }}
{{- if not $injector.events }}
- --no-events
{{- end }}
- --log-level={{ $injector.logLevel }}
- --log-format=json
{{- $flags := dict "image" ($injector.sidecar.image | default (include "tokengauge.image" .)) }}
{{- with .Values.otlp.endpoint }}
{{- $flags = merge $flags (dict "otlp-endpoint" . "otlp-protocol" $.Values.otlp.protocol) }}
{{- end }}
{{- with .Values.clusterName }}
{{- $_ := set $flags "cluster" . }}
{{- end }}
{{- if include "tokengauge.isOpenShift" . }}
{{- $_ := set $flags "run-as-user" "none" }}
{{- end }}
{{- range $flag, $value := merge (dict) ($injector.sidecar.flags | default dict) $flags }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
{{- /* Helm parses every number as a float and would print a million as 1e+06. `$$(` is an escaped `$(`: the variable is expanded in
the sidecar and not in the injector. */}}
- {{ printf "--%s=%v" $flag (kindIs "float64" . | ternary (toJson .) .) | replace "$(" "$$(" | quote }}
{{- end }}
{{- end }}
{{- with $injector.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}
