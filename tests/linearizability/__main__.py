"""Plays all scenarios on clusters of this machine, and checks the answers to their clients.

    python -m tests.linearizability [--seed N] [--rounds N] [SCENARIO…]

Without names, it plays all of them. Scenarios with partitions run in three network namespaces, and so does
the loss of the head, which needs Redis; the others run on raylets of the loopback interface. Fails if the
order of a detector's journal does not explain what was answered.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.linearizability.cluster import REDIS
from tests.linearizability.namespaces import WHY_NOT, possible
from tests.linearizability.proof import prove
from tests.linearizability.scenarios import EVERYWHERE, OF_NAMESPACES, PATIENT, WITH_REDIS, Scenario


def main() -> int:
    """Return 1 if a history was not explained."""
    groups = (
        (EVERYWHERE, {"partitions": False}),
        (OF_NAMESPACES, {"partitions": True}),
        (PATIENT, {"partitions": True, "patient": True}),
        (WITH_REDIS, {"partitions": True, "redis": True}),
    )
    known = {scenario.__name__ for scenarios, _ in groups for scenario in scenarios}
    names = ", ".join(sorted(known))
    parser = argparse.ArgumentParser(prog="python -m tests.linearizability")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--rounds", type=int, default=1, help="play the scenarios this many times")
    parser.add_argument("scenario", nargs="*", help=f"play only these: {names}")
    given = parser.parse_args()
    if unknown := set(given.scenario) - known:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {names}")
    violations = 0
    for number in range(given.rounds):
        for scenarios, options in groups:
            chosen = [one for one in scenarios if not given.scenario or one.__name__ in given.scenario]
            if chosen:
                violations += _played(chosen, f"{given.seed} {number}", **options)
    return 1 if violations else 0


def _played(
    scenarios: Sequence[Scenario], seed: str, *, partitions: bool, redis: bool = False, patient: bool = False
) -> int:
    why_not = WHY_NOT if partitions and not possible() else ""
    if redis and shutil.which(REDIS) is None:
        why_not = f"there is no {REDIS}"
    if why_not:
        print(f"left out, because {why_not}: {', '.join(one.__name__ for one in scenarios)}")
        return 0
    where = "network namespaces" if partitions else "raylets"
    print(f"\n== {where}{', Redis' if redis else ''}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        came = prove(
            Path(folder),
            scenarios,
            nodes=3,
            partitions=partitions,
            redis=redis,
            patient=patient,
            detectors=4,
            clients=6,
            pause_s=0.03,
            seed=seed,
        )
    print(*came.lines(), *came.violations, sep="\n", flush=True)
    unexpected = [outcome for outcome in came.outcomes if outcome.startswith("unexpected")]
    return len(came.violations) + len(unexpected)


if __name__ == "__main__":
    sys.exit(main())
