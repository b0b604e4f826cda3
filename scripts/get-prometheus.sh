#!/bin/sh
# Fetches Prometheus into .tools/, as an unprivileged user, and leaves stable links .tools/prometheus and
# .tools/promtool to its two programs: for the tests of metrics, alert rules and the dashboard.
#
# usage: scripts/get-prometheus.sh
#
# Prometheus comes from a package of Debian 12, through apt: signed by the key of Debian's archive, from the
# mirror that this machine's apt uses. Its programs need nothing but the C library. Nothing is installed, and the
# machine's own apt is unchanged: lists, cache and sources are in a temporary folder.
#
# PROMETHEUS_BIN=/path/to/prometheus and PROMTOOL_BIN=/path/to/promtool
#                              use these programs and fetch nothing.
# DEBIAN_MIRROR=URI            fetch from this mirror, if the machine is no Debian or its mirror lacks the package.
set -eu

version=2.42.0

say() { echo "get-prometheus: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

if [ -n "${PROMETHEUS_BIN:-}" ] && [ -n "${PROMTOOL_BIN:-}" ]; then
    [ -x "$PROMETHEUS_BIN" ] || fail "PROMETHEUS_BIN is not an executable file: \`$PROMETHEUS_BIN\`"
    [ -x "$PROMTOOL_BIN" ] || fail "PROMTOOL_BIN is not an executable file: \`$PROMTOOL_BIN\`"
    say "using PROMETHEUS_BIN and PROMTOOL_BIN: $PROMETHEUS_BIN, $PROMTOOL_BIN"
    exit 0
fi

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
home=$tools/prometheus-$version

# Each link is made under a temporary name and then renamed, so that it is never missing.
link() {
    for program in prometheus promtool; do
        ln -s "prometheus-$version/$program" "$tools/.$program.$$"
        mv -fT "$tools/.$program.$$" "$tools/$program"
    done
}

if [ -x "$home/prometheus" ] && [ -x "$home/promtool" ]; then
    link
    say "Prometheus $version is already present: .tools/prometheus, .tools/promtool"
    exit 0
fi

otherwise="Or get Prometheus by other means and set PROMETHEUS_BIN and PROMTOOL_BIN"
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
part=$tools/.prometheus-part.$$
trap 'rm -rf "$work" "$part" "$tools/.prometheus.$$" "$tools/.promtool.$$"' EXIT
trap 'exit 1' HUP INT TERM

say "fetching Prometheus $version (about 20 MB, once)"
# apt may read as a different user.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/sources" "$work/none"
printf 'Types: deb\nURIs: %s\nSuites: bookworm\nComponents: main\nSigned-By: %s\n' "$mirror" "$key" \
    >"$work/sources/bookworm.sources"
cat >"$work/apt.conf" <<END
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$work/none";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
END
(
    export APT_CONFIG="$work/apt.conf"
    cd "$work"
    apt-get -qq update >&2 && apt-get -qq download "prometheus=$version*" >&2
) || fail "apt could not fetch Prometheus $version from $mirror, see above" "$otherwise"

# A temporary folder, then a rename: an interrupted run leaves no partial Prometheus behind.
mkdir -p "$part"
dpkg-deb -x "$work"/prometheus_*.deb "$work/package"
mv "$work/package/usr/bin/prometheus" "$work/package/usr/bin/promtool" "$part/"
for program in prometheus promtool; do
    "$part/$program" --version >/dev/null 2>&1 || fail "the fetched $program does not run on this machine" \
        "Set PROMETHEUS_BIN and PROMTOOL_BIN"
done
mv -T "$part" "$home" 2>/dev/null || [ -x "$home/promtool" ] || fail "cannot write \`$home\`"
link
say "done: .tools/prometheus, .tools/promtool"
