#!/bin/sh
# Fetches ansible-core and ansible-lint into .tools/ansible, as an ordinary user: they run and check deploy-ansible/.
# Their programs are in .tools/ansible/bin.
#
# usage: scripts/get-ansible.sh
set -eu

tool=ansible
link=
content="ansible-core and ansible-lint (about 12 MB)"
. "$(dirname "$0")/wheels.sh"

install_programs() {
    program ansible ansible.cli.adhoc
    for cli in config doc galaxy inventory playbook; do program "ansible-$cli" "ansible.cli.$cli"; done
    program ansible-lint ansiblelint
    program yamllint yamllint
    "$part/bin/ansible-playbook" --version >/dev/null
}

fetch_wheels
