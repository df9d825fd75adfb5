"""A sample of the mutants is killed; `python -m tests.mutation` judges all of them."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.mutation.__main__ import accepted, changed_lines, mechanical, too_many
from tests.mutation.judging import PACKAGES
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.reaching import Reach
from tests.mutation.rooms import ROOMS, Room

ROOT = Path(__file__).parents[2]

SOURCE = '''
cost_ns = 80

def window(now, edges, limit=1):
    """True and None here are prose, and 1 < 2 too."""
    oldest = now - limit if edges else None
    return [edge for edge in edges if oldest <= edge < now or not edge is now]


if TYPE_CHECKING:
    import typing
TEMPLATE = ("if {inner}:", "    {verdict} = {read} >= {edge}")
UPDATE = Case("left", Action.WRITE)
'''


@pytest.mark.storm
def test_a_sample_of_the_mutants_is_killed() -> None:
    sample = ("--room", "settings", "--every", "60")
    command = [sys.executable, "-m", "tests.mutation", *sample]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 survived" in done.stdout


@pytest.mark.slow
def test_a_replayed_engine_is_imported_anew_and_its_operators_enter_the_language_again() -> None:
    forgotten = "import engine; from tests.mutation import judging; judging._forget_what_is_replayed()"
    used = "import engine; engine.Detector().add_rule('r', 'once a == 1')"
    subprocess.run([sys.executable, "-c", f"{forgotten}; {used}"], cwd=ROOT, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
def test_every_room_has_mutants_and_tests(room: Room) -> None:
    assert len(mechanical(room, ROOT)) > 50
    assert room.test_files()


def test_survivors_are_allowed_only_of_files_that_are_mutated() -> None:
    in_rooms = {f"{room.folder}/{file}" for room in ROOMS.values() for file in room.sources(ROOT)}
    assert accepted().keys() <= in_rooms
    assert min(accepted().values()) > 0


def test_more_survivors_of_a_file_than_are_allowed_are_an_error() -> None:
    survived = {"listed.py": 3, "full.py": 2, "clean.py": 1}
    assert [each.split(":")[0] for each in too_many(survived, {"listed.py": 3, "full.py": 1})] == [
        "full.py",
        "clean.py",
    ]


def test_each_file_with_something_to_break_is_in_a_room_or_listed_with_a_reason() -> None:
    in_rooms = {f"{room.folder}/{file}" for room in ROOMS.values() for file in room.sources(ROOT)}
    documents = tomllib.loads((Path(__file__).parent / "not_mutated.toml").read_text("utf-8"))["files"]
    assert all(document["reason"] for document in documents)
    listed_for = dict.fromkeys((path for document in documents for path in document["paths"]), 0)
    forgotten = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if file in in_rooms:
                continue
            found = [listed for listed in listed_for if file == listed or file.startswith(f"{listed}/")]
            if found:
                listed_for[found[0]] += 1
            elif mutants_of(file, path.read_text("utf-8"), templates=False):
                forgotten.append(file)
    assert forgotten == []
    assert [listed for listed, files in listed_for.items() if not files] == []


def test_changed_lines_are_those_that_differ_from_a_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments], cwd=tmp_path, check=True
        )

    (tmp_path / "room").mkdir()
    file = tmp_path / "room" / "file.py"
    file.write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    (tmp_path / "other.py").write_text("a = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "m")
    file.write_text("a = 1\nb = 20\nd = 4\ne = 5\nf = 6\n")
    (tmp_path / "other.py").write_text("a = 10\n")
    assert changed_lines("HEAD", "room", root=tmp_path) == {"file.py": {2, 4, 5}}


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
        ("UPDATE", '"left" -> "right"'),
        ("UPDATE", "Action.WRITE -> Action.CLEAR"),
        ("UPDATE", "Action.WRITE -> Action.KEEP"),
        ("TEMPLATE", ">= -> >"),
        ("TEMPLATE", ">= -> <"),
    }


def test_every_mutant_differs_from_its_source_in_that_one_place() -> None:
    mutants = mutants_of("sample.py", SOURCE, templates=True)
    assert len({mutant.applied(SOURCE) for mutant in mutants}) == len(mutants)
    assert all(mutant.applied(SOURCE) != SOURCE for mutant in mutants)


def test_a_mutant_is_judged_by_the_tests_that_enter_its_function_and_outside_of_any_by_all() -> None:
    entered = {
        "slow": frozenset({("file.py", "f"), ("file.py", "g")}),
        "quick": frozenset({("file.py", "f"), ("other.py", "g")}),
    }
    reach = Reach(entered, {"slow": 2.0, "quick": 1.0})
    judges = {
        where: reach.tests(Mutant("file.py", 0, "1", "2", where, "line")) for where in ("f", "g", "CONSTANT")
    }
    assert judges == {"f": ["quick", "slow"], "g": ["slow"], "CONSTANT": ["quick", "slow"]}
