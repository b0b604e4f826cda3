#!/bin/sh
# Fetches gRPC's Python client into .tools/grpcio, as an ordinary user: an xDS client that is not
# Envoy, for one test.
#
# usage: scripts/get-grpcio.sh
#
# Each wheel is pinned by SHA-256 in scripts/grpcio/requirements.txt.
set -eu

say() { echo "get-grpcio: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/.." && pwd)/.tools
pins=$here/grpcio/requirements.txt
version=$(sed -n 's/^grpcio==\([0-9.]*\).*/\1/p' "$pins")
home=$tools/grpcio-$version

link() {
    ln -s "grpcio-$version" "$tools/.grpcio.$$"
    mv -fT "$tools/.grpcio.$$" "$tools/grpcio"
}

if [ -d "$home" ]; then
    link
    say "grpcio $version is already present: .tools/grpcio"
    exit 0
fi
command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3"
python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    fail "scripts/grpcio/requirements.txt has wheels for Python 3.11 to 3.13, and this is $(python3 --version)"

work=$(mktemp -d)
trap 'rm -rf "$work" "$tools/.grpcio.part.$$" "$tools/.grpcio.$$"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching grpcio $version (about 7 MB, once)"
. "$here/pip.sh"

# A temporary folder, then a rename: an interrupted run leaves no partial client behind.
mkdir -p "$tools"
$pip --disable-pip-version-check install --quiet --require-hashes --no-deps --only-binary :all: \
    --target "$tools/.grpcio.part.$$" --requirement "$pins" >&2 || fail "pip could not fetch grpcio $version, see above" \
    "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)."
PYTHONPATH="$tools/.grpcio.part.$$" python3 -c "import grpc" || fail "the fetched grpcio does not run on this machine"
mv -T "$tools/.grpcio.part.$$" "$home"
link
say "done: .tools/grpcio"
