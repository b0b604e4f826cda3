#!/bin/sh
# Checks deploy-ansible/: yamllint, ansible-lint with the profile `production`, the documentation of each role, and that the READMEs are
# current. It needs no network once .tools/ansible is there.
#
# usage: scripts/lint-ansible.sh [--fix]: with --fix it writes the READMEs and docs/reference/ansible.md first.
set -eu

cd "$(dirname "$0")/.."
scripts/get-ansible.sh
bin=$PWD/.tools/ansible/bin
docs() { PYTHONPATH=$PWD/.tools/ansible/lib python3 scripts/ansible/docs.py "$@"; }

if [ "${1:-}" = --fix ]; then docs; fi
docs --check
cd deploy-ansible
# Caches of both programs stay out of the checkout.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
export ANSIBLE_HOME="$work" XDG_CACHE_HOME="$work" NO_COLOR=1 ANSIBLE_NOCOLOR=1
"$bin/yamllint" --strict .
"$bin/ansible-lint" --offline --strict --profile production
for role in roles/*; do
    "$bin/ansible-doc" --type role --roles-path roles --json "${role#roles/}" | python3 -c '
import json, sys
roles = json.load(sys.stdin)
sys.exit(not (roles and all(role["entry_points"]["main"]["options"] for role in roles.values())))' || {
        echo "lint-ansible: ansible-doc has no options of the role ${role#roles/}" >&2
        exit 1
    }
done
"$bin/ansible-galaxy" collection build --output-path "$work" >/dev/null
echo "deploy-ansible: no problems"
