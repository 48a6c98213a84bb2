#!/usr/bin/env bash
# Fuzzes with coverage guidance: every target, or one, for ten minutes or as many seconds as are given.
#
#   scripts/fuzz.sh [TARGET [SECONDS]]
#
# Needs a nightly toolchain and cargo-fuzz. PI_NVIM_FUZZ holds further options of `cargo fuzz run` (-snone: no sanitizer).
set -euo pipefail
cd "$(dirname "$0")/.."
targets=(edit truncation arguments output path_arguments picture)
[ $# -gt 0 ] && targets=("$1")
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target"
    case "$target" in
        picture) longest=8192 ;;
        path_arguments) longest=512 ;;
        *) longest=4096 ;;
    esac
    # shellcheck disable=SC2086
    cargo +nightly fuzz run ${PI_NVIM_FUZZ:-} "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="${2:-600}" -max_len="$longest" -print_final_stats=1
done
