"""How much a run tries of what is much alike."""

import os
import random
from collections.abc import Iterable
from typing import Final, TypeVar

import hypothesis

T = TypeVar("T")

WHOLE: Final = hypothesis.settings.get_current_profile_name() != "quick"
"""Whether this is a run that shall miss nothing, as that of `.ci/run`."""


def tried(alike: Iterable[T], always: int) -> list[T]:
    """Return all in a whole run; else so many of them, and one of the others, which the seed draws."""
    first, rest = (alike := list(alike))[:always], alike[always:]
    return alike if WHOLE else [*first, random.Random(os.environ["RULE_DETECTOR_SEED"]).choice(rest)]
