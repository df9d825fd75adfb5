"""What a front end lets a token do, and how many events a second."""

import pytest

from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.tokens import Grant, KnownToken, digest_of
from engine.runtime.front_end.permits import Debts, Permit, Rate
from tests.local_runtime.service import front_end, local_service, until


def admitted(rate: Rate, seconds: int, per_s: int, events: int = 1) -> int:
    """How many events are admitted of those that are sent evenly, without a retry."""
    times = (number / per_s for number in range(seconds * per_s))
    return sum(events for now_s in times if not rate.take(events, now_s))


def told(rate: Rate, debts: Debts, now_s: float) -> None:
    """Let a front end tell the directory what it has spent, and hear what is owed in all."""
    reported = rate.spent
    rate.others(reported, *debts.add({"t": reported / rate.per_s}, now_s)["t"])


@pytest.mark.parametrize("per_s", [0.5, 7, 100])
@pytest.mark.parametrize("sent_per_s", [5, 200])
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
    here, there, debts = Rate(10, 0), Rate(10, 0), Debts()
    spent = 0
    for tick in range(1, 201):
        now_s = tick / 10
        for rate in (here, there):
            spent += sum(not rate.take(1, now_s) for _ in range(5))
        if tick % 5 == 0:
            for rate in (here, there):
                told(rate, debts, now_s)
    # Twice the bucket at the beginning, and what the two did not know of each other for half a second.
    assert 10 * 20 * 0.9 <= spent <= 10 * 20 + 2 * 10 + 2 * 5


def test_what_was_spent_elsewhere_before_the_first_use_counts() -> None:
    here, debts = Rate(10, 0), Debts()
    assert not here.take(1_000, 0)
    told(here, debts, 0.5)
    there = Rate(10, 60)
    told(there, debts, 60)
    # What was told half a second late is paid for half a second later.
    assert there.take(1, 60) == pytest.approx(100 + 0.5 - 60 - 0.9)
    # By then it is paid for.
    late = Rate(10, 200)
    told(late, debts, 200)
    assert not late.take(10, 200)


def test_a_directory_that_begins_to_count_anew_gives_and_takes_nothing() -> None:
    here, debts = Rate(10, 0), Debts()
    told(here, debts, 0)
    assert not here.take(100, 0)
    told(here, debts, 0)
    told(here, Debts(), 0)
    assert here.take(1, 5) == pytest.approx(4.1)


def test_who_spends_at_one_front_end_alone_has_a_second_at_once_each_second() -> None:
    rate, debts = Rate(10, 0), Debts()
    for tick in range(200):
        now_s = tick / 10
        if tick % 10 == 0:
            assert not rate.take(10, now_s)
        if tick % 5 == 4:
            told(rate, debts, now_s)


def test_what_is_spent_while_the_directory_answers_counts_once() -> None:
    rate, debts = Rate(10, 0), Debts()
    assert not rate.take(4, 0)
    reported = rate.spent
    known = debts.add({"t": reported / 10}, 0)["t"]
    assert not rate.take(3, 0)
    rate.others(reported, *known)
    assert rate.spent == 3
    assert not rate.take(3, 0)
    assert rate.take(1, 0) == pytest.approx(0.1)


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
        assert one is not None
        assert one.rate is not None
        one.spend(400)
        await until(lambda: not one.rate.spent)
        # The other front end has not seen the token before.
        two = await apart.backend.permit_asked(digest)
        assert two is not None

        def is_known() -> bool:
            try:
                two.spend(18)
            except DetectorUnavailable as error:
                return error.code == 1401 and error.retry_after_s > 5
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
