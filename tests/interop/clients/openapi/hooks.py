"""Gives schemathesis what a schema does not contain: which objects exist and which names are free.

Most calls with a well-formed path name an object that exists: an endpoint that `run.sh` deploys, or
an object that an earlier call created. Otherwise nearly every answer would be 404, and the code
behind it would not be tested. `run.sh` sets the environment.
"""

import atexit
import collections
import itertools
import os
import random

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

with open(os.environ["GRISTMILL_COMPONENT"], "rb") as file:
    COMPONENT = file.read()
ENDPOINTS = os.environ["GRISTMILL_ENDPOINTS"].split()
# A key with every scope except `admin`, of an owner without objects.
OTHER_KEY = os.environ["GRISTMILL_OTHER_KEY"]
# Objects that must not be deleted, since later calls need them.
PROTECTED = {
    *ENDPOINTS,
    *(key.split("_")[1] for key in (os.environ["GRISTMILL_ADMIN_KEY"], OTHER_KEY)),
}

# No call reaches a receiver: the names do not resolve, and addresses inside are refused.
URLS = ["http://receiver.invalid/a", "HTTPS://receiver.invalid:8443/?q=1"]
HOSTS = ["example.com", "*.example.com:8443", "[::1]:80", "10.0.0.1", "10.0.0.1!private"]
schemathesis.openapi.format("uri", st.sampled_from(URLS))
schemathesis.openapi.format("host-pattern", st.sampled_from(HOSTS))
REGISTRIES = ["docker.io", "registry.example:5000", "localhost", "[::1]:5000", "10.0.0.1"]
schemathesis.openapi.format("registry-host", st.sampled_from(REGISTRIES))
CRONS = ["@daily", "0 4 * * *", "*/15 8-17 * * MON-FRI", "0 0 1,15 JAN *"]
schemathesis.openapi.format("cron", st.sampled_from(CRONS))
schemathesis.openapi.format("time-zone", st.sampled_from(["UTC", "Europe/Berlin", "Africa/Cairo"]))
schemathesis.openapi.media_type("application/wasm", st.just(COMPONENT))
schemathesis.openapi.media_type("application/octet-stream", st.binary(max_size=5_000))

# Paths on volumes: none is both a file and a directory.
FILES = ["a.txt", "models/b c.bin", "models/deep/ä"]
DIRECTORY = "made/empty"
# For calls that may create either one.
EITHER = "made/either"

dice = random.Random(int(os.environ["GRISTMILL_SEED"]))
numbers = itertools.count()
jobs = {endpoint: collections.deque(maxlen=40) for endpoint in ENDPOINTS}
KINDS = ("templates", "endpoints", "networkvolumes", "schedules", "keys", "job-actions")
made = {kind: collections.deque(maxlen=40) for kind in KINDS}


# Calls on a job in the stateful phase, by operation and status code.
steps = collections.Counter()
atexit.register(lambda: print("Steps on jobs:", dict(steps.most_common())))


@schemathesis.check
def another_owner_finds_nothing(context, response, case):
    """An object that the operator's call finds by its name does not exist for another owner."""
    names_own = case.method == "PUT" and case.path.startswith("/v1/handlers/")
    if response.status_code != 200 or not case.path_parameters or names_own:
        return
    if case.path == "/v1/templates/{templateId}" and case.method == "GET":
        template = response.json()
        if template["isPublic"] or template["isPlatform"]:
            return
    request = response.request
    headers = {"Authorization": f"Bearer {OTHER_KEY}"}
    headers["Content-Type"] = request.headers.get("Content-Type", "application/json")
    answer = requests.request(
        request.method, request.url, headers=headers, data=request.body, timeout=30
    )
    assert answer.status_code == 404, f"another owner is answered {answer.status_code}"


def is_well_formed(case, location):
    component = case.meta.components.get(location) if case.meta else None
    return component is None or component.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    if is_well_formed(case, ParameterLocation.PATH) and case.path_parameters:
        name_what_exists(case, case.path_parameters)
    if case.meta and case.meta.generation.mode.is_positive and isinstance(case.body, dict):
        make_possible(case, case.body)
    if case.meta and case.meta.generation.mode.is_positive and (case.query or {}).get("directory"):
        # A directory has no content.
        case.body = b""
    if case.meta and case.meta.generation.mode.is_positive and "Idempotency-Key" in case.headers:
        # A key that was used before belongs to another submission.
        case.headers["Idempotency-Key"] = f"{case.headers['Idempotency-Key'][:200]}-{next(numbers)}"
    wait_a_moment(case)


def is_step(case):
    """Whether the call is a step of a stateful run, whose path comes from the step before it."""
    return case.meta and case.meta.phase.name == TestPhase.STATEFUL


def is_change(case):
    """Whether the call changes the object that its path names, as PATCH or as POST."""
    return case.method == "PATCH" or case.path.endswith("/update")


def name_what_exists(case, path):
    if "rest" in path:
        # Such a call waits for its job, so it needs an endpoint whose handler answers.
        path["endpoint"] = ENDPOINTS[0]
        return
    if is_step(case) and path.get("endpoint") in ENDPOINTS:
        return
    if "endpoint" in path:
        if path["endpoint"] not in made["endpoints"] and dice.random() < 0.9:
            path["endpoint"] = dice.choice(ENDPOINTS)
        known = jobs.get(path["endpoint"])
        if "job" in path and known and dice.random() < 0.9:
            path["job"] = dice.choice(known)
        return
    if case.path.endswith("/files/{path}"):
        path["path"] = path_on_volume((case.query or {}).get("directory", False))
    if case.path.endswith("/files") and case.query and case.query.get("path"):
        case.query["path"] = "models"
    if path.get("id") == "":
        # With an empty id the path would be that of another operation.
        path["id"] = "unknown"
    kind = case.path.split("/")[2]
    name = "templateId" if kind == "templates" else "id"
    known = made.get(kind) or ["unknown"]
    if name in path and path[name] not in known and not is_step(case) and dice.random() < 0.7:
        path[name] = dice.choice(known)
    if (case.method == "DELETE" or is_change(case)) and path.get(name) in PROTECTED:
        path[name] = dice.choice(known)


def path_on_volume(is_directory):
    """A path for a call with this value of `directory`, which is malformed in some calls."""
    match str(is_directory).lower():
        case "false":
            return dice.choice(FILES)
        case "true":
            return DIRECTORY
        case _:
            return EITHER


# What the jobs of a stateful run do: some have something to stream, some can be retried.
INPUTS = [{"op": "fail", "message": "on purpose"}, {"op": "stream"}, {"op": "echo"}]


def make_possible(case, body):
    """Takes a free name, a template that exists, and bounds that agree."""
    if isinstance(http := body.get("http"), dict):
        # The schema bounds the length of a name, and each name is of one endpoint.
        http.pop("hosts", None)
        if isinstance(cors := http.get("cors"), dict):
            cors |= {"origins": ["https://example.com"], "exposeHeaders": ["x-total"]}
    if is_step(case) and case.path.endswith(("/run", "/runsync")):
        case.path_parameters["endpoint"] = dice.choice(["playground", "playground", "paused"])
        body["input"] = dice.choice(INPUTS)
    if isinstance(policy := body.get("policy"), dict):
        # Later calls wait for the jobs, a time is at most seven days away, a replacement needs a
        # key, and other members are refused with `strict`.
        for name in ("delay", "runAt", "debounceMs", "debounceMaxMs", "strict"):
            policy.pop(name, None)
        if policy.get("key"):
            # Its bound is in bytes.
            policy["key"] = "customer"
    keys = body.get("keys")
    for rate in (body.get("throttle"), keys.get("rate") if isinstance(keys, dict) else None):
        if isinstance(rate, dict):
            # Later calls wait for jobs of the endpoint.
            rate |= {"jobs": 1_000_000, "perMs": 1}
    if isinstance(keys, dict) and keys.get("weights"):
        # Their bound is in bytes.
        keys["weights"] = {"customer": 3}
    if case.path == "/v1/templates" and isinstance(body.get("name"), str):
        body["name"] = f"{body['name'][:100]} {next(numbers)}"
    if case.path.startswith("/v1/templates/"):
        body.pop("name", None)
    if case.path in ("/v1/templates", "/v1/endpoints", "/v1/schedules") and body.get("id"):
        body["id"] = f"{body['id'][:100]}-{next(numbers)}"
    if is_change(case):
        # An id cannot be changed.
        body.pop("id", None)
    if case.path.startswith("/v1/endpoints") and body.get("templateId"):
        body["templateId"] = ENDPOINTS[0]
    if case.path.startswith("/v1/endpoints") and body.get("type"):
        # That of the template's handler; it cannot be changed.
        body["type"] = "QUEUE"
    if case.path.startswith("/v1/templates"):
        # Such an image does not exist, and is not fetched; its credentials must exist.
        if isinstance(body.get("imageName"), str):
            body["imageName"] = body["imageName"].replace("/", "-") or "echo"
        if body.get("containerRegistryAuthId"):
            body["containerRegistryAuthId"] = ""
    if case.path == "/v1/containerregistryauth" and isinstance(body.get("name"), str):
        body["name"] = f"{body['name'][:100]} {next(numbers)}"
    if case.path == "/v1/keys" and "admin" in body.get("scopes", ()):
        # Only the operator's keys may have this scope.
        body.pop("owner", None)
    if isinstance(body.get("rateLimits"), dict):
        limits = body["rateLimits"].values()
        body["rateLimits"] = {dice.choice(("run", "status", "cancel")): limit for limit in limits}
    if body.get("networkVolumeId"):
        # The volume may have been deleted since.
        body["networkVolumeId"] = ""
    if body.get("networkVolumeIds"):
        body["networkVolumeIds"] = []
    if case.path.startswith("/v1/networkvolumes/") and body.get("size"):
        # A volume never becomes smaller.
        body["size"] = 4_000
    if isinstance(body.get("tags"), dict):
        # Their bounds are in bytes.
        tags = itertools.islice(body["tags"].items(), 4)
        body["tags"] = {key: value[:60] for key, value in tags}
    if case.path == "/v1/job-actions" and isinstance(body.get("filter"), dict):
        # At least one condition must be given, bounds are in bytes, and times are from 1970 on. No job matches, since
        # other calls need the jobs.
        body["filter"] = {**body["filter"], "idPrefix": "none", "endpoints": ENDPOINTS[:1]}
        for name in ("from", "to", "error", "tags"):
            body["filter"].pop(name, None)
    if body.get("paused") is True:
        # Calls that wait for a job would wait until their time is over.
        body["paused"] = False
    if case.path.startswith("/v1/schedules"):
        # One kind of times, and no job but by the call for it.
        body["paused"] = True
        if body.get("endpointId"):
            body["endpointId"] = ENDPOINTS[0]
        if body.get("everyMs"):
            body.pop("cron", None)
            body.pop("timeZone", None)
        elif case.path == "/v1/schedules":
            body["cron"] = body.get("cron") or "@daily"
        elif not body.get("cron"):
            # The schedule may have an interval.
            body.pop("timeZone", None)
    if body.get("maxFuel"):
        # The other way of metering counts no fuel.
        body["metering"] = "fuel"
    elif body.get("metering") == "epoch":
        body["maxFuel"] = 0
    if body.get("workersMin"):
        body["workersMax"] = 1_000
        # The sum of all endpoints is bounded.
        if isinstance(body["workersMin"], (int, float)):
            body["workersMin"] = min(body["workersMin"], 1)


def wait_a_moment(case):
    """A call may wait for minutes; here it waits for a tenth of a second, or a second."""
    if case.path.endswith(("/runsync", "/status-sync/{job}", "/stream/{job}")):
        wait = (case.query or {}).get("wait")
        if wait is None or (str(wait).isdigit() and int(wait) > 1_000):
            case.query = {**(case.query or {}), "wait": 100}


def forget_deleted(case, response):
    """Later calls name objects that exist."""
    kind, _, name = case.path.removeprefix("/v1/").partition("/")
    if case.method == "DELETE" and response.status_code == 204 and name.count("/") == 0:
        deleted = (case.path_parameters or {}).get(name.strip("{}"))
        if deleted in made.get(kind, ()):
            made[kind].remove(deleted)


@schemathesis.hook
def after_call(context, case, response):
    if is_step(case) and "{job}" in case.path:
        steps[f"{case.path.split('/')[-2]} {response.status_code}"] += 1
    forget_deleted(case, response)
    if response.status_code != 200 or "json" not in response.headers.get("content-type", [""])[0]:
        return
    answer = response.json()
    if not isinstance(answer, dict) or "id" not in answer:
        return
    endpoint = (case.path_parameters or {}).get("endpoint")
    if endpoint in jobs:
        jobs[endpoint].append(answer["id"])
    elif case.method == "POST" and case.path.removeprefix("/v1/") in made:
        made[case.path.removeprefix("/v1/")].append(answer["id"])
