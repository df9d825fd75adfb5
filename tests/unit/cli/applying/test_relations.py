"""`apply` and `export` with relations that are stored with the detector."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService
from tests.unit.cli.rule_files.drawn import scalars, texts

FILE = """
detector: shop
relations:
  vip: [ada, bob]
  blocked: {file: blocked.txt}
rules:
  r: vip(user) and ip in network blocked
"""
tuples = st.integers(0, 3).flatmap(
    lambda arity: st.lists(st.lists(scalars, min_size=arity, max_size=arity), max_size=20)
)


def apply(folder: Path, text: str, *arguments: str) -> str:
    (folder / "r.yaml").write_text(text, "utf-8")
    return run(f"apply {folder}/r.yaml --yes", *arguments).output


def changes(service: FakeService) -> list[str]:
    found = [f"{method} {path.split('/')[-1]}" for method, path in service.requests if method != "GET"]
    service.requests.clear()
    return found


def test_relations_are_stored_before_the_rules_and_only_if_they_differ(
    service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "blocked.txt").write_text("10.0.0.0/8\n# ours\n172.16.0.0/12\n")
    first = apply(tmp_path, FILE)
    assert first.startswith(
        "detector `shop`, which is created\n"
        "  + relation vip: 2 tuples added, 0 removed\n"
        "  + relation blocked: 2 tuples added, 0 removed\n  + r\n"
    )
    assert first.endswith("`shop`: 1 rule added, 2 relations changed\n")
    assert changes(service) == ["POST detectors", "PUT vip", "PUT blocked", "PUT rules"]
    [stored] = service.relations.values()
    assert stored == {"vip": [["ada"], ["bob"]], "blocked": [["10.0.0.0/8"], ["172.16.0.0/12"]]}
    assert apply(tmp_path, FILE).endswith("There is nothing to change.\n")
    assert changes(service) == ["PUT rules"], "only the dry run"
    (tmp_path / "blocked.txt").write_text("10.0.0.0/8\n10.0.0.1\n10.0.0.2\n")
    assert "  ~ relation blocked: 2 tuples added, 1 removed\n" in apply(tmp_path, FILE)
    with_empty = apply(tmp_path, FILE.replace("  vip:", "  none: []\n  vip:"))
    assert "  + relation none: 0 tuples added, 0 removed\n" in with_empty
    assert changes(service) == ["PUT rules", "PUT blocked", "PUT rules", "PUT none"]
    assert len(stored["blocked"]) == 3


def test_only_relations_that_no_file_has_are_unknown(service: FakeService, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(FILE.replace("{file: blocked.txt}", "[10.0.0.0/8]"))
    created = run(f"apply {tmp_path}/r.yaml --yes")
    assert created.stderr == ""
    (tmp_path / "r.yaml").write_text(
        "detector: shop\nrelations: {vip: [ada], new: [x]}\nrules: {s: new(a) and old(b) and vip(c)}"
    )
    for option in ("--dry-run", "--yes"):
        told = run(f"apply {tmp_path}/r.yaml {option}").stderr.splitlines()
        assert [line.partition(", which is not known")[0] for line in told] == [
            "rule-detector: warning: 2003 `s`: `old(b)` looks in the relation `old`"
        ]


def test_relations_that_no_file_names_are_removed_if_that_is_asked(
    service: FakeService, tmp_path: Path
) -> None:
    text = FILE.replace("{file: blocked.txt}", "[10.0.0.0/8]")
    apply(tmp_path, text)
    without = text.replace("  vip: [ada, bob]\n", "").replace("vip(user) and ", "")
    [stored] = service.relations.values()
    assert "relation vip" not in apply(tmp_path, without)
    assert list(stored) == ["vip", "blocked"]
    assert "  - relation vip: 0 tuples added, 2 removed\n" in apply(tmp_path, without, "--prune")
    assert list(stored) == ["blocked"]


@given(st.dictionaries(texts.filter(bool), tuples, max_size=3))
@example({"a" * 250: [[n] for n in range(6)], "a" * 251: [[n] for n in range(7)]})
@pytest.mark.parametrize("to_files", [False, True])
def test_what_is_exported_is_applied_without_a_change(
    tmp_path_factory: pytest.TempPathFactory, to_files: bool, relations: dict[str, list[list[object]]]
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    service = FakeService()
    detector_id = service.create("shop")
    service.relations[detector_id] = relations
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.cli.applying.export.INLINE_MAX", 5)
        options = ("--relations", str(folder)) if to_files else ()
        exported = run("export shop", *options, service=service).stdout
    (folder / "shop.yaml").write_text(exported, "utf-8")
    ran = run(f"apply {folder}/shop.yaml --yes --prune", service=service)
    assert ran.output.endswith("There is nothing to change.\n")
    assert len([*folder.glob("*.ndjson")]) == sum(len(each) > 5 for each in relations.values() if to_files)
