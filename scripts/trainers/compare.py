"""Reads the shards of a run with a trainer's own loader and compares ids and labels with the Parquet.

    python3 scripts/trainers/compare.py PARQUET_OUT LOADER=OUT…

LOADER is a function of loaders.py; light.py does the same where a trainer's dependencies are too heavy. The trainers' packages have to be importable; one that is not is
said so. Prints a line a trainer; exit status 1 if any differs or could not be run.
"""

import sys

import loaders


def main():
    reference, *others = sys.argv[1:]
    expected = sorted(loaders.parquet(reference))
    failed = False
    for name, folder in (other.split("=", 1) for other in others):
        try:
            found = sorted((list(ids), list(labels)) for ids, labels in getattr(loaders, name)(folder))
        except ImportError as error:
            print(f"{name}: cannot be imported: {error}")
            failed = True
            continue
        same = found == [(list(ids), list(labels)) for ids, labels in expected]
        tokens = sum(len(ids) for ids, _ in found)
        print(f"{name}: {len(found)} samples, {tokens} tokens, {'equal' if same else 'DIFFERENT'}")
        failed = failed or not same
    sys.exit(failed)


if __name__ == "__main__":
    main()
