# Succeeds if one of these files has changed since the newest process of a unit started, so that the unit runs with the earlier one. A run
# that was interrupted between a change and its restart leaves such a unit. A unit that does not run has no process, and fails.
# usage: sh outdated.sh UNIT FILE…
unit=$1
shift
group=$(systemctl show --property=ControlGroup --value "$unit" 2>/dev/null)
[ -n "$group" ] || exit 1
# In ticks since the boot. The name of a program, which is in parentheses, may have spaces.
newest=$(for process in $(cat "/sys/fs/cgroup$group/cgroup.procs" "/sys/fs/cgroup/systemd$group/cgroup.procs" 2>/dev/null); do
    sed 's/.*) //' "/proc/$process/stat" 2>/dev/null
done | awk '$20 > newest { newest = $20 } END { print newest }')
[ -n "$newest" ] || exit 1
read -r uptime _ </proc/uptime
# The time of the last change of the inode: unlike that of the content, no program sets it.
stat --dereference --format='%.9Z' "$@" 2>/dev/null |
    awk -v now="$(date +%s.%N)" -v uptime="$uptime" -v ticks="$newest" -v hertz="$(getconf CLK_TCK)" '
        $1 > now - uptime + ticks / hertz { outdated = 1 }
        END { exit !outdated }'
