#!/usr/bin/env python3
"""Runs `prep` over local copies of known corpora and prints a table: rows that pyarrow counts, rows read,
rows kept, and where the others went.

    scripts/fixture_table.py POTABLE COPIES_DIR WORK_DIR      (needs pyarrow)

COPIES_DIR holds a folder `OWNER__NAME` a corpus. Exits 1 if a count of rows differs from pyarrow's.
"""
import glob
import json
import pathlib
import subprocess
import sys
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq

potable, copies, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
cards = pathlib.Path(__file__).resolve().parent.parent / "pipeline" / "corpora"
work.mkdir(parents=True, exist_ok=True)


def rows_of(path):
    if path.endswith(".parquet"):
        return pq.read_metadata(path).num_rows
    if path.endswith(".arrow"):
        return pa.ipc.open_stream(path).read_all().num_rows
    if path.endswith(".json"):
        return len(json.load(open(path)))
    return sum(1 for line in open(path, "rb") if line.strip())


print(f"{'corpus, config':62} {'pyarrow':>8} {'read':>6} {'kept':>6}  where the others went")
wrong, seen = 0, set()
for card_path in sorted(cards.glob("*.toml")):
    card = tomllib.loads(card_path.read_text())
    folder = copies / card["id"].replace("/", "__")
    for config in card["config"]:
        files = sorted({f for p in config["files"] for f in glob.glob(str(folder / p))})
        if not files:
            continue
        seen.update(files)
        name = f"{card['id']}, {config['name']}"
        recipe = work / "recipe.toml"
        recipe.write_text(
            f'name = "t"\n[[source]]\nname = "s"\ncorpus = "{card["id"]}"\nconfig = "{config["name"]}"\n'
            f'path = "{folder}"\n[decontaminate]\nnone = true\n[pack]\nlength = 32768\n')
        run = subprocess.run([potable, "prep", str(recipe), "--out", str(work / "out"), "--fresh", "--quiet"],
                             capture_output=True, text=True)
        expected = sum(map(rows_of, files))
        if run.returncode != 0:
            print(f"{name:62} {expected:8}        {0:6}  {run.stderr.splitlines()[0]}")
            wrong += "no row was kept" not in run.stderr and "holds no text" not in run.stderr
            continue
        rows = json.loads((work / "out" / "manifest.json").read_text())["rows"]["s"]
        drops = sorted(rows["dropped"].items(), key=lambda item: -item[1])
        print(f"{name:62} {expected:8} {rows['read']:6} {rows['kept']:6}  {', '.join(f'{k} {v}' for k, v in drops)}")
        wrong += rows["read"] != expected
data = {str(p) for p in copies.rglob("*") if p.is_file() and p.name != "MANIFEST.json"}
print(f"{len(seen)} of {len(data)} files read")
for path in sorted(data - seen):
    print("  not read:", path)
sys.exit(1 if wrong else 0)
