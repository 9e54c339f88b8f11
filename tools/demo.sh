#!/bin/sh
# tools/demo.sh PROGRAM: what mcpplan does, on this machine and on a big one.
set -u
mcpplan=$1

# "No plan fits, because ..." (6) is an answer; anything else that is not 0 is a failure.
show() {
    printf '\n$ mcpplan'
    printf ' %s' "$@"
    printf '\n\n'
    "$mcpplan" "$@"
    code=$?
    [ $code = 0 ] || [ $code = 6 ] || exit $code
}

show topo
if "$mcpplan" topo --json 2> /dev/null | grep -q '"gpus": \[\]'; then
    show plan --model gpt2 --cluster this --stack mcpplan-cpu --precision fp32 \
        --global-batch-size 8 --sequence-length 1024
else
    show plan --model llama-3.1-8b --cluster this --global-batch-size 8 --sequence-length 1024
fi
show plan --model gpt3-175b --cluster dgx-a100:128 --global-batch-size 1536 --sequence-length 2048
