#!/bin/sh
# tools/rules.sh: what the compiler does not check: who may include whom, the door of each
# library, banned calls, long files. Prints each offence; fails when there is one.
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0

# offence TITLE: lines on standard input are offences.
offence() {
    lines=$(cat)
    [ -z "$lines" ] && return
    printf 'rules: %s\n%s\n' "$1" "$lines"
    failed=1
}

sources() {
    find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' 2> /dev/null |
        LC_ALL=C sort
}

# layer FOLDER MAY_INCLUDE: a|b|c
layer() {
    sources "$1" | xargs -r grep -HnE '^#include "' | grep -vE "\"($2)/" > "$list"
    offence "$1/ may include $2 only" < "$list"
}

# door 'PATTERN' FILES (an extended expression)
door() {
    sources core step topologies planner sim exec reports cli | xargs -r grep -HnE "$1" |
        grep -vE "^($2):" > "$list"
    offence "$1 belongs in $2 only" < "$list"
}

list=$(mktemp)
trap 'rm -f "$list" "$list.code"' EXIT

layer core 'core'
layer step 'core|step'
layer topologies 'core|topologies'
layer planner 'core|step|planner'
layer sim 'core|step|sim'
layer exec 'core|step|topologies|exec'
layer reports 'core|step|reports'
layer cli 'core|step|topologies|planner|sim|exec|reports|cli'

door '#include <jansson' 'core/json_value\.h'
door '#include "core/json_value\.h"' 'core/json(_write)?\.c'
door '#include <hwloc' 'topologies/hwloc\.c'
door '#include <expat' 'topologies/xml\.c'
door '#include <dlfcn' 'topologies/nvml\.c'
door '#include <glpk' 'planner/ilp\.c'
door '#include <mpi' 'exec/cpu_mpi\.c'
door '#include <cblas' 'exec/cpu_blas\.c'
door '#include <cuda_runtime_api' 'exec/cuda_runtime\.c'
door '#include <(cuda_runtime|cuda_bf16|cuda_fp16)\.h' 'exec/cuda_device\.cuh'
door '\basm\b' 'exec/cuda_ptx\.cuh'
door '#include <cublasLt' 'exec/cuda_blas\.c'
door '#include <nccl' 'exec/cuda_nccl\.c'
door '#include <omp|#pragma omp' 'planner/search\.c|exec/cpu_[a-z_]*\.c'
door '\b(malloc|calloc|realloc|free)\(' 'core/arena\.c'
door '\b(atoi|atol|atof|strcpy|strcat|sprintf|strtok|gets)\(' '-'
door '\b(printf|fprintf|puts|fputs|putchar|perror|exit|_Exit|abort)\(' 'core/arena\.c|cli/[a-z_]*\.c|exec/main_[a-z]*\.c'

# The executor runs programs and knows nothing of what they are made from: no layer, recompute,
# ZeRO stage or schedule.
knowing() { # PATTERN, files on standard input
    xargs -r grep -HnE "$1" | grep -vE ':[0-9]+: *(/\*| \*)' > "$list"
}
sources exec | knowing 'zero_stage|reshard|sequence_parallel|virtual_stages|plan(->|\.)schedule|MCP_RECOMPUTE|recompute|MCP_KIND_|layer_kind'
offence "exec/ knows no layer, recompute, ZeRO stage or schedule" < "$list"
# Nor any degree, but for what makes whole tensors of ranks' shards, and kernels' arguments.
sources exec | grep -vE '^exec/(init|names|flats|hugging_face[a-z_]*|shapes|views|(cpu|cuda)_kernels[a-z_]*|cuda_launch[a-z_]*)\.[ch]$' |
    knowing '\b(tensor|data|context|pipeline|expert)_parallel\b'
grep -vE 'mcp_fail|"[^"]*_parallel[^"]*"' "$list" > "$list.code"
offence "above kernels exec/ knows no degree: the program does" < "$list.code"

sources core step topologies planner sim exec reports cli tests | xargs -r wc -l |
    awk '$2 != "total" && $1 > 600 {print $2 ": " $1 " lines"}' > "$list"
offence "files hold 600 lines at most" < "$list"
exit $failed
