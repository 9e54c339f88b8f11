#!/bin/sh
# Two data centres: what each way to save communication is worth, as a table and a report,
# and the two ends of the table played op by op. Usage: run.sh [FOLDER for the results]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-.}
mcpplan=${MCPPLAN:-mcpplan}

"$mcpplan" plan --model article-34b --cluster "$here/cluster.json" \
    --global-batch-size 512 --sequence-length 4096 --optimizer one_bit_adam \
    --tensor-parallel 8 --pipeline-parallel 4 --data-parallel 2 --virtual-stages 1 \
    --savings --report "$out/two-data-centres.html" -o "$out/two-data-centres.json"

echo
echo "The same plan, played op by op: all of them, and none"
"$mcpplan" sim "$out/two-data-centres.json" | head -n 3
"$mcpplan" sim "$out/two-data-centres.json" \
    --overlap none --optimizer adam --placement scrambled | head -n 3
