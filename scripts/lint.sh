#!/usr/bin/env bash
# Everything that looks at the code without running it, cheapest first.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${PI_NVIM_TOOLS:-$PWD/.tools}
step() { echo "lint: $*"; }

step "rustfmt";  cargo fmt --check
step "stylua";   "$tools/npm/node_modules/.bin/stylua" --check lua plugin scripts
step "shell";    "$tools/py/bin/shellcheck" -S warning .ci/run scripts/*.sh
step "clippy";   cargo clippy --locked --all-targets --all-features -- -D warnings
step "rustdoc";  RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features --quiet
step "lua types"
VIMRUNTIME=$("$tools/bin/nvim" --clean --headless -c 'lua io.write(vim.env.VIMRUNTIME)' -c q 2>&1)
export VIMRUNTIME
"$tools/cargo/bin/emmylua_check" --warnings-as-errors -c .emmyrc.json lua plugin
step "licences"; "$tools/cargo/bin/cargo-deny" --offline --log-level error check bans licenses sources
