#!/usr/bin/env bash
# Rewrites manifests/golden/demo.json from a fresh run of the demo. Review the diff before committing.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
cargo run --release --quiet -- prep demo --out "$out/demo"
# Host and time are in no digest, and are nobody's business.
grep -vE '^ +"(host|started|duration_ms)":' "$out/demo/manifest.json" > manifests/golden/demo.json
cargo run --release --quiet -- manifest diff manifests/golden/demo.json "$out/demo"
rm -r "$out"
