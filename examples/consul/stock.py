#!/usr/bin/env python3
"""An instance of the stock: answers with the number of books left, its name and its caller.

usage: stock.py NAME ADDRESS
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Stock(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        # Envoy removes this header from requests, and sets it from the caller's certificate.
        caller = self.headers.get("x-forwarded-client-cert", "").partition("URI=")[2]
        body = f"12 books left, says {sys.argv[1]} to {caller or 'an unknown caller'}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer((sys.argv[2], 8080), Stock).serve_forever()
