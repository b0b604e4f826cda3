# Sets $pip to a command that runs pip, as an unprivileged user. For other scripts to source: these define
# `say`, `fail` and the temporary folder $work. If pip is missing, its own wheel is unpacked from the
# distribution's package (nothing is installed), so a bare Debian with python3 is enough.

if python3 -m pip --version >/dev/null 2>&1; then
    pip="python3 -m pip"
else
    say "pip is missing: unpacking its wheel from the package python3-pip-whl, without installing it"
    for tool in apt-get dpkg-deb; do
        command -v "$tool" >/dev/null || fail "neither pip nor $tool is there" \
            "Install pip for python3, or see the head of this script"
    done
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    # Separate lists and cache: the system's belong to root.
    apt() {
        apt-get -qq -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
            -o APT::Sandbox::User= -o Acquire::Languages=none "$@" >&2
    }
    (cd "$work" && apt update && apt download python3-pip-whl) ||
        fail "apt-get could not fetch python3-pip-whl" \
            "Install pip for python3, or see the head of this script"
    dpkg-deb -x "$work"/python3-pip-whl_*.deb "$work/pip"
    wheel=$(echo "$work"/pip/usr/share/python-wheels/pip-*.whl)
    pip="python3 $wheel/pip"
fi
