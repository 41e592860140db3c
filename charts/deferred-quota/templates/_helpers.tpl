{{- /*
What the other templates write in their places; they are written by scripts/chart, this is not.

A change of `deferredResources` or `exemptNamespaces` must never leave a quota that nothing enforces,
and one upgrade writes everything at once. So an upgrade looks at the cluster, and what has to come
second waits for the next upgrade:

- A resource that is new is charged at once, and hidden when the live registration names it.
- A resource that is dropped is hidden no more at once, and charged while the live mask hides it or the
  status of a quota lacks it.
- A namespace that is newly exempt is hidden nothing of at once, and guarded while the status of one of
  its quotas lacks something.
- A namespace that is exempt no more is guarded at once, and the mask comes when it is.

Where there is no cluster to look at (`helm template`, a first installation), all of it is as configured.
*/ -}}

{{- /* The configuration, as the file of our processes. */ -}}
{{- define "deferred-quota.configuration" -}}
{{- $head := dict "apiVersion" "deferredquota.io/v1alpha1" "kind" "Configuration" -}}
{{- if include "deferred-quota.certManager" . }}{{ $head = set $head "certificates" (dict "rotate" false) }}{{ end -}}
{{- merge $head .Values.configuration | toYaml -}}
{{- end -}}

{{- define "deferred-quota.configurationHash" -}}
{{- printf "%s\n" (include "deferred-quota.configuration" .) | sha256sum | trunc 16 -}}
{{- end -}}

{{- define "deferred-quota.gating" -}}
{{- .Values.configuration.gating | default "auto" -}}
{{- end -}}

{{- /* Whether the page is switched on: empty if not. */ -}}
{{- define "deferred-quota.page" -}}
{{- if dig "page" "enabled" false .Values.configuration }}true{{ end -}}
{{- end -}}

{{- define "deferred-quota.pagePort" -}}
{{- dig "page" "port" 8081 .Values.configuration | int -}}
{{- end -}}

{{- /* Whether cert-manager keeps the certificates: empty if not. */ -}}
{{- define "deferred-quota.certManager" -}}
{{- if (.Values.certManager | default dict).enabled }}true{{ end -}}
{{- end -}}

{{- /* The Certificate whose CA its injector writes into the registrations: empty if it does not. */ -}}
{{- define "deferred-quota.injectedFrom" -}}
{{- if include "deferred-quota.certManager" . }}{{ .Release.Namespace }}/deferred-quota-ca{{ end -}}
{{- end -}}

{{- /* Whether the controller keeps the certificates: empty if not. */ -}}
{{- define "deferred-quota.rotates" -}}
{{- $wanted := dig "certificates" "rotate" (not (include "deferred-quota.certManager" .)) .Values.configuration -}}
{{- if and (not .Values.url) $wanted }}true{{ end -}}
{{- end -}}

{{- /* Whether evictions for elastic quotas are planned, and whether pods are evicted: empty if not. */ -}}
{{- define "deferred-quota.plansReclaim" -}}
{{- if and (dig "elastic" "enabled" true .Values.configuration) (ne (dig "elastic" "reclaim" "mode" "Plan" .Values.configuration) "Off") }}true{{ end -}}
{{- end -}}

{{- define "deferred-quota.reclaims" -}}
{{- if and (dig "elastic" "enabled" true .Values.configuration) (eq (dig "elastic" "reclaim" "mode" "Plan" .Values.configuration) "Act") }}true{{ end -}}
{{- end -}}

{{- /* Whether the webhook judges the nodes of binds: empty if not. */ -}}
{{- define "deferred-quota.judgesNodes" -}}
{{- if ne (dig "nodeFit" "Off" .Values.configuration) "Off" }}true{{ end -}}
{{- end -}}

{{- /* Labels of what the Prometheus operator reads. */ -}}
{{- define "deferred-quota.monitoringLabels" -}}
{{- $own := dict "app.kubernetes.io/name" "deferred-quota" "app.kubernetes.io/part-of" "deferred-quota" -}}
{{- merge $own (dict "app.kubernetes.io/component" "monitoring") .Values.monitoring.labels | toYaml -}}
{{- end -}}

{{- define "deferred-quota.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Room for the pods of both Deployments while they are replaced. */ -}}
{{- define "deferred-quota.roomForPods" -}}
{{- mul 2 (add (.Values.webhook.replicas | int) (.Values.controller.replicas | int)) -}}
{{- end -}}

{{- /* Where an entry is called, of a list: the root, the path. */ -}}
{{- define "deferred-quota.client" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- if $root.Values.url -}}
url: {{ printf "%s%s" (trimSuffix "/" $root.Values.url) $path | toJson }}
{{- else -}}
service:
  name: deferred-quota-webhook
  namespace: {{ $root.Release.Namespace | toJson }}
  path: {{ $path }}
  port: 443
{{- end }}
{{- with $root.Values.ca }}
caBundle: {{ b64enc . }}
{{- end }}
{{- end -}}

{{- /* Which form the mask has. */ -}}
{{- define "deferred-quota.mask" -}}
{{- if ne .Values.mask "auto" -}}
{{- .Values.mask -}}
{{- else if include "deferred-quota.hasMutatingPolicies" . -}}
policy
{{- else -}}
webhook
{{- end -}}
{{- end -}}

{{- /* What decides about new pods. */ -}}
{{- define "deferred-quota.creation" -}}
{{- if ne .Values.creation "auto" -}}
{{- .Values.creation -}}
{{- else if include "deferred-quota.hasMutatingPolicies" . -}}
policy
{{- else -}}
webhook
{{- end -}}
{{- end -}}

{{- /* Whether the entries of the webhook do it: also beside policies that come with this upgrade. Empty if not. */ -}}
{{- define "deferred-quota.entriesDecide" -}}
{{- if eq (include "deferred-quota.creation" .) "webhook" -}}
true
{{- else if include "deferred-quota.hasMutatingPolicies" . -}}
{{- $asked := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "deferred-quota" -}}
{{- if and $asked (not (lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicy" "" "deferred-quota-gate")) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Whether pods may need that some quota covers them, which only the webhook can tell: empty if not. */ -}}
{{- define "deferred-quota.needsQuotas" -}}
{{- if or .Values.configuration.limitedResources .Values.configuration.requireQuotaForPriority }}true{{ end -}}
{{- end -}}

{{- define "deferred-quota.mustSpecifyAtCreation" -}}
{{- if eq (.Values.configuration.mustSpecify | default "create") "create" }}true{{ end -}}
{{- end -}}

{{- /* Whether also a pod that takes nothing may be refused at its bind, as CEL. */ -}}
{{- define "deferred-quota.gatesAll" -}}
{{- if or (include "deferred-quota.needsQuotas" .) (eq (.Values.configuration.mustSpecify | default "create") "bind") }}true{{ else }}false{{ end -}}
{{- end -}}

{{- define "deferred-quota.hasMutatingPolicies" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}true{{ end -}}
{{- end -}}

{{- /* Whether another program brought a definition, by its name: empty if not. It goes with that program. */ -}}
{{- define "deferred-quota.isForeign" -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" . -}}
{{- if ne (dig "metadata" "labels" "app.kubernetes.io/part-of" "" .) "deferred-quota" }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Names as a list in CEL. */ -}}
{{- define "deferred-quota.cel" -}}
[
{{- range $index, $name := . -}}
{{- $text := toRawJson $name -}}
{{- if $index }}, {{ end }}'{{ substr 1 (sub (len $text) 1 | int) $text | replace "\\\"" "\"" | replace "'" "\\'" }}'
{{- end -}}
]
{{- end -}}

{{- define "deferred-quota.trusted" -}}
{{- include "deferred-quota.cel" (.Values.configuration.trustedUsers | default list | uniq | sortAlpha) -}}
{{- end -}}

{{- define "deferred-quota.glassBreakers" -}}
{{- $groups := list "system:masters" -}}
{{- if hasKey .Values.configuration "breakGlassGroups" }}{{ $groups = .Values.configuration.breakGlassGroups }}{{ end -}}
{{- include "deferred-quota.cel" ($groups | uniq | sortAlpha) -}}
{{- end -}}

{{- /* What the live registration says, as JSON: `found`, `resources`, `leftOut`. */ -}}
{{- define "deferred-quota.registered" -}}
{{- $live := lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" "deferred-quota" -}}
{{- $leftOut := list -}}
{{- range $entry := $live.webhooks -}}
{{- if eq $entry.name "bind.deferredquota.io" -}}
{{- range dig "namespaceSelector" "matchExpressions" list $entry -}}
{{- if and (eq .key "kubernetes.io/metadata.name") (eq .operator "NotIn") }}{{ $leftOut = .values }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $resources := dig "metadata" "annotations" "deferredquota.io/deferred-resources" "" $live | splitList "," | compact -}}
{{- dict "found" (not (empty $live)) "resources" $resources "leftOut" $leftOut | toJson -}}
{{- end -}}

{{- /* Limits that the API server does not enforce, of a list: a namespace or "" for all, a resource or "" for all. */ -}}
{{- define "deferred-quota.incomplete" -}}
{{- $resource := index . 1 -}}
{{- range (lookup "v1" "ResourceQuota" (index . 0) "").items -}}
{{- $status := dig "status" "hard" dict . -}}
{{- if ne (dig "metadata" "annotations" "deferredquota.io/exclude" "" .) "true" -}}
{{- range $key := dig "spec" "hard" dict . | keys -}}
{{- if and (or (not $resource) (eq $key $resource)) (not (hasKey $status $key)) }}{{ $key }} {{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Resources that are charged beside compute, as JSON. */ -}}
{{- define "deferred-quota.guard.list" -}}
{{- $wanted := .Values.configuration.deferredResources | default list -}}
{{- $masks := list (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "deferred-quota") -}}
{{- if include "deferred-quota.hasMutatingPolicies" . -}}
{{- $masks = append $masks (lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicy" "" "deferred-quota-mask") -}}
{{- end -}}
{{- $masks = toString $masks -}}
{{- $kept := list -}}
{{- range $name := (include "deferred-quota.registered" . | fromJson).resources -}}
{{- if not (has $name $wanted) -}}
{{- if or (contains (squote $name) $masks) (include "deferred-quota.incomplete" (list "" $name)) }}{{ $kept = append $kept $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- concat $wanted $kept | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- /* Resources that are hidden beside compute, as JSON. */ -}}
{{- define "deferred-quota.mask.list" -}}
{{- $live := include "deferred-quota.registered" . | fromJson -}}
{{- $names := list -}}
{{- range $name := .Values.configuration.deferredResources | default list -}}
{{- if or (not $live.found) (has $name $live.resources) }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- define "deferred-quota.guard.resources" -}}
{{- include "deferred-quota.guard.list" . | fromJsonArray | join "," -}}
{{- end -}}

{{- define "deferred-quota.guard.keys" -}}
{{- include "deferred-quota.keys" (include "deferred-quota.guard.list" . | fromJsonArray) -}}
{{- end -}}

{{- define "deferred-quota.mask.keys" -}}
{{- include "deferred-quota.keys" (include "deferred-quota.mask.list" . | fromJsonArray) -}}
{{- end -}}

{{- define "deferred-quota.keys" -}}
{{- include "deferred-quota.cel" (concat (list "cpu" "memory" "requests.cpu" "requests.memory" "limits.cpu" "limits.memory") .) -}}
{{- end -}}

{{- /* Namespaces that every selector leaves out, as JSON. */ -}}
{{- define "deferred-quota.shipped" -}}
{{- list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace | toJson -}}
{{- end -}}

{{- /* Namespaces that are exempt and that no guard is asked about, besides those above, as JSON. */ -}}
{{- define "deferred-quota.guard.spared" -}}
{{- $live := include "deferred-quota.registered" . | fromJson -}}
{{- $names := list -}}
{{- range $name := without (.Values.configuration.exemptNamespaces | default list) "kube-system" "kube-public" "kube-node-lease" .Release.Namespace -}}
{{- if or (has $name $live.leftOut) (not (include "deferred-quota.incomplete" (list $name ""))) }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- define "deferred-quota.guard.leftOut" -}}
{{- concat (include "deferred-quota.shipped" . | fromJsonArray) (include "deferred-quota.guard.spared" . | fromJsonArray) | toJson -}}
{{- end -}}

{{- define "deferred-quota.mask.leftOut" -}}
{{- $live := include "deferred-quota.registered" . | fromJson -}}
{{- $shipped := include "deferred-quota.shipped" . | fromJsonArray -}}
{{- $names := list -}}
{{- range $name := concat (.Values.configuration.exemptNamespaces | default list) $live.leftOut -}}
{{- if not (has $name $shipped) }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- concat $shipped ($names | uniq | sortAlpha) | toJson -}}
{{- end -}}

{{- /* Exempt namespaces as the policies of our service accounts list them. */ -}}
{{- define "deferred-quota.guard.exempt" -}}
{{- $spared := include "deferred-quota.guard.spared" . | fromJsonArray -}}
{{- $names := without (concat (list "kube-system" "kube-public" "kube-node-lease") $spared) .Release.Namespace -}}
{{- include "deferred-quota.cel" (prepend ($names | uniq | sortAlpha) .Release.Namespace) -}}
{{- end -}}

{{- /* What the values cannot be together, or here. */ -}}
{{- define "deferred-quota.refuse" -}}
{{- $guard := lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" "deferred-quota" | default dict -}}
{{- if index (dig "metadata" "annotations" dict $guard) "deferredquota.io/emergency-since" -}}
{{- fail "the emergency is open, and guards would be back without a recount: mend the Deployments with kubectl or scripts/install, and run deferred-quota emergency close first" -}}
{{- end -}}
{{- if and (not (include "deferred-quota.hasMutatingPolicies" .)) (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- $none := printf "Kubernetes %s has no MutatingAdmissionPolicy in admissionregistration.k8s.io/v1 (1.36 has)" .Capabilities.KubeVersion.Version -}}
{{- if eq .Values.mask "policy" }}{{ fail (printf "mask: policy: %s; use webhook, or auto" $none) }}{{ end -}}
{{- if eq .Values.creation "policy" }}{{ fail (printf "creation: policy: %s; use webhook, or auto" $none) }}{{ end -}}
{{- if .Values.stamps }}{{ fail (printf "stamps: %s; nothing but the mark of bound pods needs it" $none) }}{{ end -}}
{{- end -}}
{{- if has .Release.Namespace (list "default" "kube-system" "kube-public" "kube-node-lease") -}}
{{- fail (printf "namespace %s: deferred-quota has to have a namespace of its own: add --namespace deferred-quota-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- $clients := .Values.clientAuth | default dict -}}
{{- if ne (empty $clients.ca) (empty $clients.names) -}}
{{- fail "clientAuth: ca and names go together: the CA of client certificates, and who may show one" -}}
{{- end -}}
{{- if and $clients.ca .Values.url -}}
{{- fail "clientAuth: is about a webhook in the cluster; at url, start it with --client-ca and --client-name" -}}
{{- end -}}
{{- if include "deferred-quota.certManager" . -}}
{{- if include "deferred-quota.rotates" . -}}
{{- fail "certManager: configuration.certificates.rotate is true: one of both keeps the certificates; leave it out, or set it to false" -}}
{{- end -}}
{{- if or .Values.ca .Values.url -}}
{{- fail "certManager: is about a webhook in the cluster, into whose registrations its injector writes the CA: leave url and ca empty" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ca (include "deferred-quota.rotates" .) -}}
{{- fail "ca: the controller writes the caBundle while configuration.certificates.rotate is true: leave ca empty, or set that to false" -}}
{{- end -}}
{{- end -}}

{{- /* Fields of the configuration of which a part waits for the next upgrade, with commas. */ -}}
{{- define "deferred-quota.waiting" -}}
{{- $fields := list -}}
{{- if ne (include "deferred-quota.guard.list" .) (include "deferred-quota.mask.list" .) }}{{ $fields = append $fields "deferredResources" }}{{ end -}}
{{- if ne (include "deferred-quota.guard.leftOut" .) (include "deferred-quota.mask.leftOut" .) }}{{ $fields = append $fields "exemptNamespaces" }}{{ end -}}
{{- if and (eq (include "deferred-quota.creation" .) "policy") (include "deferred-quota.entriesDecide" .) }}{{ $fields = append $fields "creation" }}{{ end -}}
{{- join ", " $fields -}}
{{- end -}}
