"""How many of many similar cases a run tries."""

import os
import random
from collections.abc import Iterable
from typing import Final, TypeVar

import hypothesis

T = TypeVar("T")

WHOLE: Final = hypothesis.settings.get_current_profile_name() != "quick"
"""Return whether this run must not leave anything out, like that of `.ci/run`."""


def tried(alike: Iterable[T], always: int) -> list[T]:
    """Return all cases in a complete run; otherwise the first few, and another one chosen by the seed."""
    first, rest = (alike := list(alike))[:always], alike[always:]
    return alike if WHOLE else [*first, random.Random(os.environ["RULE_DETECTOR_SEED"]).choice(rest)]
