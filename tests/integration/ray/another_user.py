"""Tries things as somebody else, and prints what came of each: run as a program by test_ray_security.py.

Its argument is JSON: `uid`, the user to become (absent: none), and `tries`, a list of
`["connect", PATH]`, a Unix socket; `["read", PATH]`, a file or folder;
`["call", PORT, METHOD, TOKEN]`, a method of gRPC, with the token unless that is empty;
`["get", PORT, PATH]`, a page of HTTP.
"""

import json
import os
import socket
import sys
from pathlib import Path

import h2.config
import h2.connection
import h2.events

TIMEOUT_S = 10


def connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    return "connected"


def read(path: str) -> str:
    if Path(path).is_dir():
        return f"{len(list(Path(path).iterdir()))} entries"
    return f"{len(Path(path).read_bytes())} bytes"


def call(port: int, method: str, token: str) -> str:
    """Return the status that gRPC answers an empty message with."""
    config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", method)]
    headers += [("content-type", "application/grpc"), ("te", "trailers")]
    headers += [("authorization", f"Bearer {token}")] if token else []
    connection.send_headers(1, headers)
    connection.send_data(1, bytes(5), end_stream=True)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.sendall(connection.data_to_send())
        while received := client.recv(65536):
            for event in connection.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    status = dict(event.headers).get("grpc-status")
                    if status is not None:
                        return f"status {status}"
            client.sendall(connection.data_to_send())
    return "closed"


def get(port: int, path: str) -> str:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        received = client.recv(65536)
        return received.decode("latin-1").split("\r\n")[0] if received.startswith(b"HTTP/1.") else "no HTTP/1"


def main(given: str) -> None:
    wanted = json.loads(given)
    if "uid" in wanted:
        os.setgroups([])
        os.setgid(wanted["uid"])
        os.setuid(wanted["uid"])
    results = []
    for way, *arguments in wanted["tries"]:
        try:
            results.append({"connect": connect, "read": read, "call": call, "get": get}[way](*arguments))
        except OSError as error:
            results.append(type(error).__name__)
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
