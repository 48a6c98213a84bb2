#!/usr/bin/env bash
# Draws the pictures in doc/images from the real thing: the demo's agent in a copy of the sample project, step by step.
#   scripts/pictures.sh [FOLDER [NAME...]]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tools=${PI_NVIM_TOOLS:-$root/.tools}
out=${1:-$root/doc/images}
shift || true
cd "$root"
[ -n "${PI_PICTURES_NO_BUILD-}" ] || cargo build --locked --quiet
mkdir -p "$out"
work=$(mktemp -d "${TMPDIR:-/tmp}/pi-pictures.XXXXXX")
trap 'rm -rf "$work"' EXIT

shot() { # name size start keys...
  local name=$1 size=$2 start=$3 home=$work/$1 keys=()
  shift 3
  if [ ${#only[@]} -gt 0 ] && ! printf '%s\n' "${only[@]}" | grep -qx "$name"; then return; fi
  mkdir -p "$home"/{home,agent,tmp,config,data,state,cache}
  cp -R "$root/scripts/demo/sample" "$home/shop"
  for key in "$@"; do keys+=("--keys=$key"); done
  (cd "$home/shop" && git init -q . && env -u NVIM \
    HOME="$home/home" PI_CODING_AGENT_DIR="$home/agent" TMPDIR="$home/tmp" XDG_CONFIG_HOME="$home/config" \
    XDG_DATA_HOME="$home/data" XDG_STATE_HOME="$home/state" XDG_CACHE_HOME="$home/cache" PI_OFFLINE=1 \
    PI_NVIM_BIN="${CARGO_TARGET_DIR:-$root/target}/debug/pi-nvim" PI_NVIM_DEMO="${demo-1}" PI_DEMO_OUT="${start}" \
    timeout 120 "$tools/py/bin/python" "$root/scripts/shot.py" "$out/$name.png" --nvim "$tools/bin/nvim" --size "$size" \
    --settle 1 "${keys[@]}" --arg=--clean "--arg=--cmd" "--arg=set rtp^=$root" --arg=-u "--arg=$root/scripts/demo/init.lua" \
    --arg=shop/cart.py)
  echo "$out/$name.png"
}

only=("$@")
asked="wait:require('pi.attention').count() > 0"
allow=("$asked" ':Pi attention<CR>' "wait:vim.api.nvim_win_get_config(0).relative ~= ''" 'sleep:0.6' 'y')
drawn="wait:require('pi.review').pending() > 5"
review=("${allow[@]}" "$drawn" 'sleep:0.5' ']c')

shot question 100x30 '' "$asked" ':Pi attention<CR>'
shot review 110x32 '' "${review[@]}"
shot review-small 80x24 '' "${review[@]}"
shot decided 110x32 '' "${review[@]}" ',a' 'sleep:0.3' ',r'
shot list 110x32 '' "${review[@]}" ',l'
shot proposal 110x32 '' "${review[@]}" ':Pi review next<CR>' ']C' 'sleep:0.3' ']C'
shot tree 110x32 '' "${review[@]}" ':Pi tree<CR>'
shot chat 110x32 '' "${allow[@]}" "$drawn" ':Pi focus chat<CR>'
demo='' shot first-run 100x30 none 'wait:vim.v.vim_did_enter == 1' ':Pi open<CR>' 'sleep:1'
demo='' shot no-model 100x30 none 'wait:vim.v.vim_did_enter == 1' ':Pi ask explain this file<CR>' 'sleep:1'
shot help 100x30 '' "$asked" ':Pi help<CR>'
