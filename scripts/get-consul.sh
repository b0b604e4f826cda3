#!/bin/sh
# Fetches Consul into .tools/, as an unprivileged user, and leaves a stable link .tools/consul to it: for the
# tests of the Consul provider.
#
# usage: scripts/get-consul.sh
#
# Consul comes from a package of Debian 11, through apt: signed by the key of Debian's archive, from the
# mirror that this machine's apt uses. Nothing is installed, and the machine's own apt is unchanged:
# lists, cache and sources are in a temporary folder.
#
# CONSUL_BIN=/path/to/consul   use this program and fetch nothing.
# DEBIAN_MIRROR=URI            fetch from this mirror, if the machine is no Debian or its mirror lacks the package.
set -eu

version=1.8.7

say() { echo "get-consul: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

if [ -n "${CONSUL_BIN:-}" ]; then
    [ -x "$CONSUL_BIN" ] || fail "CONSUL_BIN is not an executable file: \`$CONSUL_BIN\`"
    say "using CONSUL_BIN: $CONSUL_BIN"
    exit 0
fi

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
home=$tools/consul-$version

# The link is made under a temporary name and then renamed, so that it is never missing.
link() {
    ln -s "consul-$version/consul" "$tools/.consul.$$"
    mv -fT "$tools/.consul.$$" "$tools/consul"
}

if [ -x "$home/consul" ]; then
    link
    say "Consul $version is already present: .tools/consul"
    exit 0
fi

otherwise="Or get Consul by other means and set CONSUL_BIN=/path/to/consul"
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing" "$otherwise"
done
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$key" ] || fail "the key of Debian's archive is missing: \`$key\`" \
    "Install it: apt-get install debian-archive-keyring" "$otherwise"
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -m1 '/debian/*$' || true)}
[ -n "$mirror" ] || fail "apt has no Debian mirror" "Set DEBIAN_MIRROR to the URI of one" "$otherwise"

work=$(mktemp -d)
part=$tools/.consul-part.$$
trap 'rm -rf "$work" "$part" "$tools/.consul.$$"' EXIT
trap 'exit 1' HUP INT TERM

say "fetching Consul $version (about 15 MB, once)"
# apt may read as a different user.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/sources" "$work/none"
printf 'Types: deb\nURIs: %s\nSuites: bullseye\nComponents: main\nSigned-By: %s\n' "$mirror" "$key" \
    >"$work/sources/bullseye.sources"
cat >"$work/apt.conf" <<EOF
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$work/none";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
EOF
(
    export APT_CONFIG="$work/apt.conf"
    cd "$work"
    apt-get -qq update >&2 && apt-get -qq download "consul=$version*" >&2
) || fail "apt could not fetch Consul $version from $mirror, see above" "$otherwise"

# A temporary folder, then a rename: an interrupted run leaves no partial Consul behind.
mkdir -p "$part"
dpkg-deb --fsys-tarfile "$work"/consul_*.deb | tar -xO ./usr/bin/consul >"$part/consul"
chmod 755 "$part/consul"
"$part/consul" version >/dev/null || fail "the fetched Consul does not run on this machine" \
    "Set CONSUL_BIN=/path/to/consul"
mv -T "$part" "$home" 2>/dev/null || [ -x "$home/consul" ] || fail "cannot write \`$home\`"
link
say "done: .tools/consul"
