#!/bin/sh
# tools/fuzz.sh PROGRAM SEEDS SECONDS: one libFuzzer run, of FUZZ_SEED (1). What it finds stays in
# the build folder.
set -eu
name=${1##*/fuzz_}
corpus=${1%/*}/corpus/$name
log=$1.log
mkdir -p "$corpus"
seeds=
[ -d "$2/$name" ] && seeds=$2/$name
if ! ASAN_OPTIONS=detect_leaks=1 "$1" -max_total_time="$3" -seed="${FUZZ_SEED:-1}" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
    -artifact_prefix="$1-" "$corpus" $seeds > "$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz: $name found a bug; the input stands beside $1"
    exit 1
fi
echo "  FUZZ  $name: $(sed -n 's/^Done \([0-9]*\) runs.*/\1 inputs, no bug/p' "$log")"
