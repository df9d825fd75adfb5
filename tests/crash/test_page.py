"""The page has the rows that the command prints, and the present planted defects."""

import re
from pathlib import Path

from tests.crash.service.planted_defects import SERVICE_DEFECTS
from tests.crash.store.planted_defects import DEFECTS

FOLDER = Path(__file__).parent
PAGE = (FOLDER / "README.md").read_text("utf-8")


def test_the_table_has_the_rows_that_the_command_prints() -> None:
    printed = re.findall(
        r'(?:row\("|print\(f"\| )(\w[^|"]+?|… [^|"]+?)(?:",| \|)', (FOLDER / "__main__.py").read_text("utf-8")
    )
    table = PAGE.partition("| what | tried |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (.+?) \|", table, re.MULTILINE) == printed


def test_all_planted_defects_are_in_the_table() -> None:
    assert f"| planted defects | {len(DEFECTS | SERVICE_DEFECTS)} | all noticed |" in PAGE
