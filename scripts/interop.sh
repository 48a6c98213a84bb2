#!/usr/bin/env bash
# Programs of others against ours: independent mock model servers, the vendors' own types, the reference program.
# A part whose programs cannot be installed is skipped with a line.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
export PI_NVIM_TOOLS=${PI_NVIM_TOOLS:-$PWD/.tools}
cargo build --locked --quiet || exit 1
status=0
python3 scripts/interop_providers.py || status=1
if scripts/setup.sh peer; then
  python3 scripts/interop_peer.py "${CARGO_TARGET_DIR:-target}/debug/pi-nvim" || status=1
else
  echo "interop: the reference program cannot be installed here, skipped"
fi
exit $status
