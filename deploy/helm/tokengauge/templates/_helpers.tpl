{{- define "tokengauge.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters, so that what is put behind it stays within the 63 of a label. */}}
{{- define "tokengauge.fullname" -}}
{{- $name := include "tokengauge.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The objects of the gateway bear the full name, those of the injector and others a suffix. Takes the root. */}}
{{- define "tokengauge.injector" -}}
{{ include "tokengauge.fullname" . }}-injector
{{- end }}

{{/* What selects the pods of a component: {root, component}. Never changes, since a Deployment's selector cannot. */}}
{{- define "tokengauge.selector" -}}
app.kubernetes.io/name: {{ include "tokengauge.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of an object: {root, component}. The tag of an image of one's own is no version of ours, and is not told. */}}
{{- define "tokengauge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tokengauge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tokengauge
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of a pod: {root, component}. Without versions: a new chart alone is no reason to replace pods. */}}
{{- define "tokengauge.podLabels" -}}
{{ include "tokengauge.selector" . }}
{{- with merge (dict) (index .root.Values .component).podLabels .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tokengauge.image" -}}
{{- with .Values.image }}
{{- $name := list .registry .repository | compact | join "/" }}
{{- if .digest }}
{{- printf "%s@%s" $name .digest }}
{{- else }}
{{- printf "%s:%s" $name (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{/* {root, component} */}}
{{- define "tokengauge.serviceAccountName" -}}
{{- $given := (index .root.Values .component).serviceAccount }}
{{- if $given.name }}
{{- $given.name }}
{{- else if not $given.create }}
{{- "default" }}
{{- else if eq .component "injector" }}
{{- include "tokengauge.injector" .root }}
{{- else }}
{{- include "tokengauge.fullname" .root }}
{{- end }}
{{- end }}

{{/* A list of variables but for those that are given elsewhere, and those: {env, given}. Two of one name are an error to
server-side apply, and whichever comes last to the kubelet. */}}
{{- define "tokengauge.env" -}}
{{- $names := list }}
{{- range .given }}
{{- $names = append $names .name }}
{{- end }}
{{- $kept := list }}
{{- range .env }}
{{- if not (has .name $names) }}
{{- $kept = append $kept . }}
{{- end }}
{{- end }}
{{- toYaml (concat $kept .given) }}
{{- end }}

{{/* Where a pod runs: {root, component}. */}}
{{- define "tokengauge.placement" -}}
{{- $values := index .root.Values .component }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  {{- /* The old pods of a rollout do not count for where the new ones go. */}}
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "tokengauge.selector" $ | fromYaml)) "matchLabelKeys" (list "pod-template-hash") }}
  - {{ toYaml (hasKey . "labelSelector" | ternary . (merge (dict) . $own)) | nindent 4 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{/* The probes, by number. A pod that is deleted may go on getting new connections until its readiness probe fails, where no
other pod is ready: not the default's half minute, and not after one slow answer. */}}
{{- define "tokengauge.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: 4001}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /livez, port: 4001}
readinessProbe:
  httpGet: {path: /readyz, port: 4001}
  periodSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* Whether a list of addresses has one on this port that others reach: {addresses, port}. */}}
{{- define "tokengauge.reachable" -}}
{{- range .addresses }}
{{- if and (hasSuffix (printf ":%d" $.port) .) (not (regexMatch "^(127\\.|\\[::1\\])" .)) }}
{{- "yes" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Egress that every policy needs. */}}
{{- define "tokengauge.dns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{/* Who may read the admin port, as an entry of `ingress`: {root, component}. */}}
{{- define "tokengauge.scrapers" -}}
- ports:
    - {port: 4001, protocol: TCP}
{{- with (index .root.Values .component).networkPolicy.scrapers }}
  from:
    - podSelector:
        matchLabels:
          {{- include "tokengauge.selector" (dict "root" $.root "component" "test") | nindent 10 }}
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{/* What a monitor says of its endpoints: {root, job}. */}}
{{- define "tokengauge.endpoint" -}}
path: /metrics
interval: {{ .root.Values.monitoring.interval }}
scrapeTimeout: {{ .root.Values.monitoring.scrapeTimeout }}
relabelings:
  - {targetLabel: job, action: replace, replacement: {{ .job }}}
{{- end }}

{{/* What is wrong with the values, beyond what the schema tells. */}}
{{- define "tokengauge.refusals" -}}
{{- $gateway := .Values.gateway }}
{{- if and $gateway.enabled (not $gateway.existingConfigMap) }}
{{- if not $gateway.config.upstreams }}
{{- fail "\n\ngateway.config.upstreams: the gateway has nowhere to send calls to. Name one, such as:\n\n  --set gateway.config.upstreams.openai.url=https://api.openai.com\n" }}
{{- end }}
{{- $listeners := list }}
{{- range $gateway.config.listeners }}
{{- $listeners = append $listeners .address }}
{{- end }}
{{- if not (include "tokengauge.reachable" (dict "addresses" $listeners "port" 4000)) }}
{{- fail "\n\ngateway.config.listeners: the Service sends calls to port 4000 of the pod, and no listener is there. Keep one with the address 0.0.0.0:4000.\n" }}
{{- end }}
{{- if not (include "tokengauge.reachable" (dict "addresses" (list ($gateway.config.admin).address | compact) "port" 4001)) }}
{{- fail "\n\ngateway.config.admin.address: probes and scrapers ask port 4001 of the pod. Keep 0.0.0.0:4001.\n" }}
{{- end }}
{{- end }}
{{- if and .Values.injector.enabled (eq .Values.injector.certificates.mode "secret") }}
{{- $given := .Values.injector.certificates.secret }}
{{- if not $given.name }}
{{- fail "\n\ninjector.certificates.secret.name: the mode `secret` takes the certificate from a Secret of yours. Name it, or choose selfSigned.\n" }}
{{- end }}
{{- if not $given.caBundle }}
{{- fail "\n\ninjector.certificates.secret.caBundle: without it the API server does not trust the injector, and no pod gets a sidecar. Give it with --set-file.\n" }}
{{- end }}
{{- end }}
{{- end }}
