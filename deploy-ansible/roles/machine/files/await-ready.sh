# Waits until the machine is ready, and prints its last status as JSON. Without the control plane one status takes up to 20 s.
# usage: sh await-ready.sh SECONDS
end=$(($(date +%s) + $1))
until status=$(runuser -u ironmesh-proxy -- ironmesh agent status --output json); do
    if [ "$(date +%s)" -ge "$end" ]; then
        printf '%s' "$status"
        exit 1
    fi
    sleep 1
done
printf '%s' "$status"
