#!/bin/sh
# tools/compare_published.sh PROGRAM: published layouts beside the planner's answers, both
# predicted for the same question. A Markdown table on standard output.
#
# A row: name | question | layout | measured | source. What a source leaves open is open to
# the search in both columns. Not among the tests: it takes as long as two searches a row.
set -eu
mcpplan=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# predicted KEY FILE: the first value of that name after "predicted".
predicted() {
    awk -v key="\"$1\":" '
        /"predicted": \{/ { on = 1 }
        on && $1 == key { sub(/,$/, "", $2); print $2; exit }' "$2"
}

# layout FILE: "t8 c1 p16 d8 v6 b1 zero 1, full on 96"
layout() {
    awk '
        function number(text) { gsub(/[^0-9]/, "", text); return text }
        /"predicted": \{/ { exit }
        $1 ~ /^"(tensor|context|pipeline|data|expert)_parallel":$/ && !($1 in value) ||
        $1 ~ /^"(virtual_stages|microbatch_size|zero_stage)":$/ { value[$1] = number($2) }
        $1 == "\"recompute\":" {
            for (i = 2; i < NF; i += 2) {
                what = $i
                gsub(/[^a-z]/, "", what)
                again[what] += number($(i + 1))
            }
        }
        END {
            split("tensor context pipeline data expert", axes, " ")
            for (i = 1; i <= 5; i++) {
                degree = value["\"" axes[i] "_parallel\":"]
                if (degree > 1) printf "%s%d ", substr(axes[i], 1, 1), degree
            }
            printf "v%d b%d", value["\"virtual_stages\":"], value["\"microbatch_size\":"]
            printf " zero %d", value["\"zero_stage\":"]
            if (again["selective"]) printf ", selective on %d", again["selective"]
            if (again["full"]) printf ", full on %d", again["full"]
        }' "$1"
}

# losses FILE: the three kinds of time that differ most, of the first --against.
losses() {
    awk '
        /"cost_ns": \{/ { inside = 1; next }
        inside && /\}/ { exit }
        inside {
            gsub(/[":,]/, "")
            print ($2 < 0 ? -$2 : $2), $1, $2 / 1e9
        }' "$1" | LC_ALL=C sort -k1,1nr -k2,2 | awk '
        NR <= 3 && $1 >= 500000 {
            printf "%s%s %+.*f s", separator, $2, $1 < 1e8 ? 3 : 2, $3
            separator = ", "
        }'
}

proof() {
    awk '
        /"search": \{/ { on = 1 }
        on && $1 == "\"proven_optimal\":" { proven = $2 ~ /true/ }
        on && $1 == "\"gap_frac\":" { gap = $2 + 0 }
        END { if (!proven) printf " (gap %.1f %%)", 100 * gap }' "$1"
}

row() {
    name=$1 question=$2 layout=$3 measured=$4 source=$5
    # shellcheck disable=SC2086
    "$mcpplan" plan $question $layout --top 1 -o theirs.json > /dev/null 2>&1 || {
        printf '| %s | refused: %s | | | | | %s |\n' "$name" "$layout" "$source"
        return
    }
    # shellcheck disable=SC2086
    "$mcpplan" plan $question --top 1 --against theirs.json -o ours.json > /dev/null 2>&1
    awk -v name="$name" -v measured="$measured" -v source="$source" \
        -v theirs="$(layout theirs.json)" -v theirs_s="$(predicted iteration_s theirs.json)" \
        -v fits="$(predicted fits theirs.json)" -v peak="$(predicted peak_memory_bytes theirs.json)" \
        -v limit="$(predicted memory_limit_bytes theirs.json)" -v proof="$(proof ours.json)" \
        -v ours="$(layout ours.json)" -v ours_s="$(predicted iteration_s ours.json)" \
        -v losses="$(losses ours.json)" 'BEGIN {
            if (fits != "true")
                note = sprintf(" (%.1f GiB of %.1f)", peak / 1073741824, limit / 1073741824)
            printf "| %s | %s | %s | %.2f s%s | %s%s | %.2f s | %+.1f %%: %s | %s |\n", name, theirs,
                measured, theirs_s, note, ours, proof, ours_s, 100 * (theirs_s / ours_s - 1),
                losses, source }'
}

echo '| model, machines, batch x length | published layout | measured | predicted | our answer | predicted | published against ours | source |'
echo '|---|---|---|---|---|---|---|---|'
row '175 B, 512 A100, 768 x 2,048' \
    '--model gpt3-175b --cluster dgx-a100:64 --global-batch-size 768 --sequence-length 2048' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 8 --data-parallel 8 --virtual-stages 6' \
    '21.2 s by Megatron-LM, 16.5 s by MegaScale' 'MegaScale, NSDI 2024, table 2'
row '175 B, 1,024 A100, 768 x 2,048' \
    '--model gpt3-175b --cluster dgx-a100:128 --global-batch-size 768 --sequence-length 2048' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 8 --data-parallel 16 --virtual-stages 6' \
    '11.9 s by Megatron-LM, 8.9 s by MegaScale' 'the same'
row '175 B, 1,024 A100, 1,536 x 2,048, fp16' \
    '--model gpt3-175b --cluster dgx-a100:128 --global-batch-size 1536 --sequence-length 2048 --precision fp16' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 16 --data-parallel 8 --recompute full' \
    '32 s' 'Megatron-LM README, GPT-3 example'
row '175 B, 64 A100, 64 x 2,048, fp16, dropout, megatron-2021' \
    '--model gpt3-175b --cluster dgx-a100:8 --global-batch-size 64 --sequence-length 2048 --precision fp16 --dropout --stack megatron-2021' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 8 --data-parallel 1 --virtual-stages 3 --microbatch-size 1 --zero-stage 0 --recompute selective' \
    '13.75 s' 'arXiv 2205.05198, table 5'
row '405 B, 1,024 H100, 512 x 8,192' \
    '--model llama-3.1-405b --cluster dgx-h100:128 --global-batch-size 512 --sequence-length 8192' \
    '--tensor-parallel 8 --context-parallel 2 --pipeline-parallel 8 --data-parallel 8 --virtual-stages 8 --microbatch-size 1 --zero-stage 1 --recompute none' \
    '19.84 s' 'NVIDIA DGX Cloud recipes v25.04'
row '405 B, 8,192 H100, 1,536 x 8,192, fp8, megatron-core-mlperf' \
    '--model llama-3.1-405b --cluster dgx-h100:1024 --global-batch-size 1536 --sequence-length 8192 --precision fp8 --stack megatron-core-mlperf' \
    '--tensor-parallel 8 --context-parallel 2 --pipeline-parallel 8 --data-parallel 64 --virtual-stages 8 --microbatch-size 1 --zero-stage 1 --recompute none' \
    '5.18 s' 'MLPerf Training v5.0, NVIDIA, 1,024 nodes'
row '405 B, 16,384 H100, 2,048 x 8,192' \
    '--model llama-3.1-405b --cluster grand-teton-h100:2048 --global-batch-size 2048 --sequence-length 8192' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 16 --data-parallel 128' \
    '6.45 s' 'The Llama 3 Herd of Models, table 4'
row '405 B, 16,384 H100, 128 x 131,072' \
    '--model llama-3.1-405b --cluster grand-teton-h100:2048 --global-batch-size 128 --sequence-length 131072' \
    '--tensor-parallel 8 --context-parallel 16 --pipeline-parallel 16 --data-parallel 8' \
    '380 TFLOP/s a GPU' 'the same'
row 'DeepSeek-V3, 256 GB300, 4,096 x 4,096, mxfp8, megatron-bridge' \
    '--model deepseek-v3 --cluster gb300-nvl72 --gpus 256 --global-batch-size 4096 --sequence-length 4096 --precision mxfp8 --stack megatron-bridge' \
    '--tensor-parallel 1 --context-parallel 1 --pipeline-parallel 2 --data-parallel 128 --expert-parallel 32 --virtual-stages 8 --microbatch-size 1 --zero-stage 1' \
    '10.42 s' 'Megatron-Bridge performance summary 26.08'
row 'Mixtral 8x7B, 64 H100, 256 x 4,096' \
    '--model mixtral-8x7b --cluster dgx-h100:8 --global-batch-size 256 --sequence-length 4096' \
    '--tensor-parallel 1 --context-parallel 1 --pipeline-parallel 4 --data-parallel 16 --expert-parallel 8 --virtual-stages 8 --microbatch-size 1 --zero-stage 1 --recompute none' \
    '438 TFLOP/s a GPU' 'Megatron-Core MoE guide, v0.8'
