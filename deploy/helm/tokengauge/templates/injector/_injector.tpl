{{/* The Secret with the webhook's certificate: the injector makes it, cert-manager does, or it is there. */}}
{{- define "tokengauge.injector.secret" -}}
{{- if eq .Values.injector.certificates.mode "secret" }}
{{- .Values.injector.certificates.secret.name }}
{{- else }}
{{- include "tokengauge.injector" . }}-certificate
{{- end }}
{{- end }}

{{/* The MutatingWebhookConfiguration, which has no namespace. */}}
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
{{- range $flag, $value := merge (dict) ($injector.sidecar.flags | default dict) $flags }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
{{- /* Helm reads every number as a fraction, and would write a million as 1e+06. And the kubelet makes $( of $$(: what a
variable stands for is the sidecar's own, not the injector's. */}}
- {{ printf "--%s=%v" $flag (kindIs "float64" . | ternary (toJson .) .) | replace "$(" "$$(" | quote }}
{{- end }}
{{- end }}
{{- with $injector.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}
