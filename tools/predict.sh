#!/bin/sh
# tools/predict.sh PROGRAM FOLDER [MODEL BATCH LENGTH]: calibrates this machine, plans every
# way to use its ranks for one purpose, trains each plan some steps, in turns, and prints what
# was predicted (played) beside the fastest measured step; then the mean absolute error, and
# whether the plan of least predicted time is the fastest.
set -eu
mcpplan=$1
out=$2
model=${3:-examples/demo/gpt.json}
batch=${4:-8}
length=${5:-256}
repeats=${REPEATS:-3}
steps=${STEPS:-5}
mkdir -p "$out"

fail() { # NAME
    tail -n 1 "$out/$1.log" >&2
    echo "predict: $1 has failed" >&2
    exit 1
}

question="--model $model --global-batch-size $batch --sequence-length $length"
# shellcheck disable=SC2086 # words
"$mcpplan" calibrate $question --steps "$steps" --repeats 1 -o "$out/calibration.json" \
    > "$out/calibrate.txt" 2> "$out/calibrate.log" || fail calibrate
"$mcpplan" data tokenize examples/text/*.txt -o "$out/tokens" > /dev/null
ranks=$(sed -n 's/ *"gpus_per_node": \([0-9]*\),*/\1/p' "$out/calibration.json" | head -n 1)

names=
for axis in data tensor context pipeline; do
    for microbatch in ${MICROBATCHES:-1 2 4}; do
        degrees=
        for other in data tensor context pipeline; do
            degree=1
            [ $other = $axis ] && degree=$ranks
            degrees="$degrees --$other-parallel $degree"
        done
        name=$axis-$microbatch
        # shellcheck disable=SC2086
        "$mcpplan" plan $question --cluster this --calibration "$out/calibration.json" $degrees \
            --virtual-stages 1 --microbatch-size $microbatch --zero-stage 0 --schedule 1f1b \
            --recompute none --pipeline-rule off -o "$out/$name.json" > "$out/$name.txt" 2>&1 &&
            names="$names $name"
    done
done

seconds_of() { # a or b of a comparison, seconds
    sed -n "/^  \"$1\": {/,/^  }/s/ *\"iteration_s\": \([0-9.e-]*\),*/\1/p" "$2"
}

# Into a file: a pipe would hide a run that fails.
: > "$out/runs.txt"
for repeat in $(seq "$repeats"); do
    for name in $names; do
        "$mcpplan" train "$out/$name.json" --data "$out/tokens" --steps "$steps" \
            --timeline "$out/$name.run.json" > "$out/$name.log" 2>&1 || fail "$name"
        "$mcpplan" compare "$out/$name.json" "$out/$name.run.json" --json \
            > "$out/$name.compare.json" 2> "$out/$name.log" || fail "$name"
        printf '%s %s %s\n' "$name" "$(seconds_of a "$out/$name.compare.json")" \
            "$(seconds_of b "$out/$name.compare.json")" >> "$out/runs.txt"
    done
done
awk '
    !($1 in predicted) { order[++count] = $1 }
    { predicted[$1] = $2; if (!($1 in least) || $3 < least[$1]) least[$1] = $3 }
    END {
        printf "%-14s %12s %12s %8s\n", "layout", "predicted", "measured", "error"
        for (i = 1; i <= count; i++) {
            name = order[i]; error = predicted[name] / least[name] - 1
            sum += error < 0 ? -error : error
            printf "%-14s %9.1f ms %9.1f ms %+7.1f %%\n", name, 1e3 * predicted[name],
                1e3 * least[name], 100 * error
            if (best == "" || predicted[name] < predicted[best]) best = name
            if (fastest == "" || least[name] < least[fastest]) fastest = name
        }
        printf "mean absolute error %.1f %%\n", 100 * sum / count
        printf "predicted best: %s, %.1f %% from the fastest, %s\n", best,
            100 * (least[best] / least[fastest] - 1), fastest
    }' "$out/runs.txt"
