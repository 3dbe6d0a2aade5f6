{{- define "tokengauge.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimAll "-" }}
{{- end }}

{{/* Returns the base name of all objects, at most 52 characters: suffixes are added, and a label value has at most 63. Dots are
replaced, because the name of a Service must not contain any. */}}
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

{{/* Returns the name of the injector's objects. Objects of the gateway have the full name without a suffix. Takes the root. */}}
{{- define "tokengauge.injector" -}}
{{ include "tokengauge.fullname" . }}-injector
{{- end }}

{{/* Merges two maps: {over, under}. Keys of `over` take precedence. The function `merge` would ignore empty strings in `over`. */}}
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

{{/* Returns the labels that select the pods of a component: {root, component}. They must never change, because the selector of a
Deployment is immutable. */}}
{{- define "tokengauge.selector" -}}
app.kubernetes.io/name: {{ include "tokengauge.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Returns the labels of an object: {root, component, labels}. `labels` are the values' labels for this kind of object, which take
precedence over `commonLabels`. The version is the chart's appVersion, because a custom image tag need not be a version. */}}
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

{{/* Returns the labels of a pod: {root, component}. They contain no version, so that a new chart version alone replaces no pods. */}}
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

{{/* Returns the name of the ServiceAccount of a component: {root, component}. */}}
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

{{/* Merges lists of environment variables: {env, given}. Variables in `given` replace those with the same name in `env`; the others
are appended. Server-side apply rejects duplicate names, and a variable can refer only to earlier variables. */}}
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

{{/* Returns the update strategy. With `Recreate`, the default `rollingUpdate` is omitted, because the API server would reject it. */}}
{{- define "tokengauge.strategy" -}}
{{- toYaml (eq .type "Recreate" | ternary (omit . "rollingUpdate") .) }}
{{- end }}

{{/* Returns the scheduling fields of a pod: {root, component}. */}}
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
  {{- /* With `pod-template-hash`, old pods do not affect the spreading of new pods during a rollout. */}}
  {{- $constraint := . }}
  {{- if not (hasKey . "labelSelector") }}
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "tokengauge.selector" $ | fromYaml)) "matchLabelKeys" (list "pod-template-hash") }}
  {{- $constraint = merge (dict) . $own }}
  {{- end }}
  - {{ toYaml $constraint | nindent 4 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{/* Returns the probes, with numeric ports. If no other pod is ready, a terminating pod gets new connections until its readiness
probe fails. 2 x 2 s is shorter than the default 3 x 10 s and tolerates one slow response. */}}
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

{{/* Returns "yes" if an address in the list has this port and is not a loopback address: {addresses, port}. */}}
{{- define "tokengauge.reachable" -}}
{{- range .addresses }}
{{- if and (hasSuffix (printf ":%d" $.port) .) (not (regexMatch "^(127\\.|\\[::1\\])" .)) }}
{{- "yes" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Returns whether the cluster is OpenShift, which assigns a user and a group to each pod. */}}
{{- define "tokengauge.isOpenShift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}yes{{ end }}
{{- end }}

{{/* Returns a security context. On OpenShift, the chart's default user and group are left out, because the security context constraint
restricted-v2 accepts only ids of the namespace's range. */}}
{{- define "tokengauge.securityContext" -}}
{{- $context := .context }}
{{- if include "tokengauge.isOpenShift" .root }}
{{- range list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if eq (toString (get $context .)) "65532" }}
{{- $context = omit $context . }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* Returns the egress rule for DNS, which every policy needs. */}}
{{- define "tokengauge.dns" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}

{{/* Returns the `ingress` rule for the admin port: {root, component}. */}}
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

{{/* Returns the endpoint settings of a monitor: {root, job}. */}}
{{- define "tokengauge.endpoint" -}}
path: /metrics
interval: {{ .root.Values.monitoring.interval }}
scrapeTimeout: {{ .root.Values.monitoring.scrapeTimeout }}
relabelings:
  - {targetLabel: job, action: replace, replacement: {{ .job | quote }}}
{{- end }}

{{/* Fails if an upgrade would change the selector of an existing Deployment, which is immutable: {root, name}. `lookup` returns
nothing without a cluster (`helm template`); then nothing is checked. */}}
{{- define "tokengauge.keeps" -}}
{{- $made := lookup "apps/v1" "Deployment" .root.Release.Namespace .name }}
{{- if $made }}
{{- $is := index $made.spec.selector.matchLabels "app.kubernetes.io/name" }}
{{- if ne $is (include "tokengauge.name" .root) }}
{{- fail (printf "\n\nnameOverride: the Deployment %s selects its pods by the name %s, and an upgrade cannot change a selector. Set nameOverride=%s, or uninstall the release first.\n" .name $is $is) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails for routes that `tokengauge check` rejects. Takes `gateway.config`. */}}
{{- define "tokengauge.routing" -}}
{{- $upstreams := keys .upstreams | sortAlpha }}
{{- if and (kindIs "slice" .routes) (not .routes) }}
{{- fail "\n\ngateway.config.routes: the list is empty. Add a route, or remove this key if there is one upstream.\n" }}
{{- end }}
{{- if and (gt (len $upstreams) 1) (not .routes) }}
{{- $first := first $upstreams }}
{{- fail (printf "\n\ngateway.config.routes: missing; there are %d upstreams, %s. Add routes, for example:\n\n  routes:\n    - {match: {prefix: /%s}, upstream: %s, strip_prefix: true}\n" (len $upstreams) (join ", " $upstreams) $first $first) }}
{{- end }}
{{- $names := list }}
{{- $matches := list }}
{{- range $index, $route := .routes }}
{{- $key := printf "gateway.config.routes[%d]" $index }}
{{- if not (has $route.upstream $upstreams) }}
{{- fail (printf "\n\n%s.upstream: no upstream named `%s`; defined: %s.\n" $key (toString $route.upstream) (join ", " $upstreams)) }}
{{- end }}
{{- $name := $route.name | default $route.upstream }}
{{- if has $name $names }}
{{- fail (printf "\n\n%s.name: another route is also named `%s`. Set a different name.\n" $key $name) }}
{{- end }}
{{- $names = append $names $name }}
{{- $match := $route.match | default dict }}
{{- $prefix := trimSuffix "/" ($match.prefix | default "") }}
{{- if and $route.strip_prefix (not $prefix) }}
{{- fail (printf "\n\n%s.strip_prefix: no prefix to strip. Add match.prefix, or remove strip_prefix.\n" $key) }}
{{- end }}
{{- $requests := printf "%s%s" (lower ($match.host | default "")) $prefix }}
{{- if has $requests $matches }}
{{- fail (printf "\n\n%s.match: another route matches the same requests, so this one is never used. Remove it, or change its match.\n" $key) }}
{{- end }}
{{- $matches = append $matches $requests }}
{{- end }}
{{- $names = $names | default $upstreams }}
{{- range $index, $slo := .slos }}
{{- $route := ($slo.scope | default dict).route }}
{{- if and $route (not (has $route $names)) }}
{{- fail (printf "\n\ngateway.config.slos[%d].scope.route: no route named `%s`; defined: %s.\n" $index $route (join ", " $names)) }}
{{- end }}
{{- end }}
{{- range $index, $budget := (.cost | default dict).budgets }}
{{- if and $budget.route (not (has $budget.route $names)) }}
{{- fail (printf "\n\ngateway.config.cost.budgets[%d].route: no route named `%s`; defined: %s.\n" $index $budget.route (join ", " $names)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fails for invalid values that the schema cannot detect. */}}
{{- define "tokengauge.refusals" -}}
{{- $gateway := .Values.gateway }}
{{- $name := include "tokengauge.fullname" . }}
{{- if not (regexMatch "^[a-z]" $name) }}
{{- fail (printf "\n\nfullnameOverride: the name of a Service must start with a letter, but `%s` does not. Set a valid name, for example:\n\n  --set fullnameOverride=tokengauge\n" $name) }}
{{- end }}
{{- if $gateway.enabled }}
{{- include "tokengauge.keeps" (dict "root" . "name" $name) }}
{{- $scaling := $gateway.autoscaling }}
{{- if and $scaling.enabled (gt (int64 $scaling.minReplicas) (int64 $scaling.maxReplicas)) }}
{{- fail (printf "\n\ngateway.autoscaling.maxReplicas: %d is less than minReplicas, %d. Raise maxReplicas or lower minReplicas.\n" (int64 $scaling.maxReplicas) (int64 $scaling.minReplicas)) }}
{{- end }}
{{- if and (eq $gateway.service.type "ClusterIP") $gateway.service.externalTrafficPolicy }}
{{- fail "\n\ngateway.service.externalTrafficPolicy: not supported by a Service of type ClusterIP. Leave it empty, or set gateway.service.type to NodePort or LoadBalancer.\n" }}
{{- end }}
{{- if and (ne $gateway.service.type "LoadBalancer") $gateway.service.loadBalancerSourceRanges }}
{{- fail (printf "\n\ngateway.service.loadBalancerSourceRanges: not supported by a Service of type %s. Leave it empty, or set gateway.service.type to LoadBalancer.\n" $gateway.service.type) }}
{{- end }}
{{- end }}
{{- if and $gateway.enabled .Values.injector.enabled $gateway.serviceAccount.create .Values.injector.serviceAccount.create }}
{{- $account := include "tokengauge.serviceAccountName" (dict "root" . "component" "injector") }}
{{- if eq $account (include "tokengauge.serviceAccountName" (dict "root" . "component" "gateway")) }}
{{- fail (printf "\n\ninjector.serviceAccount.name: the gateway's ServiceAccount is also named %s. Set two names, or set create to false for one of them.\n" $account) }}
{{- end }}
{{- end }}
{{- range $name, $text := .Values.monitoring.prometheusRule.files }}
{{- if not (kindIs "slice" (fromYaml $text).groups) }}
{{- fail (printf "\n\nmonitoring.prometheusRule.files.%s: not a rule file; expected YAML with a list `groups`. Pass the content of the file with --set-file.\n" $name) }}
{{- end }}
{{- end }}
{{- if .Values.injector.enabled }}
{{- include "tokengauge.keeps" (dict "root" . "name" (include "tokengauge.injector" .)) }}
{{- $issuer := .Values.injector.certificates.certManager.issuerRef }}
{{- if and (eq .Values.injector.certificates.mode "certManager") $issuer (not $issuer.name) }}
{{- fail "\n\ninjector.certificates.certManager.issuerRef.name: missing. Set the name of the issuer, or leave issuerRef empty to create a certificate authority.\n" }}
{{- end }}
{{- end }}
{{- if and $gateway.enabled (not $gateway.existingConfigMap) }}
{{- if not $gateway.config.upstreams }}
{{- fail "\n\ngateway.config.upstreams: the gateway has nowhere to send requests. Set an upstream, for example:\n\n  --set gateway.config.upstreams.openai.url=https://api.openai.com\n" }}
{{- end }}
{{- include "tokengauge.routing" $gateway.config }}
{{- $listeners := list }}
{{- range $gateway.config.listeners }}
{{- $listeners = append $listeners .address }}
{{- end }}
{{- if ne (len $listeners) (len (uniq $listeners)) }}
{{- fail "\n\ngateway.config.listeners: two listeners have the same address. Remove one.\n" }}
{{- end }}
{{- if not (include "tokengauge.reachable" (dict "addresses" $listeners "port" 4000)) }}
{{- fail "\n\ngateway.config.listeners: the Service sends requests to port 4000 of the pod, but no listener uses this port on a reachable address. Add a listener with the address [::]:4000.\n" }}
{{- end }}
{{- if not (include "tokengauge.reachable" (dict "addresses" (list ($gateway.config.admin).address | compact) "port" 4001)) }}
{{- fail "\n\ngateway.config.admin.address: probes and scrapers use port 4001 of the pod. Set the address to [::]:4001.\n" }}
{{- end }}
{{- end }}
{{- if and .Values.injector.enabled (eq .Values.injector.certificates.mode "secret") }}
{{- $given := .Values.injector.certificates.secret }}
{{- if not $given.name }}
{{- fail "\n\ninjector.certificates.secret.name: missing; the mode `secret` requires an existing Secret. Set its name, or set the mode to selfSigned.\n" }}
{{- end }}
{{- if not $given.caBundle }}
{{- fail "\n\ninjector.certificates.secret.caBundle: missing; without caBundle the API server does not trust the injector, and no pod gets a sidecar. Set caBundle with --set-file.\n" }}
{{- end }}
{{- end }}
{{- end }}
