"""A forked process has connections of its own: those of its parent bring its parent's answers."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCRIPT = """
import os, sys
from rule_detector_client import Client, calls
client = Client(sys.argv[1], "rd_x")
assert client.send(calls.list_detectors()) == []
if (child := os.fork()) == 0:
    for _ in range(2):
        assert client.send(calls.list_detectors()) == []
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert client.send(calls.list_detectors()) == []
"""


def test_a_forked_process_uses_no_connection_of_its_parent() -> None:
    connections: list[Any] = []

    class Service(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            connections.append(self.client_address)
            body = b'{"success":true,"errors":[],"messages":[],"result":[]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        subprocess.run([sys.executable, "-c", SCRIPT, url], check=True, timeout=60)
        server.shutdown()
    parent, child, again, after = connections
    assert (again, after) == (child, parent)
    assert child != parent
