"""Where the service listens, and how it names that."""

import socket

import pytest

from api.process.listening import listening, url_at
from api.settings import Settings


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert url_at("::1", 8080) == "http://[::1]:8080"
    assert url_at("127.0.0.1", 8080) == "http://127.0.0.1:8080"


def test_a_name_of_both_kinds_is_listened_to_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with listening(Settings(host="localhost", port=0)) as (listener,):
        assert listener.getsockname()[0] == "127.0.0.1"
