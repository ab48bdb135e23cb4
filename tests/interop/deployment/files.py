"""Checks the compose files, and the names of options in all files of deployment and their guides."""

import pathlib
import re
import tomllib

import yaml

from containers import COMPOSE, ROOT, services

FILES = [path for path in (ROOT / "host/packaging").glob("*/**/*") if path.is_file() and {"compose", "helm"} & set(path.parts)]
GUIDES = [ROOT / "docs/guides/containers.md", ROOT / "docs/guides/kubernetes.md"]
COMMANDS = (ROOT / "docs/reference/commands.md").read_text()
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
# An option behind one of these words on its line is not one of `gristmill serve`.
PROGRAM = re.compile(r"\b(gristmill (?:[a-z]+(?: [a-z]+)?)|docker|kubectl|helm|openssl|pg_isready|pg_dump|skopeo)\b")


def options_of(command):
    """The options of a command, such as `keys create`, with those of the connection."""
    section = re.search(rf"^## gristmill {command}$(.*?)(?=^## |\Z)", COMMANDS, re.M | re.S)
    return section and set(re.findall(r"(--[a-z][a-z-]+)", section[1] + COMMANDS.split("\n## ")[0]))


def check_options(path, variables):
    for line in path.read_text().replace("\\\n", "").splitlines():
        where = f"{path.relative_to(ROOT)}: {line.strip()}"
        unknown = set(re.findall(r"\bGRISTMILL_[A-Z_]+", line)) - variables
        assert not unknown, f"{where}: no such variables: {unknown}"
        for found in re.finditer(r"(?<![\w-])--[a-z][a-z-]+", line):
            before = PROGRAM.findall(line[: found.start()])
            command = before[-1].removeprefix("gristmill ") if before else "serve"
            if before and not before[-1].startswith("gristmill "):
                continue
            options = options_of(command) or options_of(command.split()[0])
            assert options and found[0] in options, f"{where}: `gristmill {command}` has no option {found[0]}"


def check_compose(folder):
    described = yaml.safe_load((COMPOSE / folder / "compose.yaml").read_text())
    used = set()
    for name, service in described["services"].items():
        where = f"{folder}: {name}"
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], where
        repository, _, tag = service["image"].partition(":")
        assert tag and tag != "latest", f"{where}: {service['image']}"
        if repository == "gristmill":
            assert tag == VERSION, f"{where}: the version is {VERSION}"
            assert service["stop_grace_period"] == "90s" and "/tmp" in service["tmpfs"], where
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / folder / source).exists(), f"{where}: no {source}"
                assert volume.endswith(":ro"), f"{where}: {volume}"
            else:
                used.add(source)
        for variable, value in service.get("environment", {}).items():
            assert "PASSWORD" not in variable or re.fullmatch(r"\$\{\w+_PASSWORD(:\?[^}]+)?\}", value), f"{where}: {variable} has a default"
    assert used == set(described["volumes"]), f"{folder}: {used ^ set(described['volumes'])}"


def main():
    for folder in ("one-host", "two-hosts"):
        check_compose(folder)
    print("ok: the services of the compose files are confined, and their files exist")
    chart = yaml.safe_load((ROOT / "host/packaging/helm/gristmill/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION, f"Chart.yaml: the version is {VERSION}"
    for path in ("handlers/Cargo.toml", "guest-sdk/python/pyproject.toml", "guest-sdk/javascript/package.json"):
        assert re.search(rf'^\s*"?version"?\s*[=:]\s*"{re.escape(VERSION)}"', (ROOT / path).read_text(), re.M), f"{path}: the version is {VERSION}"
    (scraped,) = yaml.safe_load((COMPOSE / "two-hosts/prometheus.yml").read_text())["scrape_configs"]
    targets = scraped["static_configs"][0]["targets"]
    hosts = {name: service["environment"]["GRISTMILL_METRICS_LISTEN"] for name, service in services("two-hosts").items() if service["image"].startswith("gristmill:")}
    assert scraped["job_name"] == "gristmill" and {target.split(":")[0]: f"0.0.0.0:{target.split(':')[1]}" for target in targets} == hosts, targets
    print("ok: Prometheus reads the metrics of both hosts")
    variables = set(re.findall(r"\bGRISTMILL_[A-Z_]+", COMMANDS))
    assert len(FILES) > 10 and len(variables) > 30
    for path in FILES + GUIDES:
        check_options(path, variables)
    print(f"ok: variables and options in {len(FILES + GUIDES)} files exist")


main()
