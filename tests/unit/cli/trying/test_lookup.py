import pytest

from api.cli.lookup import add_rules, find_detector, find_rule
from api.cli.rule_files.members import RuleMembers
from api.cli.rule_files.reading import conditions_of
from rule_detector_client import Detector, ServiceError
from tests.unit.cli.fake_service import FakeService


@pytest.fixture
def detector(service: FakeService) -> str:
    return service.create("shop")


def add(service: FakeService, detector: str, text: str) -> None:
    with service.client() as client:
        add_rules(client, detector, conditions_of(text, "r.yaml"))


def texts(service: FakeService, detector: str) -> list[str]:
    return [rule.name for rule in service.detectors[detector].rules()]


def test_rules_that_are_there_are_not_made_again(service: FakeService, detector: str) -> None:
    for _ in range(2):
        add(service, detector, "one: a == 1\ntwo: b  ==  2\n")
        assert texts(service, detector) == ["one", "two"]


def test_a_rule_of_the_same_name_and_another_condition_is_a_conflict_and_adds_nothing(
    service: FakeService, detector: str
) -> None:
    service.detectors[detector].add_rule("one", "a == 1")
    with pytest.raises(ServiceError, match="two rules `one` with different conditions"):
        add(service, detector, "new: c == 3\none: a == 2\n")
    assert texts(service, detector) == ["one"]


def test_rules_are_added_all_or_none(service: FakeService, detector: str) -> None:
    rules = conditions_of("a: x == 1\nb: x == 2\nc: x == 3\n", "r.yaml")
    rules[2] = rules[2]._replace(members=RuleMembers("x =="))
    with pytest.raises(ServiceError, match="1300") as error, service.client() as client:
        add_rules(client, detector, rules)
    assert error.value.code == 1300
    assert texts(service, detector) == []


DRAFTED = """
draft: {condition: a == 2, draftOf: live}
live: {condition: a == 1, notify: true}
quiet: {condition: a == 3, shadow: true}
"""


def test_shadow_rules_and_drafts_are_made_in_their_order(service: FakeService, detector: str) -> None:
    for _ in range(2):
        add(service, detector, DRAFTED)
        draft, live, quiet = service.detectors[detector].rules()
        assert (live.name, live.notify, live.shadow) == ("live", True, False)
        assert (quiet.name, quiet.shadow, quiet.draft_of) == ("quiet", True, None)
        assert (draft.name, draft.shadow, draft.draft_of) == ("draft", True, live.id)
    add(service, detector, "live: a == 1")
    with pytest.raises(ServiceError, match="`quiet` with another `shadow`"):
        add(service, detector, "quiet: {condition: a == 3, shadow: false}")
    with pytest.raises(ServiceError, match="`draft` with another `draftOf`"):
        add(service, detector, "draft: {condition: a == 2, draftOf: quiet}")
    service.detectors[detector].remove_rule(draft.id)
    add(service, detector, "other draft: {condition: a == 2, draftOf: live}")
    assert service.detectors[detector].rules()[-1].draft_of == live.id


def test_a_draft_of_nothing_adds_nothing(service: FakeService, detector: str) -> None:
    with pytest.raises(ServiceError, match="`draft`: draftOf: no rule of the file or the detector is named"):
        add(service, detector, "one: a == 1\ndraft: {condition: a == 2, draftOf: two}")
    assert texts(service, detector) == []


def test_a_detector_is_created_only_if_asked_and_only_once(service: FakeService) -> None:
    with service.client() as client:
        with pytest.raises(ServiceError, match=r"`shop`: there is none yet; .* makes one"):
            find_detector(client, "shop")
        made = find_detector(client, "shop", create=True)
        assert made == find_detector(client, "shop", create=True) == Detector(made.id, "shop")
        assert find_detector(client, made.id, create=True).name == "shop"
        with pytest.raises(ServiceError, match=r"`other`: there are `shop`; .* makes one"):
            find_detector(client, "other")


def test_a_detector_and_a_rule_are_found_by_id_or_by_a_name_of_their_own(service: FakeService) -> None:
    one, two, three = (service.create(name) for name in ("x", "y", "y"))
    rule = service.detectors[one].add_rule("r", "a == 1")
    with service.client() as client:
        assert find_detector(client, two).name == "y"
        assert find_detector(client, "x").id == one
        with pytest.raises(ServiceError, match=rf"2 detectors are named `y`.*{two}, {three}"):
            find_detector(client, "y")
        assert find_rule(client, one, "r") == find_rule(client, one, rule)
        with pytest.raises(ServiceError, match="no rule has the id or name `s`: did you mean `r`"):
            find_rule(client, one, "s")
        with pytest.raises(ServiceError, match="`nothing of it`: there are `r`"):
            find_rule(client, one, "nothing of it")
        for number in range(20):
            service.detectors[one].add_rule(f"rule {number}", "a == 1")
        with pytest.raises(ServiceError, match=r"`rule 7`, `rule 8`, …$"):
            find_rule(client, one, "nothing of it")
