{{- define "gristmill.selector" -}}
app.kubernetes.io/name: gristmill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gristmill.labels" -}}
{{ include "gristmill.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The pod of one host, and of each host of a database. */ -}}
{{- define "gristmill.pod" -}}
metadata:
  labels:
    {{- include "gristmill.labels" . | nindent 4 }}
  annotations:
    # A changed configuration starts the hosts again.
    gristmill/config: {{ .Values.config | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  automountServiceAccountToken: false
  # Kubernetes' variables for Services are no options of the host, but have similar names.
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    # Otherwise each start opens the data directory to the group.
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  containers:
    - name: gristmill
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      env:
        - name: GRISTMILL_LISTEN
          value: 0.0.0.0:8080
        # A directory below the volume's top, which is open to the group of the pod.
        - name: GRISTMILL_DATA_DIR
          value: /data/gristmill
        - name: GRISTMILL_CONFIG
          value: /etc/gristmill/gristmill.toml
        {{- if .Values.secretsKey.existingSecret }}
        - name: GRISTMILL_SECRETS_KEY
          value: /etc/gristmill-key/secrets.key
        {{- end }}
        {{- if .Values.metrics.enabled }}
        - name: GRISTMILL_METRICS_LISTEN
          value: 0.0.0.0:9090
        {{- end }}
        {{- if .Values.database.existingSecret }}
        - name: GRISTMILL_DATABASE
          valueFrom:
            secretKeyRef:
              name: {{ .Values.database.existingSecret }}
              key: {{ .Values.database.key }}
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        - name: GRISTMILL_CLUSTER_LISTEN
          value: 0.0.0.0:7000
        - name: GRISTMILL_CLUSTER_ADVERTISE
          value: $(POD_IP):7000
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: 8080
        {{- if .Values.metrics.enabled }}
        - name: metrics
          containerPort: 9090
        {{- end }}
        {{- if .Values.database.existingSecret }}
        - name: cluster
          containerPort: 7000
        {{- end }}
      # A start after a crash reads the journal, and an upgrade copies the tables: half an hour at most.
      startupProbe:
        httpGet: {path: /livez, port: http}
        periodSeconds: 2
        failureThreshold: 900
      livenessProbe:
        httpGet: {path: /livez, port: http}
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        {{- if .Values.database.existingSecret }}
        # /readyz fails on each host that stands by, so the Deployment would never be complete; standbys forward calls.
        httpGet: {path: /livez, port: http}
        {{- else }}
        httpGet: {path: /readyz, port: http}
        {{- end }}
        periodSeconds: 2
        timeoutSeconds: 5
      {{- if .Values.database.existingSecret }}
      lifecycle:
        preStop:
          # Until no node sends new connections to this pod.
          sleep: {seconds: 5}
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - name: data
          mountPath: /data
        - name: tmp
          mountPath: /tmp
        - name: config
          mountPath: /etc/gristmill
          readOnly: true
        {{- if .Values.secretsKey.existingSecret }}
        - name: secrets-key
          mountPath: /etc/gristmill-key
          readOnly: true
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    - name: config
      configMap:
        name: {{ .Release.Name }}
    {{- with .Values.secretsKey }}
    {{- if .existingSecret }}
    - name: secrets-key
      secret:
        secretName: {{ .existingSecret }}
        # Kubernetes adds the permission of the group (fsGroup) to read it.
        defaultMode: 0400
        items:
          - key: {{ .key }}
            path: secrets.key
    {{- end }}
    {{- end }}
    {{- if .Values.database.existingSecret }}
    - name: data
      emptyDir:
        sizeLimit: {{ .Values.storage.size }}
    {{- end }}
  {{- if .Values.database.existingSecret }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "gristmill.selector" . | nindent 10 }}
  {{- end }}
  {{- range $name := list "nodeSelector" "tolerations" "affinity" }}
  {{- with index $.Values $name }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}
