#!/bin/sh
# tools/deps.sh [PACKAGE...]: installs what building and testing needs and this machine lacks.
set -eu

packages="gcc g++ libc6-dev make pkg-config libjansson-dev libhwloc-dev libexpat1-dev libglpk-dev
libcriterion-dev libopenblas-dev libopenmpi-dev openmpi-bin $*"

fail() {
    echo "deps: $1" >&2
    exit 1
}

# Without dpkg, ask the compiler whether all is there.
if ! command -v dpkg-query > /dev/null; then
    command -v mpicc > /dev/null && command -v mpirun > /dev/null &&
        printf '#include <%s>\n' jansson.h hwloc.h expat.h glpk.h criterion/criterion.h cblas.h |
        ${CC:-cc} -fsyntax-only -x c - 2> /dev/null && exit 0
    fail "this is not Debian or Ubuntu: please install its packages for" $packages
fi

missing=
for package in $packages; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) || state=
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null ||
        fail "missing$missing, and without root or sudo they cannot be installed here"
    as_root=sudo
    [ -t 0 ] || as_root="sudo -n" # nobody is there to type a password
fi
echo "deps: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq"
if ! { $apt update && $apt install -y --no-install-recommends $missing; } > "$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "apt-get could not install$missing; the lines above say why"
fi
