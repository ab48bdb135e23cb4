"""Memory, start, lists, searches and actions of a host that keeps very many ended jobs.

`kept_jobs.py GRISTMILL ECHO_COMPONENT [JOBS]` (10,000,000 jobs by default: 2 GiB of disk, and some minutes).

The host runs and archives some thousand real jobs, each with one of 100 tags. The script then copies the rows
of some of them in the closed database, since running ten million jobs would take an hour, and measures the host
on that directory.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

REAL_JOBS = 20_000
TAGS = 100
ENDPOINT = "kept"
UNLIMITED = "\n".join(
    f"[rate-limits.{operation}]\ncalls-per-10s = 100000000\nconcurrent = 100000\ncalls-per-worker = 0"
    for operation in ("run", "status", "requests")
)


class Host:
    """A host on a directory, with one connection to it."""

    def __init__(self, program: str, directory: Path) -> None:
        config = directory.parent / "load.toml"
        config.write_text(UNLIMITED)
        begun = time.perf_counter()
        command = [program, "serve", "--listen", "127.0.0.1:0", "--json", "--log", "error"]
        command += ["--data-dir", str(directory), "--config", str(config)]
        # Jobs leave memory at once, and a small journal sends them to the tables soon.
        command += ["--archive-after", "0", "--journal-mib", "16"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.address = json.loads(self.process.stdout.readline())["ready"]["addr"]
        self.start_s = time.perf_counter() - begun
        self.key = (directory / "admin.key").read_text().strip()
        self.connection = HTTPConnection(self.address, timeout=60)

    def call(self, method: str, path: str, body: object = None) -> tuple[float, dict]:
        """Seconds until the answer was read, and the answer, which must be a success."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        begun = time.perf_counter()
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        took = time.perf_counter() - begun
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {text.decode()}")
        return took, json.loads(text)

    def memory_mib(self) -> float:
        """Memory of the process that is not a mapped file."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        line = next(line for line in status if line.startswith("RssAnon"))
        return int(line.split()[1]) / 1024

    def stop(self) -> None:
        """An orderly end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def run_real_jobs(host: Host, program: str, component: str) -> None:
    """Runs jobs and waits until some have left memory."""
    env = {**os.environ, "GRISTMILL_URL": f"http://{host.address}", "GRISTMILL_API_KEY": host.key}
    deploy = [program, "deploy", "--name", ENDPOINT, "--keep-completed", "30d", component]
    subprocess.run(deploy, env=env, check=True, capture_output=True)

    def submit(first: int) -> None:
        headers = {"Authorization": f"Bearer {host.key}", "Content-Type": "application/json"}
        connection = HTTPConnection(host.address, timeout=60)
        for n in range(first, REAL_JOBS, 4):
            tags = {"customer": str(n % TAGS)}
            body = json.dumps({"input": {"text": "x" * 2_000}, "tags": tags})
            connection.request("POST", f"/v2/{ENDPOINT}/run", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        host.connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {host.key}"})
        text = host.connection.getresponse().read().decode()
        line = next(line for line in text.splitlines() if line.startswith("gristmill_jobs_archived "))
        # So many of the jobs, which were submitted in turn, have all tags.
        if float(line.split()[1]) >= 20 * TAGS:
            return
        time.sleep(0.5)
    raise SystemExit(f"fewer than {20 * TAGS} jobs have left memory after a minute")


def copy_rows(file: Path, jobs: int) -> None:
    """Copies the row of an archived job of each tag, with other ids, numbers and times."""
    db = sqlite3.connect(file)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -200000")
    found = db.execute("SELECT * FROM job WHERE archived = 1 GROUP BY tags")
    columns = [column[0] for column in found.description]
    copied = [dict(zip(columns, row)) for row in found]
    if len(copied) != TAGS:
        raise SystemExit(f"{len(copied)} of {TAGS} tags have left memory")
    tag_of = dict(db.execute("SELECT seq, tag FROM job_tag"))
    hashes = [tag_of[row["seq"]] for row in copied]
    endpoint = copied[0]["endpoint"]
    (last,) = db.execute("SELECT max(seq) FROM job").fetchone()
    (created,) = db.execute("SELECT max(created_at) FROM job").fetchone()
    shard = copied[0]["id"][16:]

    def rows():
        for n in range(1, jobs + 1):
            row = copied[n % TAGS]
            later = n // 40
            at = created + later
            id = bytearray(at.to_bytes(6, "big") + os.urandom(10))
            id[6] = 0x70 | (id[6] & 0x0F)
            id[8] = 0x80 | (id[8] & 0x3F)
            copy = dict(row, result_bytes=0)
            copy.update(seq=last + n, place=last + n, id=bytes(id) + shard, created_at=at, started_at=at)
            copy.update(finished_at=at, ttl_at=row["ttl_at"] + later, purge_at=row["purge_at"] + later)
            yield tuple(copy[column] for column in columns)

    places = ", ".join("?" for _ in columns)
    db.executemany(f"INSERT INTO job ({', '.join(columns)}) VALUES ({places})", rows())
    tags = sorted((hashes[n % TAGS], last + n) for n in range(1, jobs + 1))
    db.executemany(f"INSERT INTO job_tag (endpoint, tag, seq) VALUES ({endpoint}, ?, ?)", tags)
    db.execute("DELETE FROM archived_time")
    db.execute(
        "INSERT INTO archived_time (block, first_at, last_at)"
        " SELECT seq / 1024, min(created_at), max(created_at) FROM job WHERE archived = 1 GROUP BY seq / 1024"
    )
    # The bytes that the copies keep: what the host counts for a row without results.
    kept = sum(len(row["tags"]) for row in copied) * jobs // TAGS
    db.execute("UPDATE archived SET jobs = jobs + ?, kept = kept + ?", (jobs, kept))
    db.execute("UPDATE endpoint SET completed = completed + ?", (jobs,))
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def measure(host: Host, jobs: int) -> None:
    """Prints the figures."""
    print(f"start with {jobs:,} more kept jobs: {host.start_s:.2f} s, {host.memory_mib():.1f} MiB")
    pages, ids, cursor = [], [], ""
    for _ in range(200):
        took, page = host.call("GET", f"/v2/{ENDPOINT}/requests?limit=100{cursor}")
        pages.append(took * 1_000)
        ids += [job["id"] for job in page["requests"]]
        # Behind the last page, the first one.
        cursor = f"&cursor={page['cursor']}" if "cursor" in page else ""
    reads = [
        host.call("GET", f"/v2/{ENDPOINT}/status/{random.choice(ids)}")[0] * 1_000 for _ in range(500)
    ]
    found = {"page of 100 jobs": pages, "status of a job": reads}
    searches = {
        "by tag": "tag=customer:7",
        "by tag and status": "tag=customer:7&status=COMPLETED",
        "by a tag that no job has": "tag=customer:nobody",
        "by the beginning of an id": f"idPrefix={ids[0][:12]}",
    }
    for name, query in searches.items():
        times, cursor = [], ""
        for _ in range(100):
            took, page = host.call("GET", f"/v1/jobs?limit=100&{query}{cursor}")
            times.append(took * 1_000)
            cursor = f"&cursor={page['cursor']}" if "cursor" in page else ""
        found[f"page of a search {name}"] = times
    for name, times in found.items():
        times.sort()
        p99 = times[len(times) * 99 // 100]
        print(f"{name}: median {median(times):.2f} ms, p99 {p99:.2f} ms, slowest {times[-1]:.2f} ms")
    print(f"memory afterwards: {host.memory_mib():.1f} MiB")
    if not jobs:
        return  # the rows of all tags are still to be copied
    begun = time.perf_counter()
    filter = {"tags": {"customer": "7"}, "statuses": ["COMPLETED"]}
    _, action = host.call("POST", "/v1/job-actions", {"action": "delete", "filter": filter})
    while action["state"] == "RUNNING":
        time.sleep(0.05)
        _, action = host.call("GET", f"/v1/job-actions/{action['id']}")
    took = time.perf_counter() - begun
    print(f"action that deletes the jobs of a tag: {action['state']}, {action['changed']:,} jobs in {took:.1f} s")


def main() -> None:
    """Prepares a directory, and measures it before and after the rows are copied."""
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    program, component = sys.argv[1:3]
    jobs = int(sys.argv[3]) if len(sys.argv) == 4 else 10_000_000
    with tempfile.TemporaryDirectory(prefix="kept-jobs-") as place:
        directory = Path(place) / "data"
        host = Host(program, directory)
        try:
            run_real_jobs(host, program, component)
        finally:
            host.stop()
        for more in (0, jobs):
            if more:
                copy_rows(directory / "store.db", more)
            host = Host(program, directory)
            try:
                measure(host, more)
            finally:
                host.stop()


if __name__ == "__main__":
    main()
