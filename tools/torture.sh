#!/bin/bash
# tools/torture.sh MCPPLAN [KILLS]: kills ranks of a run at random moments, goes on from the last
# whole checkpoint each time, and expects the losses of a run that nobody killed.
set -eu
mcpplan=$1
kills=${2:-50}
steps=60
cd "$(dirname "$0")/.."
work=$(mktemp -d)
train=
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

# Processes below PID.
below() {
    for child in $(pgrep -P "$1"); do
        echo "$child"
        below "$child"
    done
}

ranks() {
    for process in $(below "$1"); do
        grep -q mcpplan-exec "/proc/$process/comm" 2> /dev/null && echo "$process"
    done
    return 0
}

# However this ends: no process stays, no file.
leave() {
    for process in ${train:+$(below "$train")}; do
        kill -9 "$process" 2> /dev/null || :
    done
    wait
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 1' INT TERM

losses() {
    sed 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/' "$1"
}

"$mcpplan" data tokenize examples/text/*.txt -o "$work/tokens" > "$work/log"
sed 's/"vocab_size": 200/"vocab_size": 257/' tests/exec/models/gpt2-tiny.json > "$work/model.json"
"$mcpplan" plan --model "$work/model.json" --cluster dgx-a100 --gpus 2 \
    --global-batch-size 8 --sequence-length 32 --precision fp32 --data-parallel 2 \
    -o "$work/plan.json" >> "$work/log" 2>&1

run() {
    "$mcpplan" train "$work/plan.json" --data "$work/tokens" --steps $steps --threads 1 \
        --learning-rate 1e-3 --warmup-steps 5 --timeout-s 20 --metrics "$work/$1.jsonl" \
        "${@:2}" >> "$work/log" 2>&1
}

run whole || { tail -n 3 "$work/log"; exit 1; }
killed=0 ended=0 whole_runs=0
while [ "$killed" -lt "$kills" ]; do
    if [ "$ended" = 1 ]; then
        rm -rf "$work/checkpoints" "$work/cut.jsonl"
        ended=0
    fi
    run cut --checkpoint-dir "$work/checkpoints" --checkpoint-every 3 --resume &
    train=$!
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    victim=$(ranks $train | shuf -n 1)
    if [ -n "$victim" ] && kill -9 "$victim" 2> /dev/null; then
        killed=$((killed + 1))
        wait $train && { echo "torture: the run outlived rank process $victim"; exit 1; }
    elif wait $train; then
        ended=1
        whole_runs=$((whole_runs + 1))
        cmp <(losses "$work/whole.jsonl") <(losses "$work/cut.jsonl") || exit 1
    else
        tail -n 3 "$work/log"
        echo "torture: a run failed that nobody killed"
        exit 1
    fi
done
run cut --checkpoint-dir "$work/checkpoints" --checkpoint-every 3 --resume
cmp <(losses "$work/whole.jsonl") <(losses "$work/cut.jsonl") || exit 1
echo "torture: $kills ranks killed, $whole_runs runs ended between kills, every loss of $steps" \
    "steps as without, to the last digit"
