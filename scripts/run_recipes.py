#!/usr/bin/env python3
"""Runs the five built-in recipes for known systems, unchanged but for `--limit`, against a Hub, and prints one
table: a line a source with its commit, rows read and kept, and where the others went.

    scripts/hub_fixtures.py make DIR && scripts/hub_fixtures.py serve DIR --port 8090 &
    scripts/run_recipes.py POTABLE http://127.0.0.1:8090 WORK_DIR [LIMIT]

Exits 1 if a run fails, a source keeps no row, or a source, benchmark, joined corpus or tokenizer is not pinned.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

RECIPES = ["think-sft-240k", "think-sft-mix", "recovery-text-qwen3.5", "bridge-long", "adapt-then-sft"]
COMMIT = re.compile(r"[0-9a-f]{40}")

potable, endpoint, work = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
limit = sys.argv[4] if len(sys.argv) > 4 else "400"
faults = []


def expect(holds, what):
    if not holds:
        faults.append(what)


def prep(recipe):
    out = work / recipe
    shutil.rmtree(out, ignore_errors=True)
    argv = [potable, "prep", recipe, "--limit", limit, "--out", str(out), "--no-progress"]
    env = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(work / "hf")}
    done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True)
    expect(done.returncode == 0, f"{recipe}: exit status {done.returncode}: {done.stderr.strip()[-400:]}")
    return out


def manifests(out):
    """Manifests of data sets below a folder, with the name of the phase."""
    for path in sorted(out.rglob("manifest.json")):
        manifest = json.loads(path.read_text())
        if "inputs" in manifest:
            yield "" if path.parent == out else path.parent.name, manifest


def pinned(value):
    return bool(COMMIT.fullmatch(value or ""))


def show(recipe, phase, manifest):
    place = f"{recipe} {phase}".strip()
    for source in manifest["inputs"]:
        name, rows = source["name"], manifest["rows"][source["name"]]
        expect(pinned(source.get("revision")), f"{place}: source {name} is not pinned")
        expect(rows["kept"] > 0, f"{place}: source {name} keeps no row")
        for join in source.get("joins", []):
            expect(pinned(join.get("revision")), f"{place}: join of {name} is not pinned")
        gone = [f"{count} {reason}" for reason, count in sorted(rows.get("dropped", {}).items())]
        gone += [f"{rows['sampled_out']} sampled out"] if rows.get("sampled_out") else []
        print(f"{place:<27} {name:<27} {source.get('revision', '')[:12]:<12} {rows['read']:>5} {rows['kept']:>5}  {', '.join(gone)}")
    benchmarks = manifest["decontamination"]["benchmarks"]
    for benchmark in benchmarks:
        expect(pinned(benchmark.get("revision")), f"{place}: benchmark {benchmark['name']} is not pinned")
    hits = sum(b["rows_dropped"] for b in benchmarks)
    items = sum(b["items"] for b in benchmarks)
    shards = manifest["shards"]
    tokens = sum(shard["tokens"] for shard in shards)
    print(f"{'':<27} {len(benchmarks)} benchmarks pinned, {items} items, {hits} matches that drop; "
          f"{tokens} tokens in {len(shards)} shards; tokenizer {manifest['tokeniser']['name']}")


print(f"{'recipe':<27} {'source':<27} {'commit':<12} {'read':>5} {'kept':>5}  where the others went")
work.mkdir(parents=True, exist_ok=True)
for recipe in RECIPES:
    out = prep(recipe)
    found = list(manifests(out))
    expect(found, f"{recipe}: no manifest")
    for phase, manifest in found:
        show(recipe, phase, manifest)
    lock = work / f"{recipe}.lock"
    pins = tomllib.loads(lock.read_text()).get("pin", []) if lock.exists() else []
    expect(pins and all(pinned(pin["commit"]) for pin in pins), f"{recipe}: no lock, or a pin without a commit")
    hub_tokenizer = any("@" in manifest["tokeniser"]["name"] for _, manifest in found)
    expect(hub_tokenizer == any(pin["kind"] == "model" for pin in pins), f"{recipe}: the tokenizer is not pinned")
print("\n".join(f"WRONG {fault}" for fault in faults) or f"all {len(RECIPES)} recipes ran; everything is pinned, every source keeps rows")
sys.exit(1 if faults else 0)
