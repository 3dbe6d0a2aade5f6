{{/* Returns the part of the configuration that is not reloadable, as marked in docs/reference/configuration.md. */}}
{{- define "tokengauge.gateway.fixed" -}}
{{ toYaml (pick .Values.gateway.config "admin" "cardinality_limits" "console" "limits" "listeners" "log" "otlp" "propagators" "slo_state" "telemetry") }}
{{- end }}

{{/* Returns the environment variables of the gateway. A variable must follow the variables that it refers to. */}}
{{- define "tokengauge.gateway.env" -}}
{{- $name := include "tokengauge.fullname" . }}
- name: K8S_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: K8S_POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: K8S_NAMESPACE_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: K8S_NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: K8S_NODE_IP
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
{{- $attributes := list
  "service.instance.id=$(K8S_NAMESPACE_NAME).$(K8S_POD_NAME).tokengauge"
  "k8s.namespace.name=$(K8S_NAMESPACE_NAME)"
  "k8s.pod.name=$(K8S_POD_NAME)"
  "k8s.pod.uid=$(K8S_POD_UID)"
  "k8s.node.name=$(K8S_NODE_NAME)"
  "k8s.container.name=tokengauge"
  (printf "k8s.deployment.name=%s" $name) }}
{{- with .Values.clusterName }}
{{- $attributes = append $attributes (printf "k8s.cluster.name=%s" .) }}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ join "," $attributes | quote }}
{{- with .Values.otlp }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .protocol }}
{{- if not .metrics }}
- name: OTEL_METRICS_EXPORTER
  value: none
{{- end }}
{{- if not .traces }}
- name: OTEL_TRACES_EXPORTER
  value: none
{{- end }}
{{- end }}
{{- if .headersSecret.name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef: {name: {{ .headersSecret.name | quote }}, key: {{ .headersSecret.key | quote }}}
{{- end }}
{{- end }}
- name: TOKENGAUGE_CONFIG
  value: /etc/tokengauge/tokengauge.yaml
{{- with .Values.gateway.adminToken }}
{{- if .secretName }}
- name: TOKENGAUGE_ADMIN_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .secretName | quote }}, key: {{ .key | quote }}}
{{- end }}
{{- end }}
{{- if .Values.gateway.tls.secretName }}
- name: TOKENGAUGE_TLS_CERT
  value: /etc/tokengauge-tls/tls.crt
- name: TOKENGAUGE_TLS_KEY
  value: /etc/tokengauge-tls/tls.key
{{- end }}
{{- end }}
