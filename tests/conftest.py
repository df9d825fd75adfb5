"""How property tests are run: two profiles, and a seed that is printed so that any run can be repeated."""

import os
import random
import re

import hypothesis
import pytest

hypothesis.settings.register_profile("ci", max_examples=100, deadline=None, derandomize=False)
hypothesis.settings.register_profile("deep", max_examples=1_000, deadline=None, derandomize=False)
# Tests read the profile while they are imported, which is after this.
hypothesis.settings.load_profile(os.environ.get("RULE_DETECTOR_PROFILE", "ci"))

SEED = int(os.environ.get("RULE_DETECTOR_SEED") or random.SystemRandom().randrange(2**32))


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run, for tests that draw without hypothesis."""
    return SEED


@pytest.fixture(scope="session")
def effort() -> int:
    """How many times the usual number of examples this profile wants."""
    return hypothesis.settings.default.max_examples // 100


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed") is None:
        hypothesis.core.global_force_seed = SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say with which seed, and on how many examples, each property was tried."""
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
    for nodeid, examples in sorted(tried.items()):
        terminalreporter.line(f"{examples:7d} examples  {nodeid}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `slow`, unless it is asked for: by `-m slow`, or by its place."""
    asked = "slow" in config.option.markexpr or any("::" in argument for argument in config.args)
    slow = [] if asked else [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
