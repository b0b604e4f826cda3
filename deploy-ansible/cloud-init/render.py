#!/usr/bin/env python3
"""Writes the user data of each machine of a scale set: machine.yaml with a token of its own.

usage: ironmesh proxy token --service shop/bookstore --address 10.0.0.0/24 --ttl 2h --count 5 --output json |
       render.py FOLDER

The command runs on the control-plane host. FOLDER gets 1.yaml, 2.yaml and so on, which only their owner can read: they have the tokens.
"""

import json
import os
import sys

if len(sys.argv) != 2:
    sys.exit(__doc__)
created = json.load(sys.stdin)
template = os.path.join(os.path.dirname(os.path.abspath(__file__)), "machine.yaml")
with open(template, encoding="utf-8") as file:
    template = file.read()
# The comments name the placeholders, too.
head, body = template.split("write_files:", 1)
urls = [f"https://{f'[{host}]' if ':' in host else host}:{port}" for host, port in created["enrollment"]]
body = body.replace("@URLS", json.dumps(urls)).replace("@HASHES", json.dumps(created["ca_hashes"]))
os.makedirs(sys.argv[1], mode=0o700, exist_ok=True)
for number, token in enumerate(created["tokens"], 1):
    path = os.path.join(sys.argv[1], f"{number}.yaml")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(head + "write_files:" + body.replace("@TOKEN", token["token"]))
print(f"{len(created['tokens'])} files in {sys.argv[1]}; the tokens expire at {created['expires_at']}", file=sys.stderr)
