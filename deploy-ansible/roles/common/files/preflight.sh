# Prints as JSON what the checks need to know about a host. It changes nothing.
# usage: sh preflight.sh UNIT…: the units whose ports may be in use because they run.
missing=
for program in runuser tar awk; do command -v "$program" >/dev/null || missing="$missing $program"; done
running=
for unit in "$@"; do ! systemctl is-active --quiet "$unit" || running="$running $unit"; done
# Listening TCP ports: the state 0A, and the port in hexadecimal.
listening=
for port in $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { n = split($2, part, ":"); print part[n] }' | sort -u); do
    listening="$listening $(printf %d "0x$port")"
done
printf '{"systemd": "%s", "synchronized": "%s", "now": %s, "free_mb": %s, "listening": "%s", "missing": "%s", "running": "%s"}\n' \
    "$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')" \
    "$(timedatectl show --property=NTPSynchronized --value 2>/dev/null)" \
    "$(date +%s)" "$(df -Pm /var/lib | awk 'NR == 2 { print $4 }')" "$listening" "$missing" "$running"
