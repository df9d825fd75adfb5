"""A command that waits for the service says why, once."""

import httpx
import pytest

from api.cli.options import service_options
from rule_detector_client import Client
from tests.unit.cli.commands import run


def test_a_command_that_waits_for_long_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    errors = [{"code": 1501, "message": "the detector is starting"}]
    answer = {"success": False, "errors": errors, "messages": [], "result": {}}

    def client(url: str, token: str, **given: object) -> Client:
        transport = httpx.MockTransport(
            lambda _: httpx.Response(503, json=answer, headers={"Retry-After": "2"})
        )
        given |= {"transport": transport, "sleep": slept.append, "now_s": lambda: sum(slept)}
        return Client(url, token, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(service_options, "Client", client)
    said = run("detectors list", status=1).stderr
    assert sum(slept) == 60
    assert said == (
        "rule-detector: warning: waiting for up to a minute: 1501 the detector is starting\n"
        "rule-detector: 1501 the detector is starting\n"
    )
