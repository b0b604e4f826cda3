#!/bin/sh
# Fetches schemathesis into .tools/, as an ordinary user, and leaves the stable link .tools/schemathesis to its program:
# it sends generated requests to the API, and compares the answers with the OpenAPI document.
#
# usage: scripts/get-schemathesis.sh
#
# Each wheel is pinned by SHA-256 in scripts/schemathesis/requirements.txt.
#
# SCHEMATHESIS_BIN=/path/to/schemathesis   use this program and fetch nothing.
set -eu

say() { echo "get-schemathesis: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

if [ -n "${SCHEMATHESIS_BIN:-}" ]; then
    [ -x "$SCHEMATHESIS_BIN" ] || fail "SCHEMATHESIS_BIN is not an executable file: \`$SCHEMATHESIS_BIN\`"
    say "using SCHEMATHESIS_BIN: $SCHEMATHESIS_BIN"
    exit 0
fi

here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/.." && pwd)/.tools
pins=$here/schemathesis/requirements.txt
# An edit of this file or of the pins fetches anew.
name=schemathesis-$(cat "$0" "$pins" | sha256sum | cut -c1-12)
home=$tools/$name

link() {
    ln -s "$name/bin/schemathesis" "$tools/.schemathesis.$$"
    mv -fT "$tools/.schemathesis.$$" "$tools/schemathesis"
}

if [ -d "$home" ]; then
    link
    say "schemathesis is already present: .tools/schemathesis"
    exit 0
fi
command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3"
python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    fail "scripts/schemathesis/requirements.txt has wheels for Python 3.11 to 3.13, and this is $(python3 --version)"

work=$(mktemp -d)
trap 'rm -rf "$work" "$tools/.schemathesis.part.$$" "$tools/.schemathesis.$$"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching schemathesis (about 13 MB, once)"
. "$here/pip.sh"

# A temporary folder, then a rename: an interrupted run leaves nothing partial behind.
mkdir -p "$tools"
part=$tools/.schemathesis.part.$$
$pip --disable-pip-version-check install --quiet --root-user-action=ignore --require-hashes --no-deps --only-binary :all: \
    --target "$part/lib" --requirement "$pins" >&2 || fail "pip could not fetch the wheels, see above" \
    "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)."

# The script of pip --target does not find its own folder. This one does, wherever the checkout is, and also by a link.
mkdir "$part/bin"
cat >"$part/bin/schemathesis" <<'PROGRAM'
#!/bin/sh
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
PYTHONPATH=$here/lib exec python3 -m schemathesis.cli "$@"
PROGRAM
chmod 755 "$part/bin/schemathesis"
"$part/bin/schemathesis" --version >/dev/null || fail "the fetched schemathesis does not run on this machine"
mv -T "$part" "$home"
link
say "done: .tools/schemathesis"
