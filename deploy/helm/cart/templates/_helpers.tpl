{{- define "cart.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "cart.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cart.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "cart.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The namespace of the engines' Service. */}}
{{- define "cart.replicasNamespace" -}}
{{- default .Release.Namespace .Values.replicas.service.namespace -}}
{{- end -}}

{{/* Where the replicas are, which is said once: here or in config. */}}
{{- define "cart.discovery" -}}
{{- $said := or .Values.config.workers (dig "discovery" "dns" "" .Values.config) (dig "discovery" "service" "" .Values.config) -}}
{{- $service := .Values.replicas.service -}}
{{- if not $service.name -}}
  {{- if not $said -}}
    {{- fail "no replicas: set replicas.service.name, config.workers, config.discovery.dns or config.discovery.service" -}}
  {{- end -}}
{{- else if or (dig "discovery" "dns" "" .Values.config) (dig "discovery" "service" "" .Values.config) -}}
  {{- fail "two sources of replicas: either replicas.service.name or config.discovery.dns or config.discovery.service" -}}
{{- else if eq .Values.replicas.by "dns" -}}
dns: {{ $service.scheme }}://{{ $service.name }}.{{ include "cart.replicasNamespace" . }}.svc.{{ .Values.replicas.clusterDomain }}:{{ $service.port }}
{{- else -}}
service: {{ .Release.Namespace }}-{{ include "cart.fullname" . }}@kubernetescrd
{{- end -}}
{{- end -}}

{{/* The routes' end: CART, behind what has to come before it, and a service that is never asked. */}}
{{- define "cart.noop" -}}
services:
  # CART answers every request itself.
  - kind: TraefikService
    name: noop@internal
{{- end -}}
