# Prints as JSON what the checks need to know about a host. It changes nothing.
# usage: sh preflight.sh UNIT…: the units that may listen on the ports.
missing=
for program in runuser tar awk; do command -v "$program" >/dev/null || missing="$missing $program"; done
# The inodes of the sockets of a unit. systemd has its processes in a cgroup, of version 2 or 1.
sockets() {
    group=$(systemctl show --property=ControlGroup --value "$1" 2>/dev/null)
    [ -n "$group" ] || return 0
    for process in $(cat "/sys/fs/cgroup$group/cgroup.procs" "/sys/fs/cgroup/systemd$group/cgroup.procs" 2>/dev/null); do
        ls -l "/proc/$process/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p'
    done
}
# The TCP ports at which others listen: the state is 0A, and the port is in hexadecimal.
listening=
for port in $({
    for unit in "$@"; do sockets "$unit"; done
    echo others
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
} | awk '$1 == "others" { others = 1; next }
    !others { own[$1]; next }
    $4 == "0A" && !($10 in own) { n = split($2, part, ":"); print part[n] }' | sort -u); do
    listening="$listening $(printf %d "0x$port")"
done
printf '{"systemd": "%s", "synchronized": "%s", "now": %s, "free_mb": %s, "listening": "%s", "missing": "%s"}\n' \
    "$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')" \
    "$(timedatectl show --property=NTPSynchronized --value 2>/dev/null)" \
    "$(date +%s)" "$(df -Pm /var/lib | awk 'NR == 2 { print $4 }')" "$listening" "$missing"
