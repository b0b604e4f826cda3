"""A gRPC client that finds its servers by xDS, and two servers to be found.

usage: grpc_client.py PORT_A PORT_B
It calls once for every line on stdin, and prints who answered, or why the call failed. For a line
`health SERVICE` it asks the xDS server itself, and prints its answer in hexadecimal.
"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc


def serve(name, port):
    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: name)

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server


servers = [serve(b"a", sys.argv[1]), serve(b"b", sys.argv[2])]
channel = grpc.insecure_channel("xds:///api.mesh.local")
call = channel.unary_unary("/test.Test/Call")
with open(os.environ["GRPC_XDS_BOOTSTRAP"]) as file:
    server = json.load(file)["xds_servers"][0]
tls = server["channel_creds"][0]["config"]
names = ("ca_certificate_file", "private_key_file", "certificate_file")
credentials = grpc.ssl_channel_credentials(*(open(tls[name], "rb").read() for name in names))
control_plane = grpc.secure_channel(server["server_uri"], credentials)
check = control_plane.unary_unary("/grpc.health.v1.Health/Check")
for line in sys.stdin:
    try:
        if line.startswith("health "):
            service = line.split()[1].encode()
            print(check(b"\x0a" + bytes([len(service)]) + service, timeout=5).hex(), flush=True)
            continue
        print(call(b"", timeout=5).decode(), flush=True)
    except grpc.RpcError as error:
        print("nobody:", error.code(), error.details(), flush=True)
