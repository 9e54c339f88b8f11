#!/bin/sh
# tools/demo.sh PROGRAM FOLDER: what mcpplan does, on this machine: it measures it, plans a
# small GPT over its cores, plays the plan, trains it, and holds what was measured against
# what was predicted. Files and the report are left in FOLDER. About two minutes.
set -u
mcpplan=$1
out=$2
mkdir -p "$out" || exit 1

show() {
    printf '\n$ mcpplan'
    printf ' %s' "$@"
    printf '\n\n'
    "$mcpplan" "$@" || exit $?
}

model="--model examples/demo/gpt.json --global-batch-size 8 --sequence-length 256"
show topo
# shellcheck disable=SC2086 # $model is words
{
    show calibrate $model --steps 3 --repeats 1 -o "$out/calibration.json"
    show plan $model --cluster this --calibration "$out/calibration.json" -o "$out/plan.json" \
        --report "$out/plan.html"
}
show sim "$out/plan.json" --timeline "$out/predicted.json"
show data tokenize examples/text/*.txt -o "$out/text.tokens"
show train "$out/plan.json" --data "$out/text.tokens" --steps 50 --learning-rate 1e-3 \
    --warmup-steps 10 --metrics "$out/run.jsonl" --timeline "$out/measured.json"
show compare "$out/plan.json" "$out/measured.json" --report "$out/compare.html"
printf '\nThe plan: %s/plan.html. Predicted against measured: %s/compare.html\n' "$out" "$out"

# The same question for a big machine.
show plan --model gpt3-175b --cluster dgx-a100:128 --global-batch-size 1536 --sequence-length 2048
