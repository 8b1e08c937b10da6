#!/usr/bin/env python3
"""Flips random bytes of a sealed data set, one at a time, and counts how many `manifest verify` finds.

    scripts/flip_bytes.py DIR [--flips 1000] [--seed 1] [--potable target/release/potable]

Works on a copy. Covered are all files but downloads.jsonl and report.html. Half of the flips hit any byte
with equal chance, half a file by turns, so that small files are hit too.
"""
import argparse
import collections
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

NOT_COVERED = {"downloads.jsonl", "report.html"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--potable", default="target/release/potable")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "data"
        shutil.copytree(args.dir, copy)
        files = sorted(p for p in copy.rglob("*") if p.is_file() and p.name not in NOT_COVERED)
        sizes = [p.stat().st_size for p in files]

        def verify():
            command = [args.potable, "manifest", "verify", str(copy), "--quiet"]
            return subprocess.run(command, capture_output=True).returncode

        if verify() != 0:
            sys.exit(f"{args.dir} is not verified as it is")
        tried, found = collections.Counter(), collections.Counter()
        for flip in range(args.flips):
            number = flip // 2 % len(files) if flip % 2 else chance.choices(range(len(files)), sizes)[0]
            file, at = files[number], chance.randrange(sizes[number])
            whole = file.read_bytes()
            changed = bytearray(whole)
            changed[at] ^= 1 << chance.randrange(8)
            file.write_bytes(changed)
            code = verify()
            file.write_bytes(whole)
            name = str(file.relative_to(copy))
            tried[name] += 1
            if code in (1, 2):
                found[name] += 1
            else:
                print(f"not found (exit {code}): byte {at} of {name}")
        for name in sorted(tried):
            print(f"{name:<40} {found[name]:>5} of {tried[name]:>5} found")
        print(f"{'all':<40} {sum(found.values()):>5} of {sum(tried.values()):>5} found")
        if verify() != 0:
            sys.exit("the copy is damaged")
        sys.exit(0 if found == tried else 1)


main()
