"""The requirements with hashes are those of constraints.txt, and all that the service asks for."""

import re

from tests.pins import CONSTRAINTS, REQUIREMENTS, pinned, plain, required


def test_each_version_is_that_of_the_constraints() -> None:
    found = re.findall(r"^([\w.-]+)==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE)
    constraints = {plain(name): version for name, version in found}
    assert {name: constraints.get(name) for name in pinned()} == pinned()


def test_each_package_that_is_asked_for_is_in_it_with_hashes_and_without_addresses() -> None:
    names = {plain(re.split(r"[<>=\[; ]", requirement)[0]) for requirement in required()}
    assert names <= pinned().keys()
    text = REQUIREMENTS.read_text()
    assert "//" not in text
    entries = re.split(r"\n(?! )", text.partition("constraints.txt.\n")[2].strip())
    assert len(entries) == len(pinned())
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry
