#!/bin/sh
# Adds services that are registered with Consul to a mesh: on this machine, as an unprivileged user, in 15 s.
#
# usage: examples/consul/run.sh
#
# It prints each command with its output and waits for its effect; without the effect it exits with 1. Loopback
# addresses stand for machines. All files are in a temporary folder, and all processes end with the script.
#
# CONSUL_BIN, ENVOY_BIN, IRONMESH_BIN   programs instead of those of this checkout
# NETWORK=127.0.1                       the network of all addresses
# PATIENCE=30                           how many seconds to wait for an effect
set -eu

here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
net=${NETWORK:-127.0.1}
patience=${PATIENCE:-30}
running=
work=$(mktemp -d -t ironmesh-consul.XXXXXX)

finish() {
    for process in $running; do
        kill "$process" 2>/dev/null && wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    printf '\nconsul example: %s\n' "$1" >&2
    for log in *.log; do
        [ -s "$log" ] && printf -- '--- the end of %s\n' "$log" >&2 && tail -n 5 "$log" >&2
    done
    exit 1
}

# program NAME PATH REMEDY: adds a program to PATH under this name.
program() {
    [ -x "$2" ] || { echo "consul example: $2 is missing; $3" >&2; exit 1; }
    ln -s "$(cd "$(dirname "$2")" && pwd)/$(basename "$2")" "$work/bin/$1"
}

say() { printf '\n# %s\n' "$1"; }

# The exit code does not matter: the script waits for the effect.
show() {
    printf '$ %s\n' "$1"
    eval "$1" 2>&1 || true
}

# start NAME COMMAND: starts a command in the background, with its own log.
start() {
    printf '$ %s &\n' "$2"
    eval "exec $2" >>"$1.log" 2>&1 &
    running="$running $!"
}

# wait_until WHAT COMMAND: waits until the command succeeds, up to PATIENCE.
wait_until() {
    deadline=$(($(date +%s) + patience))
    until eval "$2" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$deadline" ] || fail "after $patience s still waiting for: $1"
        sleep 0.1
    done
}

# answer NAMES: whether these instances answer the shop, and no others.
answer() {
    names=$(curl -sS "http://$net.11:8000/left/books?[1-12]" | sed -n 's/.* says \([^ ]*\) to .*/\1/p' | sort -u)
    [ "$names" = "$(printf '%s\n' "$@")" ]
}

# shows WORDS: whether `ironmesh endpoints` prints these words.
shows() { ironmesh endpoints default/stock | grep -q -- "$1"; }

consul_agent="consul agent -dev -bind $net.1 -client $net.1 -log-level warn -pid-file consul.pid"
ask="curl -sSf http://$net.11:8000/left/books"
ask_often="curl -s -o /dev/null -w '%{http_code}\n' 'http://$net.11:8000/left/books?[1-500]' | sort | uniq -c"
who_answers="curl -s 'http://$net.11:8000/left/books?[1-12]' | sort -u"

# proxy SERVICE HOST FOLDER MORE: enrolls a proxy, and starts its Envoy.
proxy() {
    show "ironmesh proxy bootstrap --service default/$1 --address $net.$2 $4 --out $3 | head -n 1"
    start "$3-envoy" "envoy -c $3/envoy.yaml --disable-hot-restart --drain-time-s 30"
}

for tool in curl python3; do
    command -v "$tool" >/dev/null || { echo "consul example: $tool is missing" >&2; exit 1; }
done
mkdir "$work/bin"
program consul "${CONSUL_BIN:-$checkout/.tools/consul}" "\`scripts/get-consul.sh\` fetches it"
program envoy "${ENVOY_BIN:-$checkout/.tools/envoy}" "\`make envoy\` fetches it"
program ironmesh "${IRONMESH_BIN:-$checkout/target/debug/ironmesh}" "\`make build\` builds it"
cp -r "$here/policy" "$here/registrations" "$here/ironmesh.toml" "$here/stock.py" "$work"
cd "$work"
sed -i "s/127\.0\.1\./$net./g" ironmesh.toml registrations/*.json
PATH=$work/bin:$PATH
export PATH CONSUL_HTTP_ADDR="http://$net.1:8500" IRONMESH_CONFIG=ironmesh.toml

say "A service in Consul without a mesh: two instances"
start consul "$consul_agent"
start stock-1 "python3 stock.py stock-1 $net.21"
start stock-2 "python3 stock.py stock-2 $net.22"
wait_until "Consul has a leader" "consul operator raft list-peers | grep -q leader"
wait_until "both listen" "curl -sf http://$net.21:8080/health && curl -sf http://$net.22:8080/health"
show "consul services register registrations/stock-1.json"
show "consul services register registrations/stock-2.json"

say "The control plane discovers them; without proxies they get no calls"
start ironmesh "ironmesh serve"
wait_until "both are found and healthy" "shows '21:8080.* healthy' && shows '22:8080.* healthy'"
show "ironmesh endpoints default/stock"

say "Enroll a proxy for each instance, and one for the shop, which calls the stock at its local port 8000"
proxy stock 21 stock-1 "--app-address $net.21"
proxy stock 22 stock-2 "--app-address $net.22"
proxy shop 11 shop "--upstream default/stock=8000"
wait_until "both are called" "answer stock-1 stock-2"
show "ironmesh endpoints default/stock"

say "Calls use mutual TLS: the stock learns its caller, and a caller without a certificate is disconnected"
show "$who_answers"
show "curl -sS http://$net.21:15003/left/books"

say "A new instance starts and registers: it gets calls without any edit"
proxy stock 23 stock-3 "--app-address $net.23"
start stock-3 "python3 stock.py stock-3 $net.23"
wait_until "it listens" "curl -sf http://$net.23:8080/health"
show "consul services register registrations/stock-3.json"
wait_until "the third is called" "answer stock-1 stock-2 stock-3"
show "$who_answers"

say "Maintenance drains an instance"
show "consul maint -enable -service stock-2 -reason 'a new disk'"
wait_until "the second drains" "shows draining && answer stock-1 stock-3"
show "ironmesh endpoints default/stock"
show "$who_answers"
show "consul maint -disable -service stock-2"
wait_until "the second is called again" "answer stock-1 stock-2 stock-3"

say "Consul is killed: the endpoints are shown as stale, and no request fails"
show 'kill -KILL $(cat consul.pid)'
wait_until "the control plane has seen it" "shows stale"
show "ironmesh endpoints default/stock"
show "$ask_often"

say "Consul comes back empty: the control plane keeps the endpoints"
start consul "$consul_agent"
wait_until "the removal is held back" "shows 'is held back'"
show "ironmesh status"
show "$ask_often"

say "The instances are registered again, and nothing is held back"
for n in 1 2 3; do show "consul services register registrations/stock-$n.json"; done
wait_until "nothing is held back" "shows '23:8080.* healthy' && ! shows unhealthy && ! shows 'is held back'"
show "ironmesh status"

say "They are deregistered one after the other: the removal is held back until it is accepted"
show 'for n in 1 2 3; do consul services deregister -id stock-$n; done'
wait_until "the removal is held back" "shows 'is held back'"
show "ironmesh endpoints default/stock"
show "$ask"
show "ironmesh endpoints accept default/stock"
wait_until "no instance is called" "! $ask"
show "ironmesh endpoints default/stock"
show "$ask"
