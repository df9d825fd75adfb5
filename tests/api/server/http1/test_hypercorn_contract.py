"""All that the server relies on of Hypercorn; a release that changes any of it fails here."""

import inspect
from types import CodeType

import hypercorn.asyncio
import hypercorn.asyncio.run
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config

from api.server.connection import Connection
from api.server.hypercorn_config import server_config
from api.settings import Settings

PASSED = ["app", "loop", "config", "context", "state", "reader", "writer"]
"""What Hypercorn creates a connection with, by position."""


def parameters(of: object) -> list[str]:
    return [name for name in inspect.signature(of).parameters if name != "self"]


def code_within(code: CodeType, name: str) -> CodeType:
    """Give the code of a function that is defined within another."""
    return next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)


def test_serve_takes_an_application_a_configuration_and_when_to_end() -> None:
    assert parameters(hypercorn.asyncio.serve)[:2] == ["app", "config"]
    trigger = inspect.signature(hypercorn.asyncio.serve).parameters["shutdown_trigger"]
    assert trigger.kind is inspect.Parameter.KEYWORD_ONLY


def test_each_connection_is_created_by_a_name_that_is_looked_up_when_it_comes_and_then_awaited() -> None:
    assert hypercorn.asyncio.serve.__globals__["worker_serve"] is hypercorn.asyncio.run.worker_serve
    assert parameters(TCPServer) == PASSED
    assert parameters(Connection)[3:] == ["_wrapped_app", "loop", "config", "_context", *PASSED[4:]]
    for served in (TCPServer, Connection):
        assert parameters(served.__await__) == parameters(served.run) == []
    callback = code_within(hypercorn.asyncio.run.worker_serve.__code__, "_server_callback")
    assert "TCPServer" in callback.co_names, "it is a global, and not bound before"
    assert callback.co_varnames[:2] == ("reader", "writer")


def test_the_configuration_has_what_is_set_and_read() -> None:
    untouched = Config()
    config = server_config(Settings())
    for name in (
        "accesslog",
        "backlog",
        "bind",
        "errorlog",
        "graceful_timeout",
        "include_server_header",
        "keep_alive_max_requests",
        "keep_alive_timeout",
        "root_path",
    ):
        assert hasattr(untouched, name), name
        assert hasattr(config, name), name
    config.bind = ["fd://0"]
    assert config.bind == ["fd://0"]
    # What nothing sets that is not there already: a name that was changed would be set in vain.
    assert {name.removeprefix("_") for name in vars(config)} <= set(dir(untouched))
