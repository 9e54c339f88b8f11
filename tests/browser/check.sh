#!/bin/sh
# tests/browser/check.sh MCPPLAN FOLDER: opens reports in a headless Chromium: no errors, no
# requests, all that a reader can do; pictures in light, in dark and on paper go to FOLDER.
set -eu
mcpplan=$1
folder=$2
here=$(dirname "$0")
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

fail() {
    echo "report-check: $1" >&2
    exit 1
}

# browse PAGE FLAGS...: complains of whatever the page said on its console. There the browser
# says too what the page asked for, as its own policy forbids.
browse() {
    page=$1
    shift
    chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --disable-features=NetworkTimeServiceQuerying --host-resolver-rules='MAP * ~NOTFOUND' \
        --user-data-dir="$folder/profile" \
        --enable-logging=stderr --window-size=1180,4400 "$@" "file://$folder/$page" \
        > "$folder/output" 2> "$folder/log" || { cat "$folder/log" >&2 && fail "$page: no answer"; }
    if grep 'CONSOLE' "$folder/log" >&2; then
        fail "$page: these lines stood on its console"
    fi
}

# report NAME COMMAND OPTIONS...: a page of at most 2 MB.
report() {
    name=$1
    shift
    "$mcpplan" "$@" --report "$folder/$name.html" > "$folder/$name.txt" 2> /dev/null
    bytes=$(wc -c < "$folder/$name.html")
    [ "$bytes" -lt 2000000 ] || fail "$name.html: $bytes bytes"
    if grep -nE '<[^>]*(src|href|action)=|@import|url\([^#]' "$folder/$name.html" >&2; then
        fail "$name.html: it names other files"
    fi
    { cat "$folder/$name.html" && printf '<script>\n' && cat "$here/try.js" && printf '</script>\n'; } \
        > "$folder/$name.try.html"
    browse "$name.try.html" --dump-dom
    grep -q 'data-tried="yes"' "$folder/output" || fail "$name.html: it was not tried to the end"
}

report small plan --model llama-3.1-8b --cluster dgx-h100:2 --global-batch-size 64 \
    --pipeline-parallel 4 --data-parallel 2 --sensitivity --memory-waterfall -o "$folder/plan.json"
report played sim "$folder/plan.json"
report large plan --model llama-3.1-405b --cluster dgx-h100:2048 --global-batch-size 2048 \
    --sequence-length 8192 --tensor-parallel 8 --context-parallel 8 --pipeline-parallel 16 \
    --data-parallel 16 --microbatch-size 1
"$mcpplan" sim "$folder/plan.json" --slow-link nvlink:4 --timeline "$folder/slow.jsonl" > /dev/null 2>&1
report compared compare "$folder/plan.json" "$folder/slow.jsonl" --threshold 0.9
report refined plan --model mixtral-8x7b --cluster dgx-a100:4 --global-batch-size 64 --refine 5
report sizes capacity --model llama-3.1-8b --cluster dgx-h100,dgx-a100 --tokens 1T --deadline 60 \
    --gpus 32,64,128,256 --global-batch-size 256 --price dgx-h100=2.5
printf '%s' '{"schema": "mcpplan.jobs/1", "horizon": "30d", "slots": 3, "pools": [{"name": "all",
    "cluster": "dgx-h100", "num_nodes": 16}], "jobs": [{"model": "llama-3.1-8b", "tokens": "100B",
    "global_batch_size": 256}, {"model": "llama-3.1-8b", "tokens": "200B", "global_batch_size": 512}]}' \
    > "$folder/jobs.json"
report jobs capacity --jobs "$folder/jobs.json"
sed 's/"name": "llama-3.1-8b"/"name": "<script>alert(1)<\/script><img src=x onerror=alert(1)>"/' \
    "$here/../../models/llama-3.1-8b.json" > "$folder/hostile.json"
report hostile plan --model "$folder/hostile.json" --cluster dgx-h100 --global-batch-size 16

for shown in small compared sizes jobs; do
    browse "$shown.html" --screenshot="$folder/$shown-light.png"
    browse "$shown.html" --screenshot="$folder/$shown-dark.png" --blink-settings=preferredColorScheme=0
    browse "$shown.html" --print-to-pdf="$folder/$shown-print.pdf" --no-pdf-header-footer
done
rm -rf "$folder/profile" "$folder/output" "$folder/log"
echo "report-check: pages and pictures are in $folder"
