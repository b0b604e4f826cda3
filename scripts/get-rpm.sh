#!/bin/sh
# Fetches rpm into .tools/, as an unprivileged user, and leaves a stable link .tools/rpm to its folder: for the check of
# the .rpm package on Debian. `.tools/rpm/rpm` runs it.
#
# usage: scripts/get-rpm.sh
#
# rpm and the libraries that this machine lacks come through apt: signed by the key of the distribution's archive, from
# the mirror that this machine's apt uses. Nothing is installed.
set -eu

say() { echo "get-rpm: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
if [ -x "$tools/rpm/rpm" ]; then
    say "rpm is already present: .tools/rpm"
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing" "Install it, or run the check on Debian or Ubuntu"
done

work=$(mktemp -d)
part=$tools/.rpm-part.$$
trap 'rm -rf "$work" "$part"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching rpm (about 3 MB, once)"
# apt may read as a different user.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
cat >"$work/apt.conf" <<EOF
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
EOF
export APT_CONFIG="$work/apt.conf"
(
    cd "$work"
    apt-get -qq update >&2
    packages=$(apt-get --simulate --no-install-recommends install rpm | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
    # A machine that has rpm installed lacks nothing.
    apt-get -qq download ${packages:-rpm} >&2
) || fail "apt could not fetch rpm, see above"

mkdir -p "$part/root"
for package in "$work"/*.deb; do
    dpkg-deb --extract "$package" "$part/root"
done
cat >"$part/rpm" <<'EOF'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
for folder in "$root"/usr/lib/*-linux-gnu "$root"/lib/*-linux-gnu; do
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH RPM_CONFIGDIR="$root/usr/lib/rpm"
exec "$root/usr/bin/rpm" "$@"
EOF
chmod 755 "$part/rpm"
"$part/rpm" --version >/dev/null || fail "the fetched rpm does not run on this machine"
rm -rf "$tools/rpm"
mv -T "$part" "$tools/rpm"
say "done: .tools/rpm"
