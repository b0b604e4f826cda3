#!/bin/sh
# Builds the other version of the skew test (tests/fleet/skew.rs) and of upgrades under random faults (tests/chaos) into
# .tools/other-version: the program and the package of the commit that tests/fleet/other-version names, by that commit's own
# recipe. The release of a version names its predecessor there.
#
# usage: scripts/get-other-version.sh
#
# It needs the history of the repository, and what `make test` needs. Five minutes on two cores, once for each commit.
set -eu

say() { echo "get-other-version: $*" >&2; }
fail() {
    say "error: $1"
    say "  $2"
    exit 1
}

cd "$(dirname "$0")/.."
root=$PWD
commit=$(sed -n '/^[0-9a-f]\{40\}$/p' tests/fleet/other-version)
[ -n "$commit" ] || fail "tests/fleet/other-version names no commit" "write its 40 hexadecimal digits on a line"
home=$root/.tools/other-version
if [ "$(cat "$home/commit" 2>/dev/null)" = "$commit" ]; then exit 0; fi
git cat-file -e "$commit^{commit}" 2>/dev/null ||
    fail "the history has no commit $commit" "fetch it: git fetch --unshallow, or git fetch origin $commit"

say "building $commit (five minutes, once)"
rm -rf "$home"
mkdir -p "$home/source"
git archive "$commit" | tar -x -C "$home/source"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH CARGO_TARGET_DIR="$home/target"
(
    cd "$home/source"
    # The tools are of this checkout: the same versions, or close ones.
    ln -s "$root/.tools" .tools
    cargo build --package ironmesh >&2
    packaging/build deb "$home/target/debug/ironmesh" "$home/package"
)
mv "$home"/package/*.deb "$home/ironmesh.deb"
mv "$home/target/debug/ironmesh" "$home/ironmesh"
rm -rf "$home/source" "$home/target" "$home/package"
# Last: a build that is interrupted is not taken for a complete one.
echo "$commit" >"$home/commit"
say "done: .tools/other-version/ironmesh and ironmesh.deb"
