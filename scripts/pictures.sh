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
  case $name in *.*) ;; *) name=$name.png ;; esac
  mkdir -p "$home"/{home,agent,tmp,config,data,state,cache}
  cp -R "$root/scripts/demo/sample" "$home/shop"
  # A person's own models and settings, where a picture needs them.
  [ -z "${models-}" ] || printf '%s' "$models" >"$home/agent/models.json"
  [ -z "${settings-}" ] || printf '%s' "$settings" >"$home/agent/settings.json"
  for key in "$@"; do keys+=("--keys=$key"); done
  (cd "$home/shop" && git init -q . && env -u NVIM \
    HOME="$home" PI_CODING_AGENT_DIR="$home/agent" TMPDIR="$home/tmp" XDG_CONFIG_HOME="$home/config" \
    XDG_DATA_HOME="$home/data" XDG_STATE_HOME="$home/state" XDG_CACHE_HOME="$home/cache" PI_OFFLINE=1 \
    PI_NVIM_BIN="${CARGO_TARGET_DIR:-$root/target}/debug/pi-nvim" PI_NVIM_DEMO="${demo-1}" PI_DEMO_OUT="${start}" \
    timeout 120 "$tools/py/bin/python" "$root/scripts/shot.py" "$out/$name" --nvim "$tools/bin/nvim" --size "$size" \
    --settle 1 "${keys[@]}" --arg=--clean "--arg=--cmd" "--arg=set rtp^=$root" --arg=-u "--arg=$root/scripts/demo/init.lua" \
    --arg=shop/cart.py)
  echo "$out/$name"
}

only=("$@")
asked="wait:require('pi.attention').count() > 0"
allow=("$asked" ':Pi attention<CR>' "wait:vim.api.nvim_win_get_config(0).relative ~= ''" 'sleep:0.6' 'y')
drawn="wait:require('pi.review').pending() > 5"
again="wait:require('pi.review').pending() == 1"
review=("${allow[@]}" "$drawn" 'sleep:0.5' ']c')

shot demo.gif 150x36 none 'wait:vim.v.vim_did_enter == 1' ':Pi<CR>' 'sleep:1.5' 'i' 'frame:2500:Ask. The agent works beside your code; your windows and your cursor stay yours.' \
  'The tests of this shop fail. Find out why and put it right.' 'frame:1500:Ask. The agent works beside your code; your windows and your cursor stay yours.' '<C-s>' \
  "$asked" 'frame:1500:It reads. A command asks before it runs.' '<Esc>' ':Pi attention<CR>' "wait:vim.api.nvim_win_get_config(0).relative ~= ''" 'sleep:0.6' \
  'frame:2500:It reads. A command asks before it runs.' 'y' "$drawn" ':wincmd t<CR>' ':hide edit shop/cart.py<CR>' 'sleep:0.5' ']c' 'sleep:0.3' \
  'frame:3500:Every edit is shown as hunks over your untouched text. Nothing is written yet.' ',a' 'sleep:0.5' \
  'frame:2000:,a accepts a hunk.' ':Pi! review reject<CR>' 'sleep:0.5' 'no floats where money is concerned' 'frame:2500:Refuse one, and say why: the reason goes to the model.' \
  '<C-s>' 'sleep:0.5' 'frame:1500:Refuse one, and say why: the reason goes to the model.' ',a' 'sleep:1' 'frame:2500:The last decision writes the file: one undo step, only the lines you accepted.' \
  ':Pi focus review<CR>' 'sleep:0.5' 'frame:2500:The list has every file of the turn.' 'ga' 'sleep:0.6' 'ga' "$asked" 'sleep:0.3' \
  ':Pi attention<CR>' "wait:vim.api.nvim_win_get_config(0).relative ~= ''" 'sleep:0.6' 'y' "$again" 'sleep:0.5' 'frame:3500:The model knows which hunks went in, which did not, and why. It goes on from there.' ':wincmd t<CR>' \
  ':Pi review next<CR>' 'sleep:0.8' 'frame:2500:Another way, without floats.' ',a' "$asked" 'sleep:0.3' ':Pi attention<CR>' "wait:vim.api.nvim_win_get_config(0).relative ~= ''" \
  'sleep:0.6' 'y' 'sleep:3' 'frame:4000:Done. `,u` takes a decision back, also now; `:Pi tree` goes back to any point.'
shot question 100x30 '' "$asked" ':Pi attention<CR>'
shot review 110x32 '' "${review[@]}"
shot review-small 80x24 '' "${review[@]}"
shot decided 110x32 '' "${review[@]}" ',a' 'sleep:0.3' ',r'
shot list 110x32 '' "${review[@]}" ',l'
shot proposal 110x32 '' "${review[@]}" ':Pi review next<CR>' ']C' 'sleep:0.3' ']C'
# A second branch: back to the question, asked in other words.
settings='{"branchSummary":{"skipPrompt":true}}' shot tree 130x34 '' "${review[@]}" ':Pi abort<CR>' "wait:require('pi.review').pending() == 0" ':Pi tree<CR>' 'sleep:1' 'gg' 'j' '<CR>' 'sleep:1' \
  ':Pi ask Only the receipt is wrong. Put it right.<CR>' "$asked" 'sleep:0.5' ':Pi focus tree<CR>' 'sleep:0.3' '/The tests<CR>' 'L' 'sleep:0.5' 'first try<CR>' 'sleep:0.8' ':nohlsearch<CR>'
shot chat 110x32 '' "${allow[@]}" "$drawn" ':Pi focus chat<CR>'
demo='' shot first-run 100x30 none 'wait:vim.v.vim_did_enter == 1' ':Pi open<CR>' 'sleep:1'
demo='' shot no-model 100x30 none 'wait:vim.v.vim_did_enter == 1' ':Pi ask explain this file<CR>' 'sleep:1'
demo='' models='{"providers":{"local":{"baseUrl":"http://127.0.0.1:9/v1","apiKey":"none","api":"openai-completions","models":[{"id":"m1","name":"M1"}]}}}' \
  settings='{"retry":{"enabled":false}}' shot server-down 100x30 none 'wait:vim.v.vim_did_enter == 1' ':Pi ask explain this file<CR>' 'sleep:2'
shot help 100x30 '' "$asked" ':Pi help<CR>'
