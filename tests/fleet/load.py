"""Sends requests over kept HTTP/1.1 connections until SIGTERM, and writes their counts to a file.

usage: load.py FILE HOST PORT PATH

A response other than 200, and a connection that breaks during a request, is a failed request.
"""

import http.client
import json
import os
import signal
import sys
import threading
import time

CONNECTIONS = 4
# Of one connection, between two requests: a light load for a machine that has other work.
PAUSE = 0.02

file, host, port, path = sys.argv[1:]
lock = threading.Lock()
counts = {"requests": 0, "failed": 0, "reasons": {}, "longest_ms": 0}
end = threading.Event()


def send(connection):
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return None if response.status == 200 else str(response.status)
    except Exception as error:
        connection.close()
        return f"{type(error).__name__}: {error}"


def work():
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    while not end.wait(PAUSE):
        begin = time.monotonic()
        reason = send(connection)
        took = int((time.monotonic() - begin) * 1000)
        with lock:
            counts["requests"] += 1
            counts["longest_ms"] = max(counts["longest_ms"], took)
            if reason is not None:
                counts["failed"] += 1
                counts["reasons"][reason] = counts["reasons"].get(reason, 0) + 1


def write():
    with lock:
        text = json.dumps(counts)
    with open(file + ".part", "w") as part:
        part.write(text)
    os.rename(file + ".part", file)


signal.signal(signal.SIGTERM, lambda *_: end.set())
write()
workers = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
for worker in workers:
    worker.start()
while not end.wait(0.1):
    write()
for worker in workers:
    worker.join()
write()
