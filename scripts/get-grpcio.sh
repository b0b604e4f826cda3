#!/bin/sh
# Fetches gRPC's Python client into .tools/grpcio, as an ordinary user: an xDS client that is not Envoy, for one test.
#
# usage: scripts/get-grpcio.sh
set -eu

tool=grpcio
link=/lib
content="gRPC's Python client (about 7 MB)"
. "$(dirname "$0")/wheels.sh"

install_programs() {
    PYTHONPATH=$part/lib python3 -c "import grpc"
}

fetch_wheels
