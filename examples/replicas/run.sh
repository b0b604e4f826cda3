#!/bin/sh
# Three control planes that share three etcd members, on this machine, as an unprivileged user, in 30 s.
#
# usage: examples/replicas/run.sh          shows what fails without an effect on calls, and ends
#        examples/replicas/run.sh --stay   starts etcd and the control planes, and runs until Ctrl-C
#
# It prints each command with its output and waits for its effect; without the effect it exits with 1. Loopback
# addresses stand for machines. All files are in a temporary folder, and all processes end with the script.
#
# ETCD_BIN, ENVOY_BIN, IRONMESH_BIN   programs instead of those of this checkout; etcdctl is beside etcd
# NETWORK=127.0.1                     the network of all addresses
# PATIENCE=30                         how many seconds to wait for an effect
set -eu

here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
net=${NETWORK:-127.0.1}
patience=${PATIENCE:-30}
running=
work=$(mktemp -d -t ironmesh-replicas.XXXXXX)

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
    printf '\nreplicas example: %s\n' "$1" >&2
    for log in *.log; do
        [ -s "$log" ] && printf -- '--- the end of %s\n' "$log" >&2 && tail -n 5 "$log" >&2
    done
    exit 1
}

# program NAME PATH REMEDY: adds a program to PATH under this name.
program() {
    [ -x "$2" ] || { echo "replicas example: $2 is missing; $3" >&2; exit 1; }
    ln -s "$(cd "$(dirname "$2")" && pwd)/$(basename "$2")" "$work/bin/$1"
}

say() { printf '\n# %s\n' "$1"; }

# The exit code does not matter: the script waits for the effect.
show() {
    printf '$ %s\n' "$1"
    eval "$1" 2>&1 || true
}

# start NAME COMMAND: starts a command in the background, with its own log. Its process is in the file NAME.pid.
start() {
    printf '$ %s &\n' "$2"
    eval "exec $2" >>"$1.log" 2>&1 &
    echo $! >"$1.pid"
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

# certificate NAME ADDRESSES: a certificate of etcd's authority. Its common name is the user in etcd.
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
        -keyout "pki/$1.key" -out "pki/$1.csr" 2>/dev/null
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2" >"pki/$1.ext"
    openssl x509 -req -in "pki/$1.csr" -CA pki/ca.pem -CAkey pki/ca.key -CAcreateserial -days 30 \
        -extfile "pki/$1.ext" -out "pki/$1.pem" 2>/dev/null
}

# member NUMBER: the command of a member of etcd.
member() {
    cluster=etcd-1=https://$net.1:2380,etcd-2=https://$net.2:2380,etcd-3=https://$net.3:2380
    tls="--trusted-ca-file pki/ca.pem --cert-file pki/etcd-$1.pem --key-file pki/etcd-$1.key --client-cert-auth"
    peers="--peer-trusted-ca-file pki/ca.pem --peer-cert-file pki/etcd-$1.pem --peer-key-file pki/etcd-$1.key"
    urls="--listen-client-urls https://$net.$1:2379 --advertise-client-urls https://$net.$1:2379"
    between="--listen-peer-urls https://$net.$1:2380 --initial-advertise-peer-urls https://$net.$1:2380"
    echo "etcd --name etcd-$1 --data-dir etcd-$1 --initial-cluster $cluster $urls $between $tls $peers" \
        "--peer-client-cert-auth"
}

# settings NUMBER: the settings of a control plane.
settings() {
    mkdir -p "cp-$1"
    cat >"cp-$1/ironmesh.toml" <<END
state = "state"
policy = "../policy"
advertise = ["$net.1:15128", "$net.2:15128", "$net.3:15128"]
listen = { xds = "$net.$1:15128", admin = "$net.$1:15014" }

[store]
kind = "etcd"

[store.etcd]
endpoints = ["https://$net.1:2379", "https://$net.2:2379", "https://$net.3:2379"]
ca = "../pki/ca.pem"
certificate = "../pki/ironmesh.pem"
key = "../pki/ironmesh.key"
END
}

# ready NUMBER: whether a control plane is ready.
ready() { curl -sf "http://$net.$1:15014/readyz"; }

for tool in curl openssl python3; do
    command -v "$tool" >/dev/null || { echo "replicas example: $tool is missing" >&2; exit 1; }
done
etcd=${ETCD_BIN:-$checkout/.tools/etcd}
mkdir "$work/bin" "$work/pki"
program etcd "$etcd" "\`scripts/get-etcd.sh\` fetches it"
program etcdctl "$(dirname "$etcd")/etcdctl" "it belongs beside etcd"
program envoy "${ENVOY_BIN:-$checkout/.tools/envoy}" "\`make envoy\` fetches it"
program ironmesh "${IRONMESH_BIN:-$checkout/target/debug/ironmesh}" "\`make build\` builds it"
cp -r "$here/policy" "$work"
cd "$work"
PATH=$work/bin:$PATH
export PATH ETCDCTL_API=3 ETCDCTL_ENDPOINTS="https://$net.1:2379,https://$net.2:2379,https://$net.3:2379"
export ETCDCTL_CACERT=pki/ca.pem ETCDCTL_CERT=pki/root.pem ETCDCTL_KEY=pki/root.key

say "Three etcd members with TLS, and a user for the control planes, who has a role for the keys of the mesh alone"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=etcd \
    -keyout pki/ca.key -out pki/ca.pem 2>/dev/null
for n in 1 2 3; do certificate "etcd-$n" "IP:$net.$n,IP:127.0.0.1"; done
certificate root DNS:root
certificate ironmesh DNS:ironmesh
for n in 1 2 3; do start "etcd-$n" "$(member "$n")"; done
wait_until "etcd accepts writes" "etcdctl put ready yes"
show "etcdctl role add mesh"
for keys in state leases; do
    show "etcdctl role grant-permission mesh --prefix=true readwrite /ironmesh/default/$keys/"
done
show "etcdctl user add ironmesh --no-password && etcdctl user grant-role ironmesh mesh"
show "etcdctl user add root --no-password && etcdctl user grant-role root root"
show "etcdctl auth enable"

say "The store of the mesh, once; the same key for all control planes; and three control planes"
for n in 1 2 3; do settings $n; done
show "cat cp-1/ironmesh.toml"
show "ironmesh store init --config cp-1/ironmesh.toml"
for n in 2 3; do
    mkdir -p -m 700 cp-$n/state
    show "cp -p cp-1/state/kek cp-$n/state/kek"
done
for n in 1 2 3; do start "cp-$n" "ironmesh serve --config cp-$n/ironmesh.toml"; done
for n in 1 2 3; do wait_until "control plane $n is ready" "ready $n"; done

if [ "${1:-}" = --stay ]; then
    say "All run until Ctrl-C"
    echo "cd $work"
    echo "ironmesh status --config cp-1/ironmesh.toml"
    while :; do sleep 60; done
fi

say "Proxies of a stock and of a shop, enrolled at different control planes: each control plane knows both"
start stock "python3 -m http.server --bind $net.21 8080"
show "ironmesh proxy bootstrap --config cp-1/ironmesh.toml --name stock --service stock --address $net.21 --app-address $net.21 --out stock | head -n 1"
show "ironmesh proxy bootstrap --config cp-2/ironmesh.toml --name shop --service shop --address $net.11 --upstream default/stock=8000 --out shop | head -n 1"
for proxy in stock shop; do
    start "$proxy-envoy" "envoy -c $proxy/envoy.yaml --disable-hot-restart --drain-time-s 30"
done
wait_until "the stock answers" "curl -sf http://$net.11:8000/policy/shop.toml"
wait_until "control plane 3 knows both" "[ \$(ironmesh proxy list --config cp-3/ironmesh.toml --output json | grep -c '\"connected\"') = 2 ]"
show "ironmesh proxy list --config cp-3/ironmesh.toml"

calls="curl -s -o /dev/null -w '%{http_code}\n' 'http://$net.11:8000/policy/shop.toml?[1-500]' | sort | uniq -c"

say "A control plane is killed: no call fails, and its proxies use the others"
show 'kill -KILL $(cat cp-1.pid)'
show "$calls"
show "ironmesh proxy list --config cp-2/ironmesh.toml"
start cp-1 "ironmesh serve --config cp-1/ironmesh.toml"
wait_until "control plane 1 is ready" "ready 1"

say "etcd loses its quorum: no call fails; the control planes report it, and reject changes"
show 'kill -KILL $(cat etcd-1.pid) $(cat etcd-2.pid)'
wait_until "the outage is reported" "ironmesh status --config cp-2/ironmesh.toml | grep IM0706"
show "ironmesh status --config cp-2/ironmesh.toml | grep IM0706"
show "ironmesh proxy token --config cp-2/ironmesh.toml --service stock"
show "$calls"

say "etcd is back: nothing needs a restart"
for n in 1 2; do start "etcd-$n" "$(member "$n")"; done
wait_until "the outage is over" "! ironmesh status --config cp-2/ironmesh.toml | grep IM0706"
wait_until "a token is created" "ironmesh proxy token --config cp-2/ironmesh.toml --service stock"
show "$calls"

say "A proxy is revoked at one control plane: all refuse it"
show "ironmesh proxy revoke shop --config cp-3/ironmesh.toml --reason 'end of the example'"
wait_until "its calls end" "! curl -sf http://$net.11:8000/policy/shop.toml"
show "ironmesh journal --config cp-1/ironmesh.toml"
