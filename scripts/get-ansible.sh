#!/bin/sh
# Fetches ansible-core and ansible-lint into .tools/ansible, as an ordinary user: they run and check deploy-ansible/.
#
# usage: scripts/get-ansible.sh
#
# Each wheel is pinned by SHA-256 in scripts/ansible/requirements.txt. Programs are in .tools/ansible/bin.
set -eu

say() { echo "get-ansible: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/.." && pwd)/.tools
pins=$here/ansible/requirements.txt
# An edit of this file or of the pins fetches anew.
name=ansible-$(cat "$0" "$pins" | sha256sum | cut -c1-12)
home=$tools/$name

link() {
    ln -s "$name" "$tools/.ansible.$$"
    mv -fT "$tools/.ansible.$$" "$tools/ansible"
}

if [ -d "$home" ]; then
    link
    say "Ansible is already present: .tools/ansible"
    exit 0
fi
command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3"
python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    fail "scripts/ansible/requirements.txt has wheels for Python 3.11 to 3.13, and this is $(python3 --version)"

work=$(mktemp -d)
trap 'rm -rf "$work" "$tools/.ansible.part.$$" "$tools/.ansible.$$"' EXIT
trap 'exit 1' HUP INT TERM
say "fetching ansible-core and ansible-lint (about 12 MB, once)"
. "$here/pip.sh"

# A temporary folder, then a rename: an interrupted run leaves nothing partial behind.
mkdir -p "$tools"
part=$tools/.ansible.part.$$
$pip --disable-pip-version-check install --quiet --root-user-action=ignore --require-hashes --no-deps --only-binary :all: \
    --target "$part/lib" --requirement "$pins" >&2 || fail "pip could not fetch the wheels, see above" \
    "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)."

# The scripts of pip --target do not find their own folder. These do, wherever the checkout is.
mkdir "$part/bin"
program() {
    cat >"$part/bin/$1" <<PROGRAM
#!/bin/sh
here=\$(cd "\$(dirname "\$0")/.." && pwd)
PYTHONPATH=\$here/lib\${PYTHONPATH:+:\$PYTHONPATH} PATH=\$here/bin:\$PATH exec python3 -m $2 "\$@"
PROGRAM
    chmod 755 "$part/bin/$1"
}
program ansible ansible.cli.adhoc
for cli in config doc galaxy inventory playbook; do program "ansible-$cli" "ansible.cli.$cli"; done
program ansible-lint ansiblelint
program yamllint yamllint
"$part/bin/ansible-playbook" --version >/dev/null || fail "the fetched Ansible does not run on this machine"
mv -T "$part" "$home"
link
say "done: .tools/ansible"
