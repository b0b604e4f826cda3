# Moves the folder of a proxy, also to a different file system. Whenever it ends early, one of both folders is whole, and it can be repeated.
# usage: sh adopt.sh FROM TO
set -eu
if [ ! -e "$2" ]; then
    rm -rf "$2.new"
    cp -a "$1" "$2.new"
    chown -R ironmesh-proxy:ironmesh-proxy "$2.new"
    sync "$2.new"
    mv --no-target-directory "$2.new" "$2"
fi
rm -rf "$1"
