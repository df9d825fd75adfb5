"""Decides which tests run, with how many examples, and from which seed."""

import asyncio
import contextlib
import gc
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

from snapshots import files
from snapshots.data_folder import mounts
from tests.skipping_clock import SkippingLoop
from tests.waiting_clock import WaitingLoop

# Containers often set it. Then each process would compile the product and rewrite all tests anew.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

for name, count in {"quick": 3, "ci": 6, "deep": 1_000}.items():
    hypothesis.settings.register_profile(
        name,
        max_examples=count,
        deadline=None,
        derandomize=False,
        # The machine may be busy.
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
# Tests read the profile while they are imported, which is later.
hypothesis.settings.load_profile(os.environ.get("RULE_DETECTOR_PROFILE", "quick"))

SEED = int(os.environ.get("RULE_DETECTOR_SEED") or random.SystemRandom().randrange(2**32))
# All processes of pytest-xdist use the same seed.
os.environ["RULE_DETECTOR_SEED"] = str(SEED)
ON_REQUEST = ("ray", "storm", "long")
LEFT_OUT = (*ON_REQUEST, "slow")
"""The marks of tests that a plain `pytest` leaves out."""
SLOW_S_MAX: Final = 600
"""The time limit of such tests; others have the `timeout` of pyproject.toml."""
TEARDOWN_S_MAX: Final = 60
"""The time limit of the teardown of a failed test, without `--timeout`."""
EXAMPLE = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def seed() -> int:
    """Return the seed of this run, for tests that draw without hypothesis."""
    return SEED


@pytest.fixture(scope="session")
def scaled() -> Callable[[int], int]:
    """Scale a number of examples for a profile of 100 to the profile of this run."""
    return lambda count: max(1, count * hypothesis.settings.default.max_examples // 100)


DRAWN_MAX: Final = 100_000


@pytest.fixture
def examples(
    request: pytest.FixtureRequest, seed: int, scaled: Callable[[int], int]
) -> Callable[..., Iterator[random.Random]]:
    """Yield a random source for each example of a test. If the test fails, its report names the last one.

    Draws further examples until a condition is met, for tests that fail unless their examples meet it.
    """

    def drawn(
        count: int, *names: object, until: Callable[[], object] = lambda: True
    ) -> Iterator[random.Random]:
        tries = scaled(count)
        request.node.user_properties.append(("examples", tries))
        for number in range(DRAWN_MAX):
            if number >= tries and until():
                return
            request.node.stash[EXAMPLE] = " ".join(map(str, (seed, *names, number)))
            yield random.Random(request.node.stash[EXAMPLE])

    return drawn


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    skips = item.get_closest_marker("skipping_clock") is not None
    return {"loop": SkippingLoop if skips else WaitingLoop}


AGAIN_S: Final = 5.0
"""The interval at which the alarm of a hanging test is repeated."""
FAILED = pytest.StashKey[bool]()
"""Whether a test has failed. From then on, pytest-timeout no longer limits it."""


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer() -> Iterator[None]:
    """Repeat the alarm that ends a hanging test. A task in the background may be what the first one ends."""
    is_set = yield
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    if left_s:
        signal.setitimer(signal.ITIMER_REAL, left_s, AGAIN_S)
    return is_set


@contextlib.contextmanager
def _teardown_ends(item: pytest.Item) -> Iterator[None]:
    """Limit the teardown of a failed test. A loop waits for ever for a task whose step an alarm prevented."""
    if not item.stash.get(FAILED, False) or item.config.getoption("usepdb"):
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("its teardown hangs"))
    signal.setitimer(signal.ITIMER_REAL, item.config.getoption("timeout", None) or TEARDOWN_S_MAX, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    if report.failed and EXAMPLE in item.stash:
        report.sections.append(("the last example", f"random.Random({item.stash[EXAMPLE]!r})"))
    return report


COLLECTED_AFTER: Final = (100_000, 20, 50)
"""Thresholds of garbage collection. With Python's own, it would take a tenth of the time of all tests."""

UNHANDLED: Final = list[dict[str, Any]]()
"""Exceptions that event loops reported during a test, and nobody else."""


@pytest.fixture
def unhandled() -> list[dict[str, Any]]:
    """Yield the exceptions that fail a test at its end. The test may inspect and clear them."""
    return UNHANDLED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail a test if a callback or a task raised an exception that nobody handled: asyncio only logs it."""
    with _teardown_ends(item):
        yield
    # The product sets these for its own processes.
    gc.set_threshold(*COLLECTED_AFTER)
    if nextitem is None:
        gc.collect()
    told = [f"{context['message']}: {context['exception']!r}" for context in UNHANDLED]
    UNHANDLED.clear()
    if told:
        pytest.fail(f"unhandled in a loop: {told}", pytrace=False)


def _note_unhandled(loop: asyncio.BaseEventLoop, context: dict[str, Any]) -> None:
    if "exception" in context:
        UNHANDLED.append(context)
    _log_unhandled(loop, context)


_log_unhandled: Final = asyncio.BaseEventLoop.default_exception_handler


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the collected tests, so that garbage collection does not scan them in each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)


@pytest.fixture(autouse=True)
def _settings_stay() -> Iterator[None]:
    """Restore the environment's settings after each test, because later tests in the process read them."""

    def settings() -> dict[bytes, bytes]:
        # As bytes, and only the names, because this runs for every test.
        return {name: os.environb[name] for name in os.environb if name.startswith(b"RULE_DETECTOR_")}

    before = settings()
    yield
    assert settings() == before


@pytest.fixture(scope="module")
def unsynced() -> Iterator[None]:
    """Do not sync files. Tests of power loss simulate files, or have processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        patch.setattr(files, "_sync_data", os.fstat)
        yield


@pytest.fixture(scope="module")
def any_mount() -> Iterator[None]:
    """Keep data folders from reading the system's mounts, which takes a tenth of a small service's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mounts, "_TABLE", Path(os.devnull))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores, because tests of sockets and time-outs mostly wait."""
    return (os.cpu_count() or 1) + 1


MEMORY_DISK: Final = Path("/dev/shm")
MEMORY_DISK_BYTES_MIN: Final = 2**30


def pytest_configure(config: pytest.Config) -> None:
    if _is_fast(config) and _has_memory_disk():
        # Here, files would take half the time. Tests of power loss, kills and kinds of disks are marked.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_DISK))
    asyncio.BaseEventLoop.default_exception_handler = _note_unhandled
    if config.getoption("hypothesis_seed") is None:
        hypothesis.core.global_force_seed = SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed, the profile, and the number of examples of each property."""
    tried = dict[str, int]()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        counted = dict(getattr(report, "user_properties", ())).get("examples")
        if counted is None and hasattr(report, "_hypothesis_stats"):
            counted = sum(map(int, re.findall(r"(\d+) passing", report._hypothesis_stats)))
        if counted is not None:
            tried[report.nodeid] = counted
    if not tried:
        return
    given = terminalreporter.config.getoption("hypothesis_seed")
    profile = hypothesis.settings.get_current_profile_name()
    terminalreporter.section("properties")
    terminalreporter.line(f"RULE_DETECTOR_SEED={given or SEED} RULE_DETECTOR_PROFILE={profile}")
    if profile != "deep":
        terminalreporter.line(f"{sum(tried.values())} examples of {len(tried)} properties")
        return
    for nodeid, examples in sorted(tried.items()):
        terminalreporter.line(f"{examples:7d} examples  {nodeid}")


def _has_memory_disk() -> bool:
    if not MEMORY_DISK.is_dir():
        return False
    disk = os.statvfs(MEMORY_DISK)
    # Some tests run programs that they write.
    return disk.f_bavail * disk.f_frsize >= MEMORY_DISK_BYTES_MIN and not disk.f_flag & os.ST_NOEXEC


def _is_fast(config: pytest.Config) -> bool:
    """Return whether no marked test runs."""
    if given := config.option.markexpr:
        return all(f"not {mark}" in given for mark in ON_REQUEST)
    return not any(".py" in argument for argument in config.args)


def _check_marks(marked: Iterable[pytest.Item]) -> None:
    """Raise UsageError if a test has a mark that is not in its file, where `.ci/run` looks for it."""
    texts = {path: path.read_text("utf-8") for path in {item.path for item in marked}}
    for item in marked:
        for mark in item.iter_markers():
            if mark.name in ON_REQUEST and not re.search(rf"\b{mark.name}\b", texts[item.path]):
                raise pytest.UsageError(f"{item.nodeid} has the mark {mark.name}, which is not in its file")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `-m`, leave out marked tests, except those whose file or name is given.

    The longest tests come first, so that no process has one left when the others are done.
    """
    items.sort(
        key=lambda item: (item.path.name != "test_proof.py", item.get_closest_marker("run_last") is not None)
    )
    # The processes of xdist compare their lists of tests, whose objects have different addresses.
    if unstable := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"a test is named after an address in memory: {unstable[0]}")
    marked = {item for item in items if any(mark.name in ON_REQUEST for mark in item.iter_markers())}
    _check_marks(marked)
    # Tests that start processes, or try very much, may take longer than a hang is given.
    slow = items if hypothesis.settings.get_current_profile_name() == "deep" else marked
    for item in slow:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_S_MAX))
    if config.option.markexpr or not _is_fast(config):
        return
    left_out = {item for item in items if any(mark.name in LEFT_OUT for mark in item.iter_markers())}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
