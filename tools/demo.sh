#!/bin/sh
# tools/demo.sh PROGRAM: what mcpplan does, on this machine and on a big one.
set -eu
mcpplan=$1

show() {
    printf '\n$ mcpplan'
    printf ' %s' "$@"
    printf '\n\n'
    "$mcpplan" "$@"
}

show topo
show plan --model llama-3.1-8b --cluster this --global-batch-size 8 --sequence-length 1024
show plan --model gpt3-175b --cluster dgx-a100:128 --global-batch-size 1536 --sequence-length 2048
