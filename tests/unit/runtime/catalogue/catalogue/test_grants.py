"""What tokens may do is stored with them, and no program that knows no bounds takes them for full."""

import msgspec
import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue import catalogue_state
from engine.runtime.catalogue.catalogue_state import (
    CatalogueState,
    DetectorCreated,
    TokenAdded,
    encode_state,
    record_version,
    recovered_state,
    state_version,
)
from engine.runtime.catalogue.change_log import ChangeLog
from engine.runtime.contract.tokens import FULL, Grant, KnownToken, StoredToken
from snapshots.errors import NewerFormat
from snapshots.inspection import read_only
from tests.unit.runtime.catalogue.catalogue.directories import A, B, C, D

BOUNDS = [
    Grant(scopes=frozenset({"read"})),
    Grant(detectors=frozenset()),
    Grant(detectors=frozenset({D})),
    Grant(expires_at_ms=5),
    Grant(events_per_s=0.5),
    Grant(frozenset({"read", "admin"}), frozenset({C, D}), 7, 100),
]


@pytest.mark.parametrize("saved", [False, True])
def test_a_token_may_do_after_a_restart_what_it_was_given(opened, saved):
    directory = opened()
    for number, grant in enumerate([FULL, *BOUNDS]):
        directory.add_token(f"{number:032x}", StoredToken(b"%d" % number, "hint", "name", 5, grant))
    if saved:
        directory._save()
    found = opened()
    assert [token.grant for token in found.tokens()] == [FULL, *BOUNDS]
    known = found.changes(0, 0).tokens.whole
    assert known[b"6"] == KnownToken(f"{6:032x}", "name", BOUNDS[-1])


@pytest.mark.parametrize("way", ["create", "fork"])
def test_a_detector_is_added_to_what_its_creator_is_for(opened, tmp_path, way):
    directory = opened()
    directory.create_detectors({D: "there"})
    for token_id, grant in ((A, Grant(detectors=frozenset({D}))), (B, FULL)):
        directory.add_token(token_id, StoredToken(token_id.encode(), "hint", grant=grant))
    seen = directory.changes(0, 0)
    for number, owner in enumerate((A, B, A)):
        detector_id = f"{number:032x}"
        if way == "create":
            directory.create_detectors({detector_id: "new"}, {detector_id: owner})
        else:
            directory.create_detectors({C: "for its folder"})
            (tmp_path / "detectors" / C).rename(tmp_path / "detectors" / detector_id)
            directory.enter_fork(detector_id, "new", owner)
            directory.delete_detector(C)
    own = frozenset({D, f"{0:032x}", f"{2:032x}"})
    assert [token.grant.detectors for token in directory.tokens()] == [own, None]
    news = directory.changes(seen.tokens.version, seen.detectors.version)
    assert dict(news.tokens.changes)[A.encode()].grant.detectors == own
    assert [token.grant.detectors for token in opened().tokens()] == [own, None]


def test_detectors_that_are_gone_leave_room(opened, monkeypatch):
    monkeypatch.setattr(catalogue_state, "TOKEN_DETECTORS_MAX", 2)
    directory = opened()
    directory.add_token(A, StoredToken(b"a", "hint", grant=Grant(detectors=frozenset())))
    found = directory.create_detectors({one: one for one in (B, C, D)}, dict.fromkeys((B, C, D), A))
    assert [version is None for version in found] == [False, False, True]
    with pytest.raises(Refusal):
        directory.enter_fork(D, "fork", A)
    assert directory.create_detectors({D: "another's"}) != [None]
    directory.delete_detector(B)
    assert directory.create_detectors({"e" * 32: "e"}, {"e" * 32: A}) != [None]
    [token] = directory.tokens()
    assert token.grant.detectors == {C, "e" * 32}


@pytest.mark.parametrize("grant", BOUNDS, ids=range(len(BOUNDS)))
def test_what_has_bounds_is_written_in_a_version_that_earlier_programs_refuse(grant):
    bounded = StoredToken(b"digest", "hint", grant=grant)
    assert state_version(CatalogueState(tokens={A: StoredToken(b"digest", "hint")})) == 2
    assert state_version(CatalogueState(tokens={B: StoredToken(b"other", "hint"), A: bounded})) == 3
    assert state_version(CatalogueState(log=ChangeLog(last=1))) == 3
    assert record_version(TokenAdded(A, b"digest", "hint", grant=grant)) == 2


def test_what_has_none_is_written_as_earlier_programs_read_it():
    for change in (TokenAdded(A, b"digest", "hint", "name", 5), DetectorCreated(A, "name")):
        assert record_version(change) == 1
    assert record_version(DetectorCreated(A, "name", B)) == 2


@pytest.mark.parametrize("saved", [False, True])
def test_an_earlier_program_refuses_a_folder_with_bounded_tokens(opened, tmp_path, monkeypatch, saved):
    directory = opened()
    directory.add_token(A, StoredToken(b"a", "hint", grant=BOUNDS[0]))
    if saved:
        directory._save()
    directory.close()
    recovered_state(read_only(tmp_path / "directory"))
    monkeypatch.setattr(catalogue_state, "STATE_VERSION", 2)
    monkeypatch.setattr(catalogue_state, "RECORD_VERSION", 1)
    with pytest.raises(NewerFormat):
        recovered_state(read_only(tmp_path / "directory"))


def test_a_state_of_version_2_is_read(opened):
    old = {
        "tokens": {A: {"digest": b"a", "hint": "hint", "name": "shop", "created_at_ms": 5}},
        "detectors": {B: "b"},
        "struck": [],
        "tokens_used": {},
    }
    state = catalogue_state.decode_state(msgspec.msgpack.encode(old))
    assert state.tokens == {A: StoredToken(b"a", "hint", "shop", 5)}
    assert state_version(state) == 2
    assert catalogue_state.decode_state(encode_state(state)) == state
