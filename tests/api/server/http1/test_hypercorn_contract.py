"""The settings that the server relies on of Hypercorn: a release that renames any of them fails here."""

from hypercorn.config import Config

from api.server.hypercorn_config import server_config
from api.settings import Settings


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
