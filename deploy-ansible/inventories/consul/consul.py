#!/usr/bin/env python3
"""An inventory of the nodes of Consul, for Ansible: consul.py --list.

consul-groups.ini, beside this program, has the groups and the nodes in each. So the controller decides what a node is: a node that could
choose its group would get the identity of any service. A token of Consul must let a node write itself alone (a node identity), because
its name decides. `ansible_host` is the address of the node; check SSH host keys, because the node chooses its address.

CONSUL_HTTP_ADDR=http://127.0.0.1:8500   the Consul agent
CONSUL_HTTP_TOKEN, CONSUL_HTTP_TOKEN_FILE   an ACL token that may read nodes
CONSUL_CACERT   the certificate authority of the agent, for https
"""

import configparser
import fnmatch
import json
import os
import ssl
import sys
import urllib.request

GROUPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "consul-groups.ini")


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


def patterns():
    """The patterns of names of nodes, by group. A pattern ends at the end of its line, and keeps its case."""
    parser = configparser.ConfigParser(allow_no_value=True, delimiters=("\0",), interpolation=None)
    parser.optionxform = str
    with open(GROUPS, encoding="utf-8") as file:
        parser.read_file(file)
    return {group: list(parser[group]) for group in parser.sections()}


def inventory(found, groups):
    hosts, members = {}, {group: [] for group in groups}
    for node in found:
        for group, names in groups.items():
            if any(fnmatch.fnmatchcase(node["Node"], name) for name in names):
                members[group].append(node["Node"])
                hosts[node["Node"]] = {"ansible_host": node["Address"]}
    return {"_meta": {"hostvars": hosts}, **{group: {"hosts": names} for group, names in members.items()}}


def main():
    if sys.argv[1:2] == ["--host"]:
        print("{}")
        return
    try:
        found, groups = nodes(), patterns()
    except (OSError, configparser.Error) as error:
        sys.exit(f"consul.py: cannot read {GROUPS} or the nodes of Consul: {error}")
    result = inventory(found, groups)
    # Consul answers an empty list if the token may not read nodes.
    if not result["_meta"]["hostvars"]:
        sys.exit(f"consul.py: no node of Consul is in a group of {GROUPS}, or the token may not read nodes")
    print(json.dumps(result, indent=2))


main()
