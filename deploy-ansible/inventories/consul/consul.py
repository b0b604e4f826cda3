#!/usr/bin/env python3
"""An inventory of the nodes of Consul, for Ansible: consul.py --list.

The meta of a node says what it is: `ironmesh` is a list of groups with commas, such as `ironmesh_control_planes`, or
`ironmesh_machines,bookstore`. Nodes without this meta are left out. `ansible_host` is the address of the node.

CONSUL_HTTP_ADDR=http://127.0.0.1:8500   the Consul agent
CONSUL_HTTP_TOKEN, CONSUL_HTTP_TOKEN_FILE   an ACL token that may read nodes
CONSUL_CACERT   the certificate authority of the agent, for https
"""

import json
import os
import ssl
import sys
import urllib.request


def nodes():
    address = os.environ.get("CONSUL_HTTP_ADDR", "http://127.0.0.1:8500")
    if "://" not in address:
        address = "http://" + address
    request = urllib.request.Request(address.rstrip("/") + "/v1/catalog/nodes")
    token = os.environ.get("CONSUL_HTTP_TOKEN", "")
    path = os.environ.get("CONSUL_HTTP_TOKEN_FILE")
    if path:
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
    if token:
        request.add_header("X-Consul-Token", token)
    context = ssl.create_default_context(cafile=os.environ.get("CONSUL_CACERT"))
    with urllib.request.urlopen(request, timeout=10, context=context) as response:
        return json.load(response)


def inventory(found):
    hosts, groups = {}, {}
    for node in found:
        for group in (node.get("Meta") or {}).get("ironmesh", "").split(","):
            if group.strip():
                groups.setdefault(group.strip(), {"hosts": []})["hosts"].append(node["Node"])
                hosts[node["Node"]] = {"ansible_host": node["Address"]}
    return {"_meta": {"hostvars": hosts}, **groups}


def main():
    if sys.argv[1:2] == ["--host"]:
        print("{}")
        return
    try:
        found = nodes()
    except OSError as error:
        sys.exit(f"consul.py: cannot read the nodes of Consul: {error}")
    result = inventory(found)
    # Consul answers an empty list if the token may not read nodes.
    if not result["_meta"]["hostvars"]:
        sys.exit("consul.py: no node of Consul has the meta `ironmesh`, or the token may not read nodes")
    print(json.dumps(result, indent=2))


main()
