#!/usr/bin/env python3
"""Shows that the bytes of a run depend on recipe and inputs alone.

    scripts/determinism.py POTABLE RECIPE WORK_DIR [KILLS]

Runs the recipe undisturbed, with one thread, with other batch sizes, with units in reverse order, and
once killed (SIGKILL) at KILLS random moments and continued each time. Prints the manifest digest and a
digest over all shard files of each; exits 1 if any two differ.
"""
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

potable, recipe, work = sys.argv[1:4]
kills = int(sys.argv[4]) if len(sys.argv) > 4 else 10
work = pathlib.Path(work)
cut = ["--unit-bytes", "4000000"]


def command(out, *args):
    return [potable, "prep", recipe, "--out", str(out), "--quiet", *args]


def result(out):
    manifest = json.loads((out / "manifest.json").read_text())
    shards = hashlib.sha256()
    for path in sorted(list(out.glob("shards/**/*.parquet")) + list(out.glob("validation/**/*.parquet"))):
        shards.update(str(path.relative_to(out)).encode())
        shards.update(path.read_bytes())
    for path in sorted(out.glob("dropped/*.parquet")):
        shards.update(path.read_bytes())
    return manifest["manifest_digest"], shards.hexdigest()


def plain(name, *args):
    out = work / name
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    subprocess.run(command(out, *args), check=True)
    return result(out), time.monotonic() - began


def killed(seconds):
    out = work / "killed"
    shutil.rmtree(out, ignore_errors=True)
    moments = random.Random(7)
    done = 0
    for _ in range(kills):
        process = subprocess.Popen(command(out, "--threads", "2", *cut))
        try:
            process.wait(timeout=moments.uniform(0.2, 1.0 + 1.4 * seconds / kills))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
        if (out / "manifest.json").exists():
            break
    subprocess.run(command(out, "--threads", "2", *cut), check=True)
    return result(out), done


runs = {}
runs["2 threads"], seconds = plain("t2", "--threads", "2", *cut)
runs["1 thread"], _ = plain("t1", "--threads", "1", *cut)
runs["small batches"], _ = plain("small", "--threads", "2", "--chunk-bytes", "300000", *cut)
runs["large units"], _ = plain("large", "--threads", "2", "--unit-bytes", "64000000", "--chunk-bytes", "9000000")
runs["units reversed"], _ = plain("reversed", "--threads", "2", "--reverse-units", *cut)
runs[f"killed {kills} times"], done = killed(seconds)
for name, (manifest, shards) in runs.items():
    print(f"{name:16} manifest {manifest}  files sha256:{shards}")
print(f"{done} kills hit a running process; undisturbed run {seconds:.1f} s")
same = len(set(runs.values())) == 1
print("all equal" if same else "DIFFERENT")
sys.exit(0 if same else 1)
