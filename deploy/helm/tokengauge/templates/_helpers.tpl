{{- define "tokengauge.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimAll "-" }}
{{- end }}

{{/* At most 52 characters, so that what is put behind it stays within the 63 of a label. A release's name may have dots, which
a Service's may not. */}}
{{- define "tokengauge.fullname" -}}
{{- $name := include "tokengauge.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimAll "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | replace "." "-" | trunc 52 | trimAll "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 52 | trimAll "-" }}
{{- end }}
{{- end }}

{{/* The objects of the gateway bear the full name, those of the injector and others a suffix. Takes the root. */}}
{{- define "tokengauge.injector" -}}
{{ include "tokengauge.fullname" . }}-injector
{{- end }}

{{/* Two maps as one, in which the keys of the first go before those of the second: {over, under}. Not by `merge`, to which an
empty text is none. */}}
{{- define "tokengauge.over" -}}
{{- $both := dict }}
{{- range list .under .over }}
{{- range $key, $value := . }}
{{- $_ := set $both $key $value }}
{{- end }}
{{- end }}
{{- with $both }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* What selects the pods of a component: {root, component}. Never changes, since a Deployment's selector cannot. */}}
{{- define "tokengauge.selector" -}}
app.kubernetes.io/name: {{ include "tokengauge.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of an object: {root, component, labels}, the last one the values' own for this kind, which go before those for all.
The tag of an image of one's own is no version of ours, and is not told. */}}
{{- define "tokengauge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tokengauge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tokengauge
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with include "tokengauge.over" (dict "over" .labels "under" .root.Values.commonLabels) }}
{{ . }}
{{- end }}
{{- end }}

{{/* Labels of a pod: {root, component}. Without versions: a new chart alone is no reason to replace pods. */}}
{{- define "tokengauge.podLabels" -}}
{{ include "tokengauge.selector" . }}
{{- with include "tokengauge.over" (dict "over" (index .root.Values .component).podLabels "under" .root.Values.commonLabels) }}
{{ . }}
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

{{/* A list of variables, with those that are given in place of their namesakes, and the others of them behind: {env, given}. Two
of one name are an error to server-side apply; and a variable may only refer to those before it. */}}
{{- define "tokengauge.env" -}}
{{- $given := dict }}
{{- range .given }}
{{- $_ := set $given .name . }}
{{- end }}
{{- $names := list }}
{{- $made := list }}
{{- range .env }}
{{- $names = append $names .name }}
{{- $made = append $made (get $given .name | default .) }}
{{- end }}
{{- range .given }}
{{- if not (has .name $names) }}
{{- $made = append $made . }}
{{- end }}
{{- end }}
{{- toYaml $made }}
{{- end }}

{{/* A strategy; where pods are deleted first, without what the default says of another way. */}}
{{- define "tokengauge.strategy" -}}
{{- toYaml (eq .type "Recreate" | ternary (omit . "rollingUpdate") .) }}
{{- end }}

{{/* Where a pod runs: {root, component}. */}}
{{- define "tokengauge.placement" -}}
{{- $values := index .root.Values .component }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
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
  {{- $constraint := . }}
  {{- if not (hasKey . "labelSelector") }}
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "tokengauge.selector" $ | fromYaml)) "matchLabelKeys" (list "pod-template-hash") }}
  {{- $constraint = merge (dict) . $own }}
  {{- end }}
  - {{ toYaml $constraint | nindent 4 | trim }}
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
  - {targetLabel: job, action: replace, replacement: {{ .job | quote }}}
{{- end }}

{{/* A Deployment finds its pods for ever by what it was made with: {root, name}. Nothing is known of it, and nothing
refused, where Helm asks no cluster. */}}
{{- define "tokengauge.keeps" -}}
{{- $made := lookup "apps/v1" "Deployment" .root.Release.Namespace .name }}
{{- if $made }}
{{- $is := index $made.spec.selector.matchLabels "app.kubernetes.io/name" }}
{{- if ne $is (include "tokengauge.name" .root) }}
{{- fail (printf "\n\nnameOverride: the Deployment %s selects its pods by the name %s, and no upgrade can change that. Set nameOverride=%s, or uninstall the release first.\n" .name $is $is) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What is wrong with the values, beyond what the schema tells. */}}
{{- define "tokengauge.refusals" -}}
{{- $gateway := .Values.gateway }}
{{- $name := include "tokengauge.fullname" . }}
{{- if not (regexMatch "^[a-z]" $name) }}
{{- fail (printf "\n\nfullnameOverride: a Service's name begins with a letter, and %s does not. Set one that does, such as:\n\n  --set fullnameOverride=tokengauge\n" $name) }}
{{- end }}
{{- if $gateway.enabled }}
{{- include "tokengauge.keeps" (dict "root" . "name" $name) }}
{{- $scaling := $gateway.autoscaling }}
{{- if and $scaling.enabled (gt (int64 $scaling.minReplicas) (int64 $scaling.maxReplicas)) }}
{{- fail (printf "\n\ngateway.autoscaling.maxReplicas: at most %d pods and at least %d cannot be. Raise it, or lower minReplicas.\n" (int64 $scaling.maxReplicas) (int64 $scaling.minReplicas)) }}
{{- end }}
{{- if and (eq $gateway.service.type "ClusterIP") $gateway.service.externalTrafficPolicy }}
{{- fail "\n\ngateway.service.externalTrafficPolicy: nothing comes from outside to a Service of the type ClusterIP. Leave it empty, or choose NodePort or LoadBalancer.\n" }}
{{- end }}
{{- if and (ne $gateway.service.type "LoadBalancer") $gateway.service.loadBalancerSourceRanges }}
{{- fail (printf "\n\ngateway.service.loadBalancerSourceRanges: only a Service of the type LoadBalancer has them, and this one is a %s. Leave them out, or choose LoadBalancer.\n" $gateway.service.type) }}
{{- end }}
{{- end }}
{{- range $name, $text := .Values.monitoring.prometheusRule.files }}
{{- if not (kindIs "slice" (fromYaml $text).groups) }}
{{- fail (printf "\n\nmonitoring.prometheusRule.files.%s: this is no file of rules, which is YAML with a list of `groups`. Give the file with --set-file.\n" $name) }}
{{- end }}
{{- end }}
{{- if .Values.injector.enabled }}
{{- include "tokengauge.keeps" (dict "root" . "name" (include "tokengauge.injector" .)) }}
{{- $issuer := .Values.injector.certificates.certManager.issuerRef }}
{{- if and (eq .Values.injector.certificates.mode "certManager") $issuer (not $issuer.name) }}
{{- fail "\n\ninjector.certificates.certManager.issuerRef.name: which issuer shall sign? Name it, or leave issuerRef empty for an authority of its own.\n" }}
{{- end }}
{{- end }}
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
