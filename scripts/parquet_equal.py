#!/usr/bin/env python3
"""Compares rows that potable read from Parquet files with what pyarrow reads.

    POTABLE_DUMP=DIR cargo test --release --test e2e parquet_corpus
    scripts/parquet_equal.py DIR PARQUET_FOLDER      (needs pyarrow)

Dates, times, decimals and binary have no JSON form and are compared as "there or null" only.
"""
import decimal
import json
import math
import pathlib
import sys

import pyarrow.parquet as pq

dump, root = map(pathlib.Path, sys.argv[1:3])


def same(ours, theirs):
    if theirs is None:
        return ours is None
    if isinstance(theirs, bool) or isinstance(theirs, str):
        return ours == theirs
    if isinstance(theirs, int):
        return ours == theirs
    if isinstance(theirs, float):
        if math.isnan(theirs):
            return isinstance(ours, float) and math.isnan(ours)
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-6)
    if isinstance(theirs, list):
        if isinstance(ours, dict):  # a map
            return len(ours) == len(theirs) and all(same(a, b[1]) for a, b in zip(ours.values(), theirs))
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(same(ours.get(k), v) for k, v in theirs.items())
    if isinstance(theirs, bytes):
        try:
            return ours == theirs.decode()
        except UnicodeDecodeError:
            return ours == theirs.hex()
    return ours is not None


equal = skipped = 0
different = []
for path in sorted(dump.iterdir()):
    original = root / path.name.replace("__", "/")
    try:
        table = pq.read_table(original)
        names = table.column_names
        if len(set(names)) != len(names):
            skipped += 1
            continue
        theirs = table.to_pylist()
    except Exception:  # pyarrow cannot read it, or cannot turn a value into a Python object
        skipped += 1
        continue
    text = path.read_text()
    ours = [json.loads(line) for line in text.split("\n")] if text else []
    if len(ours) == len(theirs) and all(map(same, ours, theirs)):
        equal += 1
    else:
        bad = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if not same(a, b)), None)
        different.append((str(original.relative_to(root)), len(ours), len(theirs), bad))
print(f"{equal} files equal, {len(different)} different, {skipped} not comparable with pyarrow")
for entry in different:
    print("  ", *entry)
sys.exit(1 if different else 0)
