"""What a front end lets a token do, and how many events a second."""

import pytest

from engine.runtime.catalogue.tokens import digest_of
from engine.runtime.contract.catalogue_changes import Grant, KnownToken
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.permits import Permit, Rate
from tests.local_runtime.service import front_end, local_service, until


def admitted(rate: Rate, seconds: int, per_s: int, events: int = 1) -> int:
    """How many events are admitted of those that are sent evenly, without a retry."""
    times = (number / per_s for number in range(seconds * per_s))
    return sum(events for now_s in times if not rate.take(events, now_s))


@pytest.mark.parametrize("per_s", [0.5, 1, 7, 100])
@pytest.mark.parametrize("sent_per_s", [5, 1_000])
@pytest.mark.parametrize("events", [1, 40])
def test_in_the_long_run_a_token_has_its_rate_and_no_more(per_s: float, sent_per_s: int, events: int) -> None:
    found = admitted(Rate(per_s, 0), 600, sent_per_s, events)
    most = min(per_s, sent_per_s * events) * 600
    assert 0.95 * most - events <= found <= most + max(1, per_s) + events


def test_who_waits_as_long_as_said_is_admitted_and_not_before() -> None:
    rate, now_s = Rate(4, 0), 0.0
    for events in (1, 3, 8, 2, 1, 5):
        while wait_s := rate.take(events, now_s):
            assert rate.take(events, now_s + 0.9 * wait_s)
            now_s += wait_s
    # 4 were there at the beginning, and the last 4 of 20 could be taken as soon as the bucket was full.
    assert now_s == pytest.approx((20 - 4) / 4, abs=1.1)


def test_what_is_spent_elsewhere_counts() -> None:
    here, there = Rate(10, 0), Rate(10, 0)
    total, spent = 0, 0
    for tick in range(1, 201):
        now_s = tick / 10
        for rate in (here, there):
            spent += sum(not rate.take(1, now_s) for _ in range(5))
        if tick % 5 == 0:
            for rate in (here, there):
                reported = rate.spent
                total += reported
                rate.others(reported, total)
    # Twice the bucket at the beginning, and what the two did not know of each other for half a second.
    assert 10 * 20 * 0.9 <= spent <= 10 * 20 + 2 * 10 + 2 * 5


def test_a_directory_that_begins_to_count_anew_takes_nothing() -> None:
    rate = Rate(10, 0)
    rate.others(0, 1_000)
    rate.others(0, 3)
    assert not rate.take(10, 0)
    rate.others(10, 13)
    assert not rate.take(10, 1)


def test_a_grant_is_beyond_another_where_a_bound_is_larger_or_gone() -> None:
    less = {"scopes": frozenset({"read"}), "detectors": frozenset("a"), "expires_at_ms": 5, "events_per_s": 2}
    more = {
        "scopes": frozenset({"read", "write"}),
        "detectors": frozenset("ab"),
        "expires_at_ms": 6,
        "events_per_s": 3,
    }
    own = Grant(**less)
    assert own.beyond(own) is None
    assert Grant(**less | {"events_per_s": 1.5}).beyond(own) is None
    assert own.beyond(Grant()) is None
    for name, value in more.items():
        assert Grant(**less | {name: value}).beyond(own) == name
        assert Grant(**less | {name: None}).beyond(own) == name


async def test_a_rate_is_one_for_all_front_ends(tmp_path) -> None:
    async with local_service(tmp_path, poll_s=0.01) as service, front_end(service) as apart:
        minted = await service.backend.mint_token("slow", Grant(events_per_s=20))
        digest = digest_of(minted.token)
        one = service.backend.permit(digest)
        two = await apart.backend.permit_asked(digest)
        assert one is not None
        assert two is not None
        # Both have told that they have spent nothing yet.
        await until(lambda: None not in (one.rate._seen, two.rate._seen))
        one.spend(20)

        def is_known() -> bool:
            try:
                two.spend(18)
            except DetectorUnavailable as error:
                return error.code == 1401 and error.retry_after_s > 0
            return False

        await until(is_known)


async def test_another_front_end_knows_at_once_what_a_token_has_created(tmp_path) -> None:
    async with local_service(tmp_path) as service, front_end(service) as apart:
        minted = await service.backend.mint_token("maker", Grant(detectors=frozenset()))
        digest = digest_of(minted.token)
        permit = service.backend.permit(digest)
        theirs = await apart.backend.permit_asked(digest)
        assert permit is not None
        assert theirs is not None
        created = await service.backend.create_detector("mine", permit)
        assert permit.sees(created)
        await apart.backend.confirm(created)
        theirs = apart.backend.permit(digest)
        assert theirs is not None
        assert theirs.sees(created)


def test_a_permit_that_is_renewed_keeps_what_it_has_spent() -> None:
    permit = Permit(KnownToken("t", grant=Grant(detectors=frozenset("a"), events_per_s=1)))
    permit.spend(1)
    permit.made("b")
    permit.renew(KnownToken("t", grant=Grant(detectors=frozenset("ac"), events_per_s=1)))
    assert all(map(permit.sees, "abc"))
    with pytest.raises(DetectorUnavailable):
        permit.spend(1)
