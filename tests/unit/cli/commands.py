"""Commands as their users type them, in this process."""

import shlex
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api.cli import main
from tests.unit.cli.fake_service import FakeService


def run(
    words: str, *more: object, status: int = 0, service: FakeService | None = None, **given: Any
) -> Result:
    """Run what a shell would make of the words, and further arguments as they are; hold it to its status."""
    arguments = [*shlex.split(words), *map(str, more)]
    with pytest.MonkeyPatch.context() as patch:
        if service is not None:
            service.put_in_place(patch)
        found = CliRunner(catch_exceptions=False).invoke(
            main, arguments, **{"env": {"RULE_DETECTOR_TOKEN": "t"}, **given}
        )
    assert found.exit_code == status, found.output
    return found
