#!/usr/bin/env bash
# Everything that is measured: the binary in Neovim, then the parts (criterion, short).
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${PI_NVIM_TOOLS:-$PWD/.tools}
cargo build --release --locked --quiet
python3 scripts/bench.py "${CARGO_TARGET_DIR:-target}/release/pi-nvim" "$tools/bin/nvim"
[ "${1:-}" = quick ] || cargo bench --locked --all-features
