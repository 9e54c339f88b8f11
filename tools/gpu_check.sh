#!/bin/sh
# tools/gpu_check.sh BUILD: what a machine with a GPU says of the CUDA backend, on one of its
# GPUs: whether it trains to the losses of a CPU, and how fast it trains a model of a billion
# parameters beside what was planned. Without a GPU it says so, and ends well.
set -eu
build=$1
out=$build/gpu-check
mcpplan=$build/mcpplan
start=$(date +%s)

not_run() {
    echo "gpu-check: not run: $1"
    exit 0
}

[ -x "$build/mcpplan-exec-cuda" ] || not_run "mcpplan-exec-cuda is not built (no nvcc, or CUDA=0)"
device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null |
    head -n 1) || device=
[ -n "$device" ] || not_run "no GPU here"
cluster=${GPU_CHECK_CLUSTER:-dgx-h200} # a preset with this GPU: what is planned for
mkdir -p "$out"

# numbers KEY METRICS: of all steps
numbers() {
    sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' "$2"
}

"$mcpplan" data tokenize examples/text/*.txt -o "$out/text.tokens" > "$out/tokenize.txt"

# The same steps in fp32 on a CPU and on the GPU.
"$mcpplan" plan --model examples/demo/gpt.json --cluster "$cluster" --gpus 1 --precision fp32 \
    --global-batch-size 8 --sequence-length 256 -o "$out/small.json" > "$out/small.txt"
for backend in cpu cuda; do
    "$mcpplan" train "$out/small.json" --backend $backend --data "$out/text.tokens" --steps 20 \
        --learning-rate 1e-3 --warmup-steps 5 --metrics "$out/small-$backend.jsonl" \
        > "$out/small-$backend.txt"
done
numbers loss "$out/small-cpu.jsonl" > "$out/cpu.losses"
numbers loss "$out/small-cuda.jsonl" > "$out/cuda.losses"
apart=$(paste "$out/cpu.losses" "$out/cuda.losses" | awk '
    { d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
    END { if (NR != 20 || NF != 2) worst = "nan"; print worst + 0 == worst ? worst : "nan" }')

# Llama 3.2 1B's shape, in bf16.
cat > "$out/1b.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192,
 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
 "max_position_embeddings": 131072, "tie_word_embeddings": true}
END
"$mcpplan" plan --model "$out/1b.json" --cluster "$cluster" --gpus 1 --global-batch-size 16 \
    --sequence-length 4096 -o "$out/1b.plan.json" > "$out/1b.txt"
"$mcpplan" train "$out/1b.plan.json" --backend cuda --data "$out/text.tokens" --steps 8 \
    --learning-rate 1e-4 --warmup-steps 8 --metrics "$out/1b.jsonl" --timeline "$out/1b.run.json" \
    > "$out/1b-train.txt"
"$mcpplan" compare "$out/1b.plan.json" "$out/1b.run.json" --report "$out/1b.html" > "$out/compare.txt"

printf '%-52s %s\n' 'GPU, driver' "$device" 'date' "$(date -u +%Y-%m-%d)" \
    'fp32 losses of 20 steps beside a CPU, apart' "$apart (at most 1e-4)" \
    'Llama 3.2 1B, bf16: tokens/s of the fastest step' \
    "$(numbers tokens_per_s "$out/1b.jsonl" | sort -g | tail -n 1)" \
    'share of the peak FLOP/s that the plan assumes' \
    "$(numbers model_flops_utilization "$out/1b.jsonl" | sort -g | tail -n 1)"
cat "$out/compare.txt"
echo "gpu-check: $(($(date +%s) - start)) s; more in $out"
awk "BEGIN { exit !($apart <= 1e-4) }" || { echo "gpu-check: losses differ" >&2; exit 1; }
