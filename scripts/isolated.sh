#!/usr/bin/env bash
# Runs a command with HOME, the agent directory and the XDG folders in a temporary place, so that nothing it does can
# reach a person's own sessions, settings or editor set-up.
#
#   scripts/isolated.sh COMMAND [ARG...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tools=${PI_NVIM_TOOLS:-$root/.tools}
home=$(mktemp -d "${TMPDIR:-/tmp}/pi-nvim.XXXXXX")
trap 'rm -rf "$home"' EXIT
# Cargo and rustup keep their own folders; they live in the real home unless told otherwise.
export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
export PATH="$tools/bin:$tools/cargo/bin:$PATH"
export HOME="$home" PI_CODING_AGENT_DIR="$home/agent" TMPDIR="$home/tmp"
export XDG_CONFIG_HOME="$home/config" XDG_DATA_HOME="$home/data" XDG_STATE_HOME="$home/state" XDG_CACHE_HOME="$home/cache"
export PI_NVIM_TEST_NVIM=${PI_NVIM_TEST_NVIM:-$tools/bin/nvim}
unset NVIM NVIM_LISTEN_ADDRESS NVIM_APPNAME PI_NVIM_BIN
# Some recorded cases run as another user, who has to get to the temporary folder.
chmod 755 "$home"
mkdir -p "$TMPDIR" "$XDG_CONFIG_HOME" "$XDG_DATA_HOME" "$XDG_STATE_HOME" "$XDG_CACHE_HOME"
chmod 1777 "$TMPDIR"
"$@"
