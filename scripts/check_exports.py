#!/usr/bin/env python3
"""Checks the exports of a data set with the libraries of the formats they are in.

    pip install mlcroissant in-toto-attestation huggingface_hub pyarrow
    python scripts/check_exports.py potable-demo [--potable target/release/potable]

Exit status 1 if any library refuses its export, or reads something else from it than was written.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings


def exported(potable, folder, to, *more):
    command = [potable, "manifest", "export", str(folder), "--to", to, "--quiet", *more]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_croissant(potable, folder):
    import mlcroissant

    more = ["--url", "https://example.org/data", "--creator", "Example", "--published", "2026-01-02"]
    text = exported(potable, folder, "croissant", *more)
    path = folder / "croissant.json"
    path.write_text(text)
    try:
        data = mlcroissant.Dataset(path)
        issues = data.metadata.ctx.issues
        assert not issues.errors, issues.report()
        sets = [one.id for one in data.metadata.record_sets]
        records = 0
        for name in [name for name in sets if name.endswith("packs")]:
            for record in data.records(name):
                lengths = record[f"{name}/seq_lengths"]
                assert sum(lengths) == len(record[f"{name}/input_ids"]) == len(record[f"{name}/labels"])
                records += 1
    finally:
        path.unlink()
    rai = sorted(key for key in json.loads(text) if key.startswith("rai:"))
    version = data.metadata.ctx.conforms_to.value
    print(f"croissant  {version}: {len(issues.errors)} errors, {len(issues.warnings)} warnings,")
    print(f"           {len(data.metadata.distribution)} resources, record sets {', '.join(sets)}, {records} packs read,")
    print(f"           {len(rai)} RAI fields")
    for warning in issues.warnings:
        print(f"           warning: {warning}")


def check_in_toto(potable, folder):
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    text = exported(potable, folder, "in-toto")
    message = json_format.Parse(text, statement_pb2.Statement())
    statement = Statement.copy_from_pb(message)
    statement.validate()
    for subject in statement.pb.subject:
        content = (folder / subject.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == subject.digest["sha256"], subject.name
    predicate = json.loads(text)["predicate"]
    provenance = json_format.ParseDict(predicate, provenance_pb2.Provenance())
    materials = provenance.build_definition.resolved_dependencies
    assert all(len(material.digest["sha256"]) == 64 for material in materials)
    for product in provenance.run_details.byproducts:
        content = (folder / product.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == product.digest["sha256"], product.name
    print(f"in-toto    {statement.pb.type}, {statement.pb.predicate_type}:")
    print(f"           {len(statement.pb.subject)} subjects with the digests of the files, {len(materials)} materials with digests,")
    print(f"           {len(provenance.run_details.byproducts)} by-products with the digests of the files")


def check_card(potable, folder):
    from huggingface_hub import DatasetCard

    text = exported(potable, folder, "card")
    card = DatasetCard(text)
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary) / "README.md"
        card.save(path)
        again = DatasetCard.load(path)
        saved = path.read_text()
    assert again.data.to_dict() == card.data.to_dict()
    assert again.text == card.text
    assert saved == text, "the card is not the same text after DatasetCard wrote it"
    files = 0
    for config in card.data.to_dict().get("configs", []):
        for entry in config["data_files"]:
            paths = entry["path"] if isinstance(entry["path"], list) else [entry["path"]]
            found = [file for path in paths for file in folder.glob(path)]
            assert found, f"no file matches {paths}"
            files += len(found)
    print(f"card       {', '.join(card.data.to_dict())}: same text after a round trip, {files} data files found")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--potable", default="target/release/potable")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = False
    for check in (check_croissant, check_in_toto, check_card):
        try:
            check(args.potable, args.folder)
        except Exception as error:  # each export is checked, whatever the others do
            failed = True
            print(f"{check.__name__}: {type(error).__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
