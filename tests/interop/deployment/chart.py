"""Checks the Helm chart: lint, each shape of its objects, refusals and the package.

Usage: chart.py DIRECTORY, for the package.
"""

import pathlib
import re
import sys
import tarfile
import tomllib

import helm_python as helm
import kubernetes_validate
import yaml

from containers import ROOT

CHART = ROOT / "host/packaging/helm/gristmill"
RULES = ROOT / "docs/monitoring/prometheus/gristmill.rules.yml"
GUIDE = ROOT / "docs/guides/kubernetes.md"
# The oldest version that the chart supports, and the newest one that the library knows.
VERSIONS = (re.search(r">=([\d.]+)", (CHART / "Chart.yaml").read_text())[1], kubernetes_validate.latest_version())
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
OF_OPERATOR = "monitoring.coreos.com/v1"

DATABASE = {"database": {"existingSecret": "database"}}
SECRETS_KEY = {"secretsKey": {"existingSecret": "key"}}
INGRESS = {"ingress": {"enabled": True, "host": "mill.example.com", "className": "nginx", "tlsSecret": "certificate", "annotations": {"a/b": "c"}}}
MONITORING = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "labels": {"release": "p"}}, "rules": {"enabled": True, "labels": {"release": "p"}}}}
PLACED = {
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": "b"},
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "image": {"tag": "test", "pullSecrets": ["registry"]},
    "storage": {"className": "fast"},
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "config": "",
}
SHAPES = {
    "defaults": ({}, {"StatefulSet", "ConfigMap", "Service"}),
    "one host with a database": (DATABASE | SECRETS_KEY, {"Deployment", "ConfigMap", "Service"}),
    "several hosts": ({"replicas": 3} | DATABASE | SECRETS_KEY, {"Deployment", "ConfigMap", "Service", "PodDisruptionBudget"}),
    "ingress": (INGRESS, {"StatefulSet", "ConfigMap", "Service", "Ingress"}),
    "monitoring": (MONITORING, {"StatefulSet", "ConfigMap", "Service", "ServiceMonitor", "PrometheusRule"}),
    "a key of its own": (SECRETS_KEY, {"StatefulSet", "ConfigMap", "Service"}),
    "placed": (PLACED, {"StatefulSet", "ConfigMap", "Service"}),
    "everything": (
        {"replicas": 2} | DATABASE | SECRETS_KEY | INGRESS | MONITORING | PLACED,
        {"Deployment", "ConfigMap", "Service", "PodDisruptionBudget", "Ingress", "ServiceMonitor", "PrometheusRule"},
    ),
}
REFUSED = (
    ({"replicas": 2}, "several hosts need a database: name its Secret in database.existingSecret, or set replicas to 1"),
    (DATABASE, "share one key of stored secrets: name its Secret in secretsKey.existingSecret"),
    ({"ingress": {"enabled": True}}, "ingress.enabled needs ingress.host"),
    ({"metrics": {"serviceMonitor": {"enabled": True}}}, "metrics.serviceMonitor.enabled needs metrics.enabled"),
    ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    ({"replicas": "2"}, "at '/replicas': got string, want integer"),
    ({"replica": 2}, "additional properties 'replica' not allowed"),
    ({"database": {"url": "postgres://"}}, "at '/database': additional properties 'url' not allowed"),
    ({"storage": {"size": "much"}}, "at '/storage/size': 'much' does not match pattern"),
    ({"terminationGracePeriodSeconds": 30}, "at '/terminationGracePeriodSeconds': minimum: got 30, want 60"),
)


class Pod:
    def __init__(self, workload, objects):
        self.workload = workload
        self.labels, self.spec = workload["spec"]["template"]["metadata"]["labels"], workload["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.ports = {port["name"] for port in self.container["ports"]}
        self.objects = objects

    def started(self, secrets, address):
        """The environment of the container, and the files of its mounts, as Kubernetes would make them."""
        environment = {}
        for variable in self.container["env"]:
            source = variable.get("valueFrom", {})
            if secret := source.get("secretKeyRef"):
                value = secrets[secret["name"]][secret["key"]]
            elif source:
                assert source == {"fieldRef": {"fieldPath": "status.podIP"}}, source
                value = address
            else:
                value = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], variable["value"])
            environment[variable["name"]] = value
        return environment, {mount["mountPath"]: self.files(mount["name"], secrets) for mount in self.container["volumeMounts"]}

    def probes(self):
        """The paths that Kubernetes asks before callers reach the pod."""
        return {self.container[probe]["httpGet"]["path"] for probe in PROBES}

    def files(self, volume, secrets):
        for found in self.spec["volumes"]:
            if found["name"] == volume and "configMap" in found:
                (config,) = [one for one in self.objects if one["kind"] == "ConfigMap"]
                assert config["metadata"]["name"] == found["configMap"]["name"]
                return config["data"]
            if found["name"] == volume and "secret" in found:
                return {item["path"]: secrets[found["secret"]["secretName"]][item["key"]] for item in found["secret"]["items"]}
        return {}


def rendered(values):
    """All objects of the chart with these values."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name="mill", namespace="mills")
    notes = texts.pop("gristmill/templates/NOTES.txt")
    assert "keys create --name admin --scope admin" in notes and "gristmill deploy" in notes, notes
    return [found for text in texts.values() for found in yaml.safe_load_all(text) if found]


def pod_of(objects):
    (workload,) = [one for one in objects if one["kind"] in ("Deployment", "StatefulSet")]
    return Pod(workload, objects)


def check_shape(name, values, kinds):
    objects = rendered(values)
    assert {one["kind"] for one in objects} == kinds, f"{name}: {[one['kind'] for one in objects]}"
    for one in objects:
        for version in VERSIONS:
            if one["apiVersion"] != OF_OPERATOR:
                kubernetes_validate.validate(one, version, strict=True)
    pod = pod_of(objects)
    check_pod(name, pod)
    for one in objects:
        check_references(f"{name}: {one['kind']}", one, pod)


def check_pod(name, pod):
    """The promises about the security of the pod, and its names of volumes and ports."""
    spec, container = pod.spec, pod.container
    assert spec["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}.items(), name
    expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == expected and spec["automountServiceAccountToken"] is False, name
    assert spec["terminationGracePeriodSeconds"] >= 90 and container["resources"]["limits"]["memory"], name
    claims = pod.workload["spec"].get("volumeClaimTemplates", [])
    volumes = [volume["name"] for volume in spec["volumes"]] + [claim["metadata"]["name"] for claim in claims]
    assert sorted(volumes) == sorted(mount["name"] for mount in container["volumeMounts"]), f"{name}: {volumes}"
    assert {"/data", "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}, name
    for probe in PROBES:
        assert container[probe]["httpGet"]["port"] in pod.ports, f"{name}: {probe}"


def check_references(name, one, pod):
    spec = one.get("spec", {})
    if one["kind"] == "Service":
        assert spec["selector"].items() <= pod.labels.items(), name
        assert all(port["targetPort"] in pod.ports for port in spec["ports"]), name
    elif one["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        assert spec["selector"]["matchLabels"].items() <= pod.labels.items(), name
    elif one["kind"] == "ConfigMap":
        tomllib.loads(one["data"]["gristmill.toml"])
    elif one["kind"] == "Ingress":
        backend = spec["rules"][0]["http"]["paths"][0]["backend"]["service"]
        named = [found["metadata"]["name"] for found in pod.objects if found["kind"] == "Service" and found["spec"]["ports"][0]["name"] == backend["port"]["name"]]
        assert named == [backend["name"]] and spec["tls"][0]["hosts"] == [spec["rules"][0]["host"]], name
    elif one["kind"] == "PrometheusRule":
        assert spec == yaml.safe_load(RULES.read_text()), f"{name} differs from {RULES}"
    elif one["kind"] == "ServiceMonitor":
        matching = [found for found in pod.objects if found["kind"] == "Service" and spec["selector"]["matchLabels"].items() <= found["metadata"]["labels"].items()]
        assert [found["spec"]["ports"][0]["name"] for found in matching] == [spec["endpoints"][0]["port"]], name
        # The alerts need this name of the job.
        assert matching[0]["metadata"]["labels"][spec["jobLabel"]] == "gristmill" and spec["endpoints"][0]["honorLabels"], name


def check_guide():
    """Each value in the table of the guide exists."""
    table = re.findall(r"^\| (`.*?) \|", GUIDE.read_text(), re.M)
    names = [name for cell in table for name in re.findall(r"`([\w.]+)`", cell)]
    with helm.Chart.load(CHART) as chart:
        for name in names:
            value = chart.values
            for part in name.split("."):
                assert part in value, f"{GUIDE}: no value {name}"
                value = value[part]
    assert len(names) > 10, names


def check_refusals():
    for values, message in REFUSED:
        try:
            rendered(values)
        except helm.HelmError as error:
            assert message in str(error), f"{values}: {error}"
        else:
            raise AssertionError(f"the chart accepts {values}")


def main(directory):
    report = helm.lint(CHART, strict=True)
    faults = [found for found in report["messages"] if found["severity"] > 1]
    assert not faults and not report["errors"], report
    for name, (values, kinds) in SHAPES.items():
        check_shape(name, values, kinds)
    print(f"ok: {len(SHAPES)} shapes of the chart, for Kubernetes {VERSIONS[0]} and {VERSIONS[1]}")
    check_guide()
    check_refusals()
    print(f"ok: the chart refuses {len(REFUSED)} mistakes")
    with tarfile.open(helm.package(CHART, destination=directory)) as package:
        rules = package.extractfile("gristmill/files/gristmill.rules.yml").read()
    assert rules == RULES.read_bytes(), "the package has other rules"
    print("ok: the package has the rules of docs/monitoring")


if __name__ == "__main__":
    main(*sys.argv[1:])
