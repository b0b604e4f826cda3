#!/usr/bin/env python3
"""Looks for advisories about the Python wheels that scripts/ fetches, in the OSV database (https://osv.dev).

usage: scripts/wheel-advisories.py

Exit code 1: there are advisories; 2: the database is unreachable, so nothing was checked.
"""

import json
import pathlib
import re
import sys
import urllib.request

DATABASE = "https://api.osv.dev/v1/querybatch"

scripts = pathlib.Path(__file__).parent
text = "\n".join(path.read_text() for path in [*scripts.glob("*/requirements.txt"), *scripts.glob("*.sh")])
pins = sorted(set(re.findall(r"^\s*([A-Za-z0-9_.-]+)==([A-Za-z0-9_.]+)", text, re.MULTILINE)))
assert pins, "no pinned wheel was found"
queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in pins]
request = urllib.request.Request(DATABASE, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"})
try:
    with urllib.request.urlopen(request, timeout=30) as response:
        results = json.load(response)["results"]
except OSError as error:
    print(f"wheel-advisories: cannot reach {DATABASE}: {error}", file=sys.stderr)
    sys.exit(2)
found = [(name, version, one["id"]) for (name, version), result in zip(pins, results, strict=True) for one in result.get("vulns", [])]
for name, version, advisory in found:
    print(f"wheel-advisories: {name} {version}: https://osv.dev/{advisory}", file=sys.stderr)
print(f"wheel-advisories: {len(pins)} wheels, {len(found)} advisories", file=sys.stderr)
sys.exit(bool(found))
