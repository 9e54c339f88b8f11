#!/bin/sh
# tools/mutants.sh BUILD [NAME...]: are wrong kernels found? Each line of tests/cuda/mutants.txt
# changes one file; the test that it names must then fail, and must not before. Without names: all
# of them.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
mkdir -p "$build/mutant/exec"
survivors=0 count=0

broken() {
    echo "mutants: $1" >&2
    exit 1
}

# compile FLAGS OBJECT KERNELS: the changed file is found before that of the tree.
compile() {
    # shellcheck disable=SC2086
    ${CXX:-g++} -std=c++17 -Wno-unknown-pragmas -I"$build/mutant" -I. -Itests/cuda/shim $1 \
        -x c++ -c -o "$2" "$3"
}

# sound CONFIG TEST: does the test pass as long as nothing is wrong? Asked once.
sound() {
    ! grep -qx "$1 $2" "$build/mutant/sound" || return 0
    "$build/$1/tests/cuda/kernels" "$2" > "$build/mutant/says" 2>&1 ||
        broken "no test begins with $2, or it fails without a mutant ($1)"
    echo "$1 $2" >> "$build/mutant/sound"
}

try() { # NAME FILE KERNELS SED CONFIG TEST
    objects="$build/$5"
    make --no-print-directory -s CONFIG="$5" BUILD="$objects" "$objects/tests/cuda/kernels" ||
        broken "the kernels do not build"
    sound "$5" "$6"
    rm -f "$build"/mutant/exec/*
    source=exec/cuda_kernels_$3.cu
    sed "$4" "exec/$2" > "$build/mutant/exec/$2" || broken "$1 is no command of sed"
    ! cmp -s "exec/$2" "$build/mutant/exec/$2" || broken "$1 changes nothing in exec/$2"
    [ "exec/$2" != "$source" ] || source=$build/mutant/$source
    case $5 in
    asan) flags='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all' ;;
    tsan) flags='-O1 -g -fsanitize=thread' ;;
    *) flags='-O2 -g' ;;
    esac
    compile "$flags" "$build/mutant/kernels.o" "$source" || broken "$1 does not compile"
    others=
    for one in exec/cuda_kernels_*.cu tests/cuda/kernels_*.cc tests/cuda/kit.cc \
        tests/cuda/shim/shim.cc; do
        [ "$one" = "exec/cuda_kernels_$3.cu" ] || others="$others $objects/$one.o"
    done
    # shellcheck disable=SC2086
    ${CXX:-g++} $flags -o "$build/mutant/kernels" $others "$build/mutant/kernels.o" ||
        broken "$1 does not link"
    status=0
    timeout 300 "$build/mutant/kernels" "$6" > "$build/mutant/says" 2>&1 || status=$?
    [ "$status" != 124 ] || broken "$1 has not ended in 300 s: nothing is known of it"
    [ "$status" != 0 ]
}

wanted() { # NAME, then those asked for
    name=$1
    shift
    [ $# -gt 0 ] || return 0
    for one in "$@"; do
        [ "$one" != "$name" ] || return 0
    done
    return 1
}

: > "$build/mutant/sound"
grep -v '^#' tests/cuda/mutants.txt > "$build/mutant/list"
while read -r line; do
    name=${line%%|*} rest=${line#*|}
    file=${rest%%|*} rest=${rest#*|}
    kernels=${rest%%|*} rest=${rest#*|}
    test=${rest##*|} rest=${rest%|*}
    config=${rest##*|} script=${rest%|*}
    wanted "$name" "$@" || continue
    count=$((count + 1))
    if try "$name" "$file" "$kernels" "$script" "$config" "$test" < /dev/null; then
        printf '  found     %-26s by %s (%s)\n' "$name" "$test" "$config"
    else
        printf '  SURVIVES  %-26s %s (%s)\n' "$name" "$test" "$config"
        survivors=$((survivors + 1))
    fi
done < "$build/mutant/list"
echo "mutants: $count, $survivors not found"
[ "$survivors" = 0 ] && [ "$count" -gt 0 ]
