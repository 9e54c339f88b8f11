#!/bin/sh
# tools/scaling.sh: Llama 3.1 405B on H100, predicted at the sizes and batches of MLPerf
# Training v5.0 (NVIDIA, Eos), as the Markdown table of docs/CAPACITY.md. Minutes are to a
# target loss, which takes more samples with a larger batch; steps are the median of the
# logs' train_step_timing, of NVIDIA's own layout. Efficiencies are per GPU, against 512.
set -eu
mcpplan=${MCPPLAN:-build/release/mcpplan}

# GPUs, global batch, minutes (mean of three runs), seconds of a step
points='512 1152 230.7 55.13
2048 1152 63.4 14.22
2560 1120 50.3 11.17
8192 1536 19.7 5.18'

echo "| GPUs | batch | minutes | efficiency | step | efficiency | planned step | efficiency | MFU | t x c x p x d |"
echo "|---|---|---|---|---|---|---|---|---|---|"
echo "$points" | while read -r gpus batch minutes step; do
    "$mcpplan" capacity --model llama-3.1-405b --cluster dgx-h100 --gpus "$gpus" --tokens 1T \
        --global-batch-size "$batch" --batch-slack 0 --sequence-length 8192 --precision fp8 \
        --stack megatron-core-mlperf --failures none --json |
        awk -v gpus="$gpus" -v batch="$batch" -v minutes="$minutes" -v step="$step" '
            /"(iteration_s|model_flops_utilization|tokens_per_s|(tensor|context|pipeline|data)_parallel)":/ {
                gsub(/[",:]/, ""); value[$1] = $2
            }
            END {
                print gpus, batch, minutes, step, value["iteration_s"], value["model_flops_utilization"],
                    value["tokens_per_s"], value["tensor_parallel"] "x" value["context_parallel"] "x" \
                    value["pipeline_parallel"] "x" value["data_parallel"]
            }'
done | awk '
    NR == 1 { gpus = $1; minutes = $3; step_rate = $2 / $4; rate = $2 / $5 }
    {
        part = $1 / gpus
        printf "| %d | %d | %.1f | %.0f %% | %.2f s | %.0f %% | %.2f s | %.0f %% | %.3f | %s |\n",
            $1, $2, $3, 100 * minutes / $3 / part, $4, 100 * $2 / $4 / step_rate / part, $5,
            100 * $2 / $5 / rate / part, $6, $8
    }'
