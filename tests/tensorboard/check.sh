#!/bin/sh
# tests/tensorboard/check.sh MCPPLAN FOLDER: trains three steps and has TensorBoard itself, which
# pip installs below FOLDER, read the event files.
set -eu
mcpplan=$1
out=$2
here=$(dirname "$0")
mkdir -p "$out"
rm -rf "$out/events" "$out/run.jsonl"
[ -x "$out/python/bin/python" ] || python3 -m venv "$out/python"
"$out/python/bin/python" -c 'import tensorboard' 2> /dev/null ||
    "$out/python/bin/pip" install -q tensorboard 'setuptools<81'

"$mcpplan" data tokenize examples/text/*.txt -o "$out/tokens" > "$out/log"
"$mcpplan" plan --model examples/demo/gpt.json --cluster this --global-batch-size 8 \
    --sequence-length 64 --precision fp32 -o "$out/plan.json" >> "$out/log" 2>&1
"$mcpplan" train "$out/plan.json" --data "$out/tokens" --steps 3 --watch-every 1 \
    --tensorboard-dir "$out/events" --metrics "$out/run.jsonl" >> "$out/log" 2>&1
"$out/python/bin/python" -W ignore "$here/check.py" "$out/events" "$out/run.jsonl" 2> "$out/errors" || {
    cat "$out/errors" >&2
    exit 1
}
