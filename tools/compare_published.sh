#!/bin/sh
# tools/compare_published.sh PROGRAM: published layouts beside the planner's answers, both
# predicted for the same question. A Markdown table on standard output.
#
# A row: name | question | layout | measured seconds or tflops | source. What a source leaves
# open is open to the search in both columns.
set -eu
mcpplan=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# value KEY FILE: the first number of that name after "predicted".
value() {
    awk -v key="\"$1\":" '/"predicted": \{/ {on = 1} on && $1 == key {gsub(/,/, "", $2); print $2; exit}' "$2"
}

# degrees FILE: "t8 c1 p16 d8 v6 b1 zero 1, recompute"
degrees() {
    awk '
        function number(text) { gsub(/[^0-9]/, "", text); return text }
        /"predicted": \{/ { exit }
        $1 == "\"tensor_parallel\":" && !t { t = number($2) }
        $1 == "\"context_parallel\":" && !c { c = number($2) }
        $1 == "\"pipeline_parallel\":" && !p { p = number($2) }
        $1 == "\"data_parallel\":" && !d { d = number($2) }
        $1 == "\"expert_parallel\":" && !e { e = number($2) }
        $1 == "\"virtual_stages\":" && !v { v = number($2) }
        $1 == "\"microbatch_size\":" && !b { b = number($2) }
        $1 == "\"zero_stage\":" { z = number($2) }
        $1 == "\"recompute\":" {
            for (i = 2; i < NF; i += 2) {
                what = $i
                gsub(/[^a-z]/, "", what)
                again[what] += number($(i + 1))
            }
        }
        END {
            printf "t%d c%d p%d d%d", t, c, p, d
            if (e > 1) printf " e%d", e
            printf " v%d b%d zero %d", v, b, z
            for (i = 1; i <= 2; i++) {
                what = i == 1 ? "selective" : "full"
                if (again[what]) printf ", %s on %d", what, again[what]
            }
        }' "$1"
}

row() {
    name=$1 question=$2 layout=$3 measured=$4 source=$5
    # shellcheck disable=SC2086
    "$mcpplan" plan $question $layout -o "$folder/published.json" > /dev/null 2>&1 || {
        printf '| %s | refused: %s |\n' "$name" "$layout"
        return
    }
    # shellcheck disable=SC2086
    "$mcpplan" plan $question -o "$folder/ours.json" > /dev/null 2>&1
    theirs_s=$(value iteration_s "$folder/published.json")
    ours_s=$(value iteration_s "$folder/ours.json")
    fits=$(value fits "$folder/published.json")
    awk -v name="$name" -v theirs="$(degrees "$folder/published.json")" -v theirs_s="$theirs_s" \
        -v ours="$(degrees "$folder/ours.json")" -v ours_s="$ours_s" -v fits="$fits" \
        -v measured="$measured" -v source="$source" 'BEGIN {
            note = fits == "true" ? "" : " (over the memory limit here)"
            printf "| %s | %s | %s | %.2f s%s | %s | %.2f s | %+.1f %% | %s |\n", name, theirs,
                measured, theirs_s, note, ours, ours_s, 100 * (theirs_s / ours_s - 1), source }'
}

echo '| model, machines, batch x length | published layout | measured | predicted | our answer | predicted | published loses | source |'
echo '|---|---|---|---|---|---|---|---|'
row '175 B, 1,024 A100, 1,536 x 2,048' \
    '--model gpt3-175b --cluster dgx-a100:128 --global-batch-size 1536 --sequence-length 2048 --precision fp16' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 16 --data-parallel 8 --recompute full --microbatch-size 1 --virtual-stages 1 --zero-stage 0' \
    '32 s' 'Megatron-LM README, GPT-3 example'
row '175 B, 64 A100, 64 x 2,048' \
    '--model gpt3-175b --cluster dgx-a100:8 --global-batch-size 64 --sequence-length 2048 --precision fp16 --stack megatron-2021' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 8 --data-parallel 1 --virtual-stages 3 --microbatch-size 1 --zero-stage 0 --recompute selective' \
    '13.75 s' 'arXiv 2205.05198, table 5'
row '405 B, 16,384 H100, 2,048 x 8,192' \
    '--model llama-3.1-405b --cluster grand-teton-h100:2048 --global-batch-size 2048 --sequence-length 8192' \
    '--tensor-parallel 8 --context-parallel 1 --pipeline-parallel 16 --data-parallel 128 --microbatch-size 1' \
    '6.45 s' 'The Llama 3 Herd of Models, table 4'
row '405 B, 16,384 H100, 128 x 131,072' \
    '--model llama-3.1-405b --cluster grand-teton-h100:2048 --global-batch-size 128 --sequence-length 131072' \
    '--tensor-parallel 8 --context-parallel 16 --pipeline-parallel 16 --data-parallel 8 --microbatch-size 1' \
    '380 TFLOP/s a GPU' 'The Llama 3 Herd of Models, table 4'
row '405 B, 1,024 H100, 512 x 8,192' \
    '--model llama-3.1-405b --cluster dgx-h100:128 --global-batch-size 512 --sequence-length 8192' \
    '--tensor-parallel 8 --context-parallel 2 --pipeline-parallel 8 --data-parallel 8 --virtual-stages 8 --microbatch-size 1 --zero-stage 1 --recompute none' \
    '19.84 s' 'NVIDIA DGX Cloud recipes v25.04'
row 'DeepSeek-V3, 256 GB200, 4,096 x 4,096, MXFP8' \
    '--model deepseek-v3 --cluster gb200-nvl72 --gpus 256 --global-batch-size 4096 --sequence-length 4096 --precision mxfp8 --stack megatron-bridge' \
    '--tensor-parallel 1 --context-parallel 1 --pipeline-parallel 4 --data-parallel 64 --expert-parallel 64 --virtual-stages 4 --microbatch-size 1 --zero-stage 1' \
    '13.34 s' 'Megatron-Bridge performance summary 26.08'
row 'Mixtral 8x7B, 64 H100, 256 x 4,096' \
    '--model mixtral-8x7b --cluster dgx-h100:8 --global-batch-size 256 --sequence-length 4096' \
    '--tensor-parallel 1 --context-parallel 1 --pipeline-parallel 4 --data-parallel 16 --expert-parallel 8 --virtual-stages 8 --microbatch-size 1 --zero-stage 1 --recompute none' \
    '438 TFLOP/s a GPU' 'Megatron-Core MoE guide, v0.8'
