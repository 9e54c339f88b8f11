#!/bin/sh
# tools/cuda_gate.sh TOOLKIT FOLDER: what ptxas said of each kernel, and whether the tests' fakes
# are declared as the toolkit has them. Fails on spilled registers.
set -eu
toolkit=$1
folder=$2
table=$folder/gate.txt

# The fakes against the toolkit's own headers: same names, arguments and values.
for fake in tests/cuda/fake/*.c; do
    ${CC:-cc} -std=c11 -D_XOPEN_SOURCE=700 -I. -isystem "$toolkit/include" -Wall -Werror \
        -fsyntax-only "$fake"
done

# kernel, then for each architecture: registers, shared memory in bytes, spilled bytes.
cat "$folder"/exec/*.cu.o.log | awk '
    /Compiling entry function/ { name = $7; arch = $9; gsub(/\047/, "", name); gsub(/\047/, "", arch) }
    /spill stores/ { spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
        shared = 0
        for (i = 1; i < NF; i++)
            if ($(i + 1) ~ /^smem/) shared = $(i - 1)
        for (i = 1; i < NF; i++)
            if ($i == "Used") registers = $(i + 1)
        print name, arch, registers, shared, spilled
    }' | c++filt -p 2> /dev/null | LC_ALL=C sort > "$table.all"
[ -s "$table.all" ] || { echo "cuda-gate: no kernel has been compiled" >&2; exit 1; }

awk '
    BEGIN { printf "%-64s %10s %10s %10s %8s\n", "kernel", "sm_80", "sm_90", "sm_100", "shared" }
    {
        name = $0
        sub(/ sm_[0-9]+ [0-9]+ [0-9]+ [0-9]+$/, "", name)
        n = split($0, word, " ")
        if (!(name in seen)) { order[++count] = name; seen[name] = 1 }
        registers[name, word[n - 3]] = word[n - 2]
        if (word[n - 1] > shared[name]) shared[name] = word[n - 1]
        if (word[n] > 0) { spilt[name] += word[n]; failed = 1 }
    }
    END {
        for (i = 1; i <= count; i++) {
            k = order[i]
            printf "%-64.64s %10s %10s %10s %8s%s\n", k, registers[k, "sm_80"], registers[k, "sm_90"],
                registers[k, "sm_100"], shared[k], spilt[k] ? "  spills " spilt[k] " bytes" : ""
        }
        exit failed
    }' "$table.all" > "$table" || { cat "$table"; rm -f "$table"; echo "cuda-gate: registers are spilled" >&2; exit 1; }
cat "$table"
echo "cuda-gate: registers of $(($(wc -l < "$table") - 1)) kernels by architecture, static shared memory in bytes; none spills"
