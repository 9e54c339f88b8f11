#!/bin/sh
# tools/gpu_check.sh BUILD: what a machine with a GPU says of the CUDA backend, on one of its GPUs:
# whether it trains to the losses of a CPU, how near its kernels come to what the GPU can do, what
# calibrate measures, how fast a model of a billion parameters trains, and how well that was
# predicted; and where the GPU has products in 8 bits, losses, kernels and speed of those. Without a
# GPU it says so, and ends well. What fails is named.
#
# For other machines, and for tests of this script:
#   GPU_CHECK_CLUSTER    a preset or file with this GPU; default: what is found here
#   GPU_CHECK_DEVICE     a command that says the GPU's name and its driver
#   GPU_CHECK_SMALL      model, sequences a step, their tokens, steps: fp32, on a CPU too
#   GPU_CHECK_LARGE      the same in bf16: trained for speed; and calibrated, with so many
#                        sequences a step
#   GPU_CHECK_ROOFLINES  further options of mcpplan-exec-cuda --rooflines
#   GPU_CHECK_APART      the most by which losses may lie apart in fp32
#   GPU_CHECK_EIGHT      the same in 8 bits
set -eu

wrong() {
    echo "gpu-check: $1" >&2
    exit 2
}

[ $# -eq 1 ] || wrong "usage: tools/gpu_check.sh BUILD"
build=$1
out=$build/gpu-check
mcpplan=$build/mcpplan
start=$(date +%s)

not_run() {
    echo "gpu-check: not run: $1"
    exit 0
}

fail() {
    echo "gpu-check: $1 has failed: $2" >&2
    exit 1
}

# run PART FILE COMMAND..: its output goes to FILE
run() {
    part=$1 file=$out/$2
    shift 2
    "$@" > "$file" 2> "$file.err" || fail "$part" "$(tail -n 1 "$file.err")"
}

[ -x "$build/mcpplan-exec-cuda" ] || not_run "mcpplan-exec-cuda is not built (no nvcc, or CUDA=0)"
: "${GPU_CHECK_DEVICE:=nvidia-smi --query-gpu=name,driver_version --format=csv,noheader}"
device=$($GPU_CHECK_DEVICE 2> /dev/null | head -n 1) || device=
[ -n "$device" ] || not_run "no GPU here"
cluster=${GPU_CHECK_CLUSTER:-this}
apart=${GPU_CHECK_APART:-1e-4} eight_apart=${GPU_CHECK_EIGHT:-1e-2}

# limit NAME VALUE
limit() {
    awk -v apart="$2" 'BEGIN { exit !(apart ~ /^[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?$/) }' ||
        wrong "$1=$2: not a number of 0 or more"
}
limit GPU_CHECK_APART "$apart"
limit GPU_CHECK_EIGHT "$eight_apart"
[ -d examples/text ] || wrong "there is no examples/text here: it runs in the root of the repository"
rm -rf "$out"
mkdir -p "$out"

# Llama 3.2 1B's shape.
cat > "$out/llama-3.2-1b.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192,
 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
 "max_position_embeddings": 131072, "tie_word_embeddings": true}
END

# shellcheck disable=SC2086 # lists of words
set -- ${GPU_CHECK_SMALL:-examples/demo/gpt.json 8 256 20}
[ $# -eq 4 ] || wrong "GPU_CHECK_SMALL has $# words, not 4: model, sequences, tokens of each, steps"
small_model=$1 small_sequences=$2 small_tokens=$3 small_steps=$4
# shellcheck disable=SC2086
set -- ${GPU_CHECK_LARGE:-$out/llama-3.2-1b.json 16 4096 8 4}
[ $# -eq 5 ] ||
    wrong "GPU_CHECK_LARGE has $# words, not 5: as GPU_CHECK_SMALL, and sequences for calibrate"
large_model=$1 large_sequences=$2 large_tokens=$3 large_steps=$4 calibrated_sequences=$5

# numbers KEY METRICS: of all steps
numbers() {
    sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' "$2"
}

# Text enough for one step: the examples, again and again.
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    cat examples/text/*.txt examples/text/*.txt
done > "$out/text.txt"
run data tokenize.txt "$mcpplan" data tokenize "$out/text.txt" -o "$out/text.tokens"

# plan PART FILE OPTIONS..: of one GPU
plan() {
    part=$1 file=$2
    shift 2
    run "$part" "$file.txt" "$mcpplan" plan --gpus 1 -o "$out/$file.json" "$@"
}

# train PART PLAN BACKEND OPTIONS..
train() {
    part=$1 file=$2 backend=$3
    shift 3
    run "$part" "$file-$backend.txt" "$mcpplan" train "$out/$file.json" --backend "$backend" \
        --data "$out/text.tokens" --metrics "$out/$file-$backend.jsonl" "$@"
}

# losses PLAN LIMIT: the same steps on a CPU and on the GPU; how far they lie apart is in $worst
losses() {
    of=$1 most=$2
    for backend in cpu cuda; do
        train losses "$of" $backend --steps "$small_steps" --learning-rate 1e-3 --warmup-steps 5
        numbers loss "$out/$of-$backend.jsonl" > "$out/$backend.losses"
    done
    worst=$(paste "$out/cpu.losses" "$out/cuda.losses" | awk -v steps="$small_steps" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d <= worst)) worst = d
          if (NF != 2 || $1 + 0 <= 0 || $2 + 0 <= 0) bad = 1 }
        END { if (bad || NR != steps || !(worst <= 1)) print "unknown"
              else printf "%.1e\n", worst }')
    awk -v worst="$worst" -v most="$most" \
        'BEGIN { exit !(worst != "unknown" && worst <= most + 0) }' ||
        fail losses "those of a CPU and of the GPU lie $worst apart, and may $most (relative)"
}

plan losses small --model "$small_model" --cluster "$cluster" --stack mcpplan-cuda \
    --precision fp32 --global-batch-size "$small_sequences" --sequence-length "$small_tokens"
losses small "$apart"
fp32_worst=$worst

# In 8 bits: no plan is legal for a GPU without them.
eight=
if "$mcpplan" plan --gpus 1 -o "$out/eight.json" --model "$small_model" --cluster "$cluster" \
    --stack mcpplan-cuda --precision fp8 --global-batch-size "$small_sequences" \
    --sequence-length "$small_tokens" > "$out/eight.txt" 2> "$out/eight.txt.err"; then
    eight=yes
    losses eight "$eight_apart"
elif ! grep -q 'no known rate in precision fp8' "$out/eight.txt.err" "$out/eight.txt"; then
    fail losses "$(tail -n 1 "$out/eight.txt.err")"
fi

# What ops take here, and a plan by that, of microbatches that were measured; and the same plan by
# what the stack says alone.
run calibrate calibrate.txt "$mcpplan" calibrate --backend cuda --cluster "$cluster" --ranks 1 \
    --model "$large_model" --global-batch-size "$calibrated_sequences" \
    --sequence-length "$large_tokens" --steps 3 --repeats 1 -o "$out/calibration.json"
plan plan large --model "$large_model" --cluster this --calibration "$out/calibration.json" \
    --global-batch-size "$large_sequences" --sequence-length "$large_tokens" \
    --microbatch-size 1..4 --dump-program "$out/large.program.json"
microbatch=$(numbers microbatch_size "$out/large.json" | head -n 1)
plan plan guessed --model "$large_model" --cluster "$cluster" --stack mcpplan-cuda \
    --global-batch-size "$large_sequences" --sequence-length "$large_tokens" \
    --microbatch-size "$microbatch"

# Each kernel of that program alone.
# shellcheck disable=SC2086 # options are words
run rooflines rooflines.txt "$build/mcpplan-exec-cuda" --rooflines \
    --program "$out/large.program.json" --output "$out/rooflines.json" ${GPU_CHECK_ROOFLINES:-}

train training large cuda --steps "$large_steps" --learning-rate 1e-4 \
    --warmup-steps "$large_steps" --timeline "$out/large.run.json"
if [ -n "$eight" ]; then
    plan plan large-eight --model "$large_model" --cluster "$cluster" --stack mcpplan-cuda \
        --precision fp8 --global-batch-size "$large_sequences" --sequence-length "$large_tokens" \
        --microbatch-size "$microbatch" --dump-program "$out/large-eight.program.json"
    # shellcheck disable=SC2086
    run rooflines rooflines-eight.txt "$build/mcpplan-exec-cuda" --rooflines \
        --program "$out/large-eight.program.json" --output "$out/rooflines-eight.json" \
        ${GPU_CHECK_ROOFLINES:-}
    train training large-eight cuda --steps "$large_steps" --learning-rate 1e-4 \
        --warmup-steps "$large_steps"
fi
run compare compare.txt "$mcpplan" compare "$out/large.json" "$out/large.run.json" \
    --report "$out/compare.html"
run compare compare.json "$mcpplan" compare "$out/large.json" "$out/large.run.json" --json

# --- one table ---

# row WHAT FOUND AIM VERDICT
row() {
    printf '  %-44s %9s %8s  %s\n' "$@"
}

percent() {
    awk -v frac="$1" 'BEGIN { if (frac == "") print "-"; else printf "%.1f %%\n", 100 * frac }'
}

milliseconds() {
    awk -v s="$1" 'BEGIN { if (s == "") print "-"; else printf "%.1f ms\n", 1000 * s }'
}

# best KEY PLAN
best() {
    numbers "$1" "$out/$2-cuda.jsonl" | sort -g | tail -n 1
}

cat "$out/rooflines.txt"
if [ -n "$eight" ]; then
    printf '\nin 8 bits\n'
    sed -n '/^  op /p; / f8 /p; / in f8$/p; /^  cast_/p' "$out/rooflines-eight.txt"
fi
echo
cat "$out/compare.txt"
mfu=$(best model_flops_utilization large)
steps_s=$(numbers iteration_s "$out/compare.json") # predicted, measured
guessed_s=$(numbers iteration_s "$out/guessed.json" | head -n 1)
{
    printf '\n%s; %s\n\n' "$device" "$(date -u +%Y-%m-%d)"
    row "" found aim ""
    row "fp32 losses of $small_steps steps beside a CPU, apart" "$fp32_worst" "$apart" met
    sed -n '1,/share of the roofline/d; p' "$out/rooflines.txt"
    row "MFU of the fastest step, bf16" "$(percent "$mfu")" "45 %" \
        "$(awk -v mfu="$mfu" 'BEGIN { print (mfu == "" ? "unknown" : mfu >= 0.45 ? "met" : "not met") }')"
    row "tokens/s of it" "$(best tokens_per_s large | sed 's/[.].*//')" "" ""
    row "that step" "$(milliseconds "$(echo "$steps_s" | tail -n 1)")" "" ""
    row "as predicted by what calibrate measured" "$(milliseconds "$(echo "$steps_s" | head -n 1)")" "" ""
    row "as predicted by the stack mcpplan-cuda alone" "$(milliseconds "$guessed_s")" "" ""
    if [ -n "$eight" ]; then
        row "losses in 8 bits beside a CPU, apart" "$worst" "$eight_apart" met
        sed -n 's/^  matrix products             /  products of a plan in 8 bits/p' \
            "$out/rooflines-eight.txt"
        row "tokens/s in 8 bits" "$(best tokens_per_s large-eight | sed 's/[.].*//')" "" ""
    else
        row "in 8 bits" - "" "$(tail -n 1 "$out/eight.txt.err")"
    fi
} | sed 's/ *$//'
echo
echo "gpu-check: $(($(date +%s) - start)) s; more in $out"
