"""A sample of the mutants is killed; `python -m tests.mutation` judges all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mechanical import mutants_of

ROOT = Path(__file__).parents[2]

SOURCE = '''
def window(now, edges, limit=1):
    """True and None here are prose, and 1 < 2 too."""
    oldest = now - limit if edges else None
    return [edge for edge in edges if oldest <= edge < now or not edge is now]


TEMPLATE = ("if {inner}:", "    {write}", "    {verdict} = {read} >= {edge}")
'''


@pytest.mark.storm
def test_mutants_by_hand_and_a_sample_of_the_mechanical_ones_are_killed() -> None:
    command = [sys.executable, "-m", "tests.mutation", "--every", "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 survived" in done.stdout


def test_each_comparison_constant_and_template_is_mutated_and_prose_is_not() -> None:
    changes = {(mutant.where, mutant.change) for mutant in mutants_of("sample.py", SOURCE, templates=True)}
    assert changes == {
        ("window", "1 -> 2"),
        ("window", "1 -> 0"),
        ("window", "- -> +"),
        ("window", "edges -> True"),
        ("window", "edges -> False"),
        ("window", "<= -> <"),
        ("window", "<= -> >"),
        ("window", "< -> <="),
        ("window", "< -> >="),
        ("window", "or -> and"),
        ("window", "not -> nothing"),
        ("window", "is -> is not"),
        ("window", "oldest <= edge < now or not edge is now -> True"),
        ("window", "oldest <= edge < now or not edge is now -> False"),
        ("TEMPLATE", "{write} -> {clear}"),
        ("TEMPLATE", "{write} -> pass"),
        ("TEMPLATE", ">= -> >"),
        ("TEMPLATE", ">= -> <"),
    }


def test_every_mutant_differs_from_its_source_in_that_one_place() -> None:
    mutants = mutants_of("sample.py", SOURCE, templates=True)
    assert len({mutant.applied(SOURCE) for mutant in mutants}) == len(mutants)
    assert all(mutant.applied(SOURCE) != SOURCE for mutant in mutants)
