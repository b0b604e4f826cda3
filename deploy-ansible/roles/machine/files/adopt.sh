# Moves the folder of a proxy, also to a different file system. Whenever it ends early, one of both folders is whole, and it can be repeated.
# usage: sh adopt.sh FROM TO
set -eu
[ ! "$1" -ef "$2" ] || exit 0
if [ ! -e "$2" ]; then
    rm -rf "$2.new"
    cp -a "$1" "$2.new"
    chown -R ironmesh-proxy:ironmesh-proxy "$2.new"
    sync --file-system "$2.new"
    mv --no-target-directory "$2.new" "$2"
    sync --file-system "$2"
fi
cmp --silent "$1/proxy.key" "$2/proxy.key" || {
    echo "$2 exists, and has no copy of the proxy in $1: remove it, and repeat the play" >&2
    exit 1
}
rm -rf "$1"
