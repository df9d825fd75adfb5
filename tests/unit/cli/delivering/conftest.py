from pathlib import Path

import pytest

from tests.unit.cli.delivering.feeds import Feeds
from tests.unit.cli.delivering.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Feeds(), tmp_path)
