#!/usr/bin/env bash
# Runs the recorded cases and adds up what each part left in target/conformance.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
rm -rf target/conformance
scripts/isolated.sh cargo nextest run --locked --all-features --no-fail-fast \
  -E 'binary(it) and test(/^(tools|sessions|providers|rpc|resources)::/)' >target/conformance.log 2>&1
status=$?
python3 scripts/conformance.py || status=1
[ $status -eq 0 ] || echo "details: target/conformance.log"
exit $status
