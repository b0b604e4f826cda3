#!/bin/sh
# Builds a small Debian system in .tools/, as root, and leaves a stable link to it: the root folder of the machines in
# tests/fleet, which boot it with systemd.
#
# usage: scripts/get-debian.sh [RELEASE]
#
# Without RELEASE it is the release of this machine, and the link is .tools/debian. With one, such as `trixie`, the link
# is .tools/debian-RELEASE; use newer releases only, so that programs built here run there. The packages come through
# debootstrap: signed by the key of Debian's archive, from the mirror that this machine's apt uses. Nothing is
# installed on this machine. An edit of this file builds the system anew, and removes the earlier one.
#
# DEBIAN_ROOT=/path/to/root   use this system in place of .tools/debian. It needs the packages below.
# DEBIAN_MIRROR=URI           fetch from this mirror.
set -eu

# What the machines need besides Debian's minimum: systemd, the network, and the programs of tests. Ansible needs SSH
# and Python.
packages=systemd,systemd-sysv,dbus,libpam-systemd,procps,iproute2,nftables,curl,python3-minimal,libpython3-stdlib,openssh-server

say() { echo "get-debian: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

if [ -z "${1:-}" ] && [ -n "${DEBIAN_ROOT:-}" ]; then
    [ -x "$DEBIAN_ROOT/lib/systemd/systemd" ] || fail "DEBIAN_ROOT is not a system with systemd: \`$DEBIAN_ROOT\`"
    say "using DEBIAN_ROOT: $DEBIAN_ROOT"
    exit 0
fi

link=debian${1:+-$1}
release=${1:+debian-$1}
release=${release:-$(. /etc/os-release && echo "${ID:-}-${VERSION_CODENAME:-}")}
name=$release-$(sha256sum <"$0" | cut -c1-12)
tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
home=$tools/$name

# The link is made under a temporary name and then renamed, so that it is never missing.
link() {
    ln -s "$name" "$tools/.$link.$$"
    mv -fT "$tools/.$link.$$" "$tools/$link"
}

if [ -d "$home" ]; then
    link
    say "Debian is already present: .tools/$link"
    exit 0
fi

[ "$(id -u)" = 0 ] || fail "only root can build a Debian system" "Run once: sudo scripts/get-debian.sh"
case $release in
    debian-?*) release=${release#debian-} ;;
    *) fail "this machine is no Debian release" "Set DEBIAN_ROOT=/path/to/root, with a libc like the one of this machine" ;;
esac
for tool in debootstrap systemd-nspawn ip; do
    command -v "$tool" >/dev/null ||
        fail "$tool is missing" "Install it: apt-get install debootstrap systemd-container iproute2"
done
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -m1 '/debian/*$' || true)}
[ -n "$mirror" ] || fail "apt has no Debian mirror" "Set DEBIAN_MIRROR to the URI of one"

mkdir -p "$tools"
# A second run waits for the first.
exec 9>"$tools/.debian.lock"
flock 9
if [ -d "$home" ]; then
    link
    exit 0
fi
# What interrupted runs and earlier versions of this file have left. Machines that run hold a lock on their root.
for old in "$tools"/.debian-part.* "$tools"/debian-"$release"-????????????; do
    [ ! -d "$old" ] || flock --nonblock "$old" rm -rf --one-file-system "$old" || say "in use, not removed: $old"
done

part=$tools/.debian-part.$$
trap 'rm -rf --one-file-system "$part" "$tools/.$link.$$"' EXIT
trap 'exit 1' HUP INT TERM

say "building Debian $release (about 60 MB to fetch, once; one to two minutes)"
mkdir -p "$part"
debootstrap --variant=minbase --include="$packages" "$release" "$part" "$mirror" >"$tools/debootstrap.log" 2>&1 || {
    tail -n 20 "$tools/debootstrap.log" >&2
    fail "debootstrap could not build Debian $release from $mirror, see above and .tools/debootstrap.log"
}

# Nobody reads or installs anything there.
rm -rf "$part"/var/cache/apt/* "$part"/var/lib/apt/lists/* "$part"/var/cache/debconf/* \
    "$part"/usr/share/doc "$part"/usr/share/man "$part"/usr/share/locale "$part"/usr/share/info
# A test starts SSH where it needs it.
rm -rf "$part"/etc/systemd/system/multi-user.target.wants/ssh.service "$part"/etc/systemd/system/sshd.service \
    "$part"/etc/systemd/system/sockets.target.wants/ssh.socket "$part"/etc/systemd/system/ssh.service.wants
# Each machine has an id, an address and a journal of its own. The journal survives a power loss.
: >"$part/etc/machine-id"
rm -f "$part/var/lib/dbus/machine-id" "$part/etc/resolv.conf" "$part/etc/hostname"
mkdir -p "$part/var/log/journal"
# Timers of package management would run at boot.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service getty.target console-getty.service; do
    ln -sf /dev/null "$part/etc/systemd/system/$unit"
done

mv -T "$part" "$home" 2>/dev/null || [ -d "$home" ] || fail "cannot write \`$home\`"
link
rm -f "$tools/debootstrap.log"
say "done: .tools/$link, $(du -sm "$home" | cut -f1) MB"
