#!/bin/sh
# release.sh DIR: applies a policy folder, and rolls back if it is not synced in time.
set -u
timeout=${RELEASE_TIMEOUT:-60s}
before=$(ironmesh policy revisions --output json | python3 -c '
import json, sys
print(next((one["revision"] for one in json.load(sys.stdin)["revisions"] if one["current"]), ""))')
new=$(ironmesh policy check "$1" --output json | python3 -c '
import json, sys
print(json.load(sys.stdin)["revision"])')
subject=$(git -C "$1" log -1 --format=%s) || subject=release
ironmesh policy apply "$1" --message "$subject" --wait --timeout "$timeout"
code=$?
# 0: the release is synced. 2, 3 and 4: nothing was released, or that is unknown.
test "$code" = 1 && test "$before" && test "$new" || exit "$code"
echo "release.sh: rolling back to $before, unless a different revision is active by now" >&2
ironmesh policy rollback "$before" --expect "$new" --message "failed" --wait --timeout "$timeout"
exit 1
