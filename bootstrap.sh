#!/bin/sh
# Sets up what `make` needs: uv, the Python packages of uv.lock and, for the tests, a browser, a C compiler,
# PostgreSQL, Redis and Slurm; for all tests also Podman, User-mode Linux, the accounting of Slurm and PyTorch.
# As root it installs missing Debian packages; otherwise it says which ones are missing.
#   ./bootstrap.sh run       packages of the service
#   ./bootstrap.sh test      and those of `make test`
#   ./bootstrap.sh test-all  and those of `make test-all`
set -eu
cd "$(dirname "$0")"
UV_VERSION=0.13.8
export UV_SYSTEM_CERTS=1 UV_NO_PROGRESS=1 UV_LINK_MODE=copy
CACHE=${UV_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/uv}
{ mkdir -p "$CACHE" && [ -w "$CACHE" ]; } 2>/dev/null || export UV_CACHE_DIR="$PWD/.cache/uv" # $HOME may be read-only

say() { printf 'motley: %s\n' "$*" >&2; }

install_packages() { # what for, packages...
    what=$1; shift
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $* ($what)"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    else
        say "MISSING: $what. Install it as root: apt-get install $*"
        return 1
    fi
}

# No daemon is started and no database made: tests start servers of their own. What says so goes again at the end.
POLICY=/usr/sbin/policy-rc.d
NO_CLUSTER=/etc/postgresql-common/createcluster.d/motley.conf
written=
install_servers() { # what for, packages...
    if [ "$(id -u)" = 0 ]; then
        trap 'rm -f $written' EXIT
        trap 'exit 130' INT TERM
        if [ ! -e $POLICY ]; then
            written="$written $POLICY"
            printf '#!/bin/sh\nexit 101\n' >$POLICY
            chmod 755 $POLICY
        fi
        written="$written $NO_CLUSTER"
        mkdir -p "$(dirname $NO_CLUSTER)"
        echo "create_main_cluster = false" >$NO_CLUSTER
    fi
    install_packages "$@"
}

install_slurm() {
    if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
        install_servers "Slurm, on which jobs can run" slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
    fi
}

new_enough() { # words that run a Python...
    "$@" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Jobs of a service that is root run as another account, to which a Python below /root, as pyenv's, is closed.
# `env`: setpriv itself starts a program with some of root's rights left.
PYTHON=$(command -v python3 || echo /usr/bin/python3)
if [ "$(id -u)" = 0 ] && ! new_enough setpriv --reuid=65534 --regid=65534 --clear-groups env "$PYTHON"; then
    if new_enough /usr/bin/python3; then
        PYTHON=/usr/bin/python3
    else
        say "NO JOB OF ROOT'S SERVICE CAN RUN $PYTHON: install Debian's python3, 3.11 or newer, or be another account"
    fi
fi
new_enough "$PYTHON" || {
    say "MISSING: Python 3.11 or newer as python3"
    exit 1
}
[ -d .venv ] || export UV_PYTHON="${UV_PYTHON:-$PYTHON}" # uv would look below /root first

if ! .tools/bin/uv --version 2>/dev/null | grep -q " $UV_VERSION"; then
    "$PYTHON" -c 'import ensurepip' 2>/dev/null || install_packages "virtual environments for Python" python3-venv
    rm -rf .tools
    "$PYTHON" -m venv .tools
    .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
fi

# PyTorch for CPUs is on an index of PyTorch's own, or where pip's configuration leads; the wheel on PyPI is for CUDA and
# takes 5 GB with what it needs. Without the first, Debian's PyTorch runs the plain loops.
TORCH=.cache/torch
REQUIREMENTS=tests/training/requirements.txt
install_torch() { # each command says whether it failed: the shell does not stop in what stands before ||
    cmp -s $REQUIREMENTS $TORCH/installed && return
    say "installing PyTorch and its frameworks, 1 GB, into $TORCH (tests of training)"
    rm -rf $TORCH $TORCH.wheels
    if .tools/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --retries 0 --dest $TORCH.wheels \
        --extra-index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' $REQUIREMENTS)" 2>.cache/torch.log; then
        .tools/bin/uv venv --quiet --python .tools/bin/python $TORCH \
            && .tools/bin/uv pip install --quiet --python $TORCH --find-links $TORCH.wheels -r $REQUIREMENTS || return 1
        rm -rf $TORCH.wheels
    else
        say "NO CPU WHEEL OF PYTORCH IS IN REACH (.cache/torch.log): tests of Lightning, Transformers and Accelerate are left out"
        /usr/bin/python3 -c 'import torch' 2>/dev/null \
            || install_packages "PyTorch, for the tests of training" python3-torch || return 1
        .tools/bin/uv venv --quiet --python /usr/bin/python3 --system-site-packages $TORCH || return 1
    fi
    cp $REQUIREMENTS $TORCH/installed
}

install_rest() { # what the tests need that `make test` leaves to `make test-all`
    lacking=
    command -v socat >/dev/null || install_packages "a network that can be cut, for campaigns of faults" socat || lacking=1
    command -v linux.uml >/dev/null \
        || install_packages "a kernel of the tests' own, for limits by cgroup v2" user-mode-linux || lacking=1
    command -v podman >/dev/null && command -v crun >/dev/null && command -v catatonit >/dev/null && [ -e /bin/busybox ] \
        || install_packages "containers, for their tests" podman crun catatonit busybox-static || lacking=1
    command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] \
        || install_servers "an SSH server, for the tests of motley ssh-config" openssh-server || lacking=1
    command -v slurmdbd >/dev/null && command -v mariadbd >/dev/null \
        || install_servers "the accounting of Slurm, for its tests" slurmdbd mariadb-server || lacking=1
    mkdir -p .cache
    chmod 711 .cache # whatever the umask of what made it: jobs of another account run the Python in it
    install_torch || lacking=1
    [ -z "$lacking" ]
}

case "${1:-run}" in
run)
    .tools/bin/uv sync --quiet --frozen --inexact --no-default-groups --extra nvml
    [ "${SLURM:-}" != 1 ] || install_slurm
    ;;
test | test-all)
    .tools/bin/uv sync --quiet --frozen --all-groups --extra nvml
    missing=
    command -v chromium >/dev/null || install_packages "a browser, for the tests of pages" chromium || missing=1
    command -v cc >/dev/null || install_packages "a C compiler, for a stand-in of NVML" gcc libc6-dev || missing=1
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
        || install_servers "a database server, for the tests of the full stack" postgresql || missing=1
    command -v redis-server >/dev/null \
        || install_servers "a broker, for the tests of the full stack" redis-server || missing=1
    install_slurm || missing=1
    [ "$1" = test ] || install_rest || missing=1
    if [ -n "$missing" ] && [ "${CI:-}" = true ]; then exit 1; fi
    ;;
*)
    say "usage: $0 run|test|test-all"
    exit 2
    ;;
esac
