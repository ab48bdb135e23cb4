"""Flips one bit in the log of a killed store and opens it: python3 damage.py PROGRAM [FLIPS]"""
import collections, glob, os, random, shutil, subprocess, sys

PROGRAM, FLIPS = sys.argv[1], int((sys.argv + ["20"])[2])
JOBS = 20_000
LOGS = {"store": "journal/*", "fjall": "*.jnl", "rocksdb": "*.log", "sqlite": "jobs.db-wal"}
random.seed(1)

for engine, pattern in LOGS.items():
    whole, copy = f"data/whole-{engine}", f"data/copy-{engine}"
    shutil.rmtree(whole, ignore_errors=True)
    os.makedirs(whole)
    child = subprocess.Popen([PROGRAM, "child", engine, whole, "200", "1000"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    child.stdin.write(f"submit 64 {JOBS}\n")
    child.stdin.flush()
    child.stdout.readline()
    child.kill()
    child.wait()
    found, example = collections.Counter(), ""
    lost = []
    for n in range(FLIPS):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        log = max(glob.glob(f"{copy}/{pattern}"), key=os.path.getsize)
        data = bytearray(open(log, "rb").read())
        used = len(bytes(data).rstrip(b"\0"))
        at = random.randrange(used // 20, used * 19 // 20)
        data[at] ^= 1 << random.randrange(8)
        open(log, "wb").write(data)
        opened = subprocess.Popen([PROGRAM, "open", engine, copy], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        words = opened.stdout.readline().split()
        opened.kill()
        error = opened.communicate()[1]
        if not words:
            found["refused with offset" if "offset: Some(" in error else "refused"] += 1
            example = example or " ".join(error.split())
        elif int(words[1]) == JOBS:
            found["opened, all jobs"] += 1
        else:
            found["opened, jobs lost"] += 1
            lost.append(JOBS - int(words[1]))
    print(f"{engine}: {dict(found)} jobs lost {min(lost, default=0)} to {max(lost, default=0)} of {JOBS}; {example[:300]}", flush=True)
    shutil.rmtree(whole)
    shutil.rmtree(copy)
