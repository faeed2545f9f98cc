{{/* The text of a file of manifests/, for the namespace of the release. */}}
{{- define "sluice.manifest" -}}
{{- .root.Files.Get (printf "manifests/%s.yaml" .name) | replace "sluice-system" .root.Release.Namespace -}}
{{- end -}}

{{/* args with the values of flags in place of those that they have; one that they have not is an error. */}}
{{- define "sluice.args" -}}
{{- $flags := .flags -}}
{{- $out := list -}}
{{- $found := list -}}
{{- range .args -}}
{{- $name := regexFind "^--[a-z-]+" . | trimPrefix "--" -}}
{{- if hasKey $flags $name -}}
{{- $out = append $out (printf "--%s=%s" $name (get $flags $name)) -}}
{{- $found = append $found $name -}}
{{- else -}}
{{- $out = append $out . -}}
{{- end -}}
{{- end -}}
{{- if ne (len $found) (len $flags) -}}
{{- fail (printf "the manifest has the flags %v of %v" $found (keys $flags)) -}}
{{- end -}}
{{- toYaml $out -}}
{{- end -}}

{{/* What both pods have, set in a pod's spec. */}}
{{- define "sluice.pod" -}}
{{- $values := .values -}}
{{- $image := .root.Values.image -}}
{{- $_ := set .spec "nodeSelector" $values.nodeSelector -}}
{{- $_ := set .spec "tolerations" $values.tolerations -}}
{{- with .root.Values.imagePullSecrets -}}
{{- $_ := set $.spec "imagePullSecrets" . -}}
{{- end -}}
{{- range concat (default list .spec.initContainers) .spec.containers -}}
{{- $_ := set . "image" (printf "%s:%s" $image.repository $image.tag) -}}
{{- $_ := set . "imagePullPolicy" $image.pullPolicy -}}
{{- end -}}
{{- $_ := set (first .spec.containers) "resources" $values.resources -}}
{{- end -}}
