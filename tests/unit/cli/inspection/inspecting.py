"""What the tests ask of `inspect`."""

import json
from pathlib import Path
from typing import Any

from click.testing import Result

from engine.runtime.contract.requests.operations import add_rule, change_rule, evaluate, rules
from tests.local_runtime.service import LocalService
from tests.unit.cli.commands import run

SECOND = "0" * 32


def inspect(*arguments: object, code: int = 0) -> Result:
    return run("inspect", *arguments, status=code)


def told(*arguments: object, code: int = 0) -> Any:
    found = inspect(*arguments, "--json", code=code)
    assert bool(found.stderr) is (code == 1)
    return json.loads(found.stdout)


def event(number: int) -> bytes:
    fields = {"user": f"u{number}", "ok": number % 2 == 0}
    return json.dumps({"event": {"fields": fields, "timestamp_ms": 1_700_000_000_000 + number}}).encode()


async def filled(service: LocalService) -> str:
    """Return a detector with two rules and ten events, beside another one without."""
    backend = service.backend
    await backend.mint_token()
    detector = await backend.create_detector("shop")
    await backend.create_detector("two\nlines")
    await backend.call(detector, add_rule("forced", "per user once within 10m ok == false", notify=True))
    await backend.call(detector, add_rule("off", "a==1", notify=False))
    [_, off] = json.loads((await backend.call(detector, rules())).result)["rules"]
    await backend.call(detector, change_rule(off["id"], enabled=False))
    for number in range(10):
        await backend.call(detector, evaluate(event(number)))
    return detector


def journal_of(data: Path, detector: str) -> Path:
    """The segment that has the events."""
    [path] = [
        path for path in (data / "detectors" / detector).glob("journal-*") if b'"u3"' in path.read_bytes()
    ]
    return path


def shop(report: Any) -> Any:
    return next(detector for detector in report["detectors"] if detector["name"] == "shop")
