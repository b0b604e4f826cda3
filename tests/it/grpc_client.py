"""A gRPC client that finds its servers by xDS, and two servers to be found.

usage: grpc_client.py PORT_A PORT_B
It calls once for every line on stdin, and prints who answered, or why nobody did.
"""
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
for _ in sys.stdin:
    try:
        print(call(b"", timeout=5).decode(), flush=True)
    except grpc.RpcError as error:
        print("nobody:", error.code(), error.details(), flush=True)
