"""A system call that fails or kills loses nothing that was answered; and all faults did fire."""

import pytest

from tests.crash.actors.system_call_faults import CALLS, MORE_CALLS, faults, strace_can_trace

REASON = strace_can_trace()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def check(data, seed, calls, record_property, *, every):
    came = faults(data, seed, calls, every=every)
    record_property("examples", came.fired.total())
    for line in came.lines():
        print(line)
    assert not came.silent
    assert {name.split()[0] for name in came.fired} == set(calls)


@pytest.mark.storm
def test_no_call_that_fails_or_kills_costs_anything(tmp_path, seed, record_property):
    check(tmp_path / "data", seed, CALLS, record_property, every=False)


@pytest.mark.storm
@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_call_costs_anything_in_whichever_way_it_fails(tmp_path, seed, record_property):
    check(tmp_path / "data", seed, CALLS + MORE_CALLS, record_property, every=True)
