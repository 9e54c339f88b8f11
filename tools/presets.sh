#!/bin/sh
# tools/presets.sh FILE.json...: the table of core/preset.h as C, sorted by folder and name.
set -eu
export LC_ALL=C

# "folder name file" of each, so that topologies/gpus/x.json is "gpus x".
list() {
    for file in "$@"; do
        folder=${file%/*}
        name=${file##*/}
        echo "${folder##*/} ${name%.json} $file"
    done | sort
}

echo '#include "core/preset.h"'
list "$@" | {
    table=
    count=0
    while read -r folder name file; do
        echo "static const unsigned char text_$count[] = {"
        od -An -v -tx1 "$file" | sed 's/ \(..\)/0x\1,/g'
        echo "0};"
        table="$table    {\"$folder\", \"$name\", (const char *)text_$count, sizeof text_$count - 1},
"
        count=$((count + 1))
    done
    # C has no empty arrays: the end is an entry that is not counted.
    printf 'const struct mcp_preset mcp_presets[] = {\n%s    {0},\n};\n' "$table"
    echo "const size_t mcp_num_presets = $count;"
}
