#!/usr/bin/env bash
# The demo: a scripted agent in a copy of a small project. In a terminal it opens Neovim there; without one it runs the
# same thing headless with stated decisions, prints what happened, and checks every byte.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tools=${PI_NVIM_TOOLS:-$root/.tools}
cd "$root"
command -v git >/dev/null 2>&1 || { echo "demo: git is missing; install git, then run this again" >&2; exit 1; }
command -v cargo >/dev/null 2>&1 || { echo "demo: cargo is missing; install Rust, then run this again" >&2; exit 1; }
cargo build --locked --quiet
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d "${TMPDIR:-/tmp}/pi-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/home" "$work/agent" "$work/tmp" "$work"/{config,data,state,cache}
cp -R "$root/scripts/demo/sample" "$work/shop"
run() {
  env -u NVIM -u NVIM_LISTEN_ADDRESS -u NVIM_APPNAME \
    HOME="$work/home" PI_CODING_AGENT_DIR="$work/agent" TMPDIR="$work/tmp" \
    XDG_CONFIG_HOME="$work/config" XDG_DATA_HOME="$work/data" XDG_STATE_HOME="$work/state" XDG_CACHE_HOME="$work/cache" \
    GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null \
    PI_NVIM_BIN="$target/debug/pi-nvim" PI_NVIM_ROOT="$root" PI_NVIM_DEMO=1 PI_DEMO_OUT="${demo_out-}" "$@"
}
cd "$work/shop"
run git init -q . && run git add -A
run git -c user.name=demo -c user.email=demo@localhost commit -q -m "The sample as it came"

nvim=$tools/bin/nvim
args=(--clean -n -i NONE --cmd "set rtp^=$root" -u "$root/scripts/demo/init.lua")
if [ -t 0 ] && [ -t 1 ]; then
  run "$nvim" "${args[@]}" shop/cart.py
  run git --no-pager diff --stat
  exit 0
fi
demo_out=$work/out
mkdir -p "$demo_out"
status=0
run timeout 120 "$nvim" --headless "${args[@]}" -c "luafile $root/scripts/demo/headless.lua" </dev/null || status=$?
[ -f "$work/out/transcript.txt" ] && cat "$work/out/transcript.txt"
[ $status -eq 0 ] || { echo "demo: the run failed ($status)" >&2; [ -f "$work/out/messages.txt" ] && cat "$work/out/messages.txt" >&2; exit 1; }
echo
echo "== git diff =="
run git --no-pager -c core.pager=cat diff
run git --no-pager status --short
echo
echo "== check =="
session=$(find "$work/agent/sessions" -name '*.jsonl' | head -n 1)
python3 "$root/scripts/demo_check.py" "$root/scripts/demo/sample" "$work/shop" "$session"
