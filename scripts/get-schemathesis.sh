#!/bin/sh
# Fetches schemathesis into .tools/, as an ordinary user, and leaves the stable link .tools/schemathesis to its program:
# it sends generated requests to the API, and compares the answers with the OpenAPI document.
#
# usage: scripts/get-schemathesis.sh
#
# SCHEMATHESIS_BIN=/path/to/schemathesis   use this program and fetch nothing.
set -eu

tool=schemathesis
link=/bin/schemathesis
content="schemathesis (about 13 MB)"
. "$(dirname "$0")/wheels.sh"

install_programs() {
    program schemathesis schemathesis.cli
    "$part/bin/schemathesis" --version >/dev/null
}

if [ -n "${SCHEMATHESIS_BIN:-}" ]; then
    [ -x "$SCHEMATHESIS_BIN" ] || fail "SCHEMATHESIS_BIN is not an executable file: \`$SCHEMATHESIS_BIN\`"
    say "using SCHEMATHESIS_BIN: $SCHEMATHESIS_BIN"
    exit 0
fi
fetch_wheels
