#!/bin/sh
# tools/bench_train.sh PROGRAM FOLDER: how fast GPT-2 124M trains on this machine's cores in
# FP32: one rank with all threads against its products and AdamW alone, each as fast as the
# fastest of its size in the same step; then one rank a core against that one rank, of the
# same batch: tensor parallel, pipeline with 16 microbatches and layers balanced by the
# planner, data with 8 microbatches a rank. Needs cores that nobody else uses.
set -eu
mcpplan=$1
out=$2
cores=$(nproc)
mkdir -p "$out"

cat > "$out/cores.json" << END
{"schema": "mcpplan.cluster/1", "name": "cores", "gpu": "cpu", "num_nodes": 1,
 "gpus_per_node": $cores, "source": "one rank a core",
 "tiers": [{"name": "memory", "bandwidth_bytes_per_s": "8GB/s", "efficiency_frac": 1, "latency_s": "1us"}]}
END
"$mcpplan" data tokenize examples/text/*.txt -o "$out/tokens" > "$out/log"

# NAME CLUSTER STEPS BATCH MICROBATCH OPTION...: the seconds of its fastest step
step_of() {
    name=$1 cluster=$2 steps=$3 batch=$4 microbatch=$5
    shift 5
    "$mcpplan" plan --model gpt2 --cluster "$cluster" --precision fp32 --sequence-length 64 \
        --global-batch-size "$batch" --microbatch-size "$microbatch" --recompute none \
        --pipeline-rule off --zero-stage 0 "$@" -o "$out/$name.json" >> "$out/log" 2>&1
    "$mcpplan" train "$out/$name.json" --data "$out/tokens" --steps "$steps" \
        --timeline "$out/$name.jsonl" >> "$out/log" 2>&1
    sed -n '1s/.*"iteration_s":\([0-9.]*\).*/\1/p' "$out/$name.jsonl"
}

one=$(step_of one this 6 4 4)
awk -F '[:,{}]' -v step="$one" '
    NR > 1 {
        for (i = 1; i < NF; i++) {
            gsub(/"/, "", $i)
            value[$i] = $(i + 1)
        }
        gsub(/"/, "", value["function"])
        if (value["function"] !~ /^matmul|^adam$/)
            next
        seconds = value["end_s"] - value["start_s"]
        first = value["layer"] == 0 || value["layer"] > 12 # ends are of other sizes
        key = value["function"] " " value["op"] " " (first ? value["layer"] : "")
        count[key]++
        if (!(key in least) || seconds < least[key])
            least[key] = seconds
    }
    END {
        for (key in least)
            floor += least[key] * count[key]
        printf "one rank, all threads: step %.3f s, products and AdamW %.3f s, ratio %.2f\n", step,
            floor, step / floor
    }' "$out/one.jsonl"

against() { # WHAT SECONDS OF ONE RANK
    awk -v what="$1" -v s="$2" -v one="$3" 'BEGIN {
        printf "%-28s step %.3f s, one rank %.3f s, efficiency %.1f %%\n", what, s, one, 100 * one / s }'
}
near="--virtual-stages 1 --context-parallel 1"
# shellcheck disable=SC2086 # words
{
    against "tensor $cores" "$(step_of tensor "$out/cores.json" 6 4 4 $near --tensor-parallel "$cores" \
        --pipeline-parallel 1 --data-parallel 1)" "$one"
    sixteen=$(step_of sixteen this 3 16 1)
    against "pipeline $cores, m = 16" "$(step_of pipeline "$out/cores.json" 3 16 1 $near \
        --tensor-parallel 1 --pipeline-parallel "$cores" --data-parallel 1 --schedule 1f1b)" "$sixteen"
    many=$(step_of many this 2 $((8 * cores)) 1)
    against "data $cores, accumulation 8" "$(step_of data "$out/cores.json" 2 $((8 * cores)) 1 $near \
        --tensor-parallel 1 --pipeline-parallel 1 --data-parallel "$cores")" "$many"
}
