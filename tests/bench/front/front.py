"""The service over HTTP, started and called as in production; its journal is synced before each answer.

A single evaluation is measured beside a bare application under the same server, which reads the body and
answers a constant in the fast way in which the service itself answers; the delay of one caller beside a bare
call of Ray. Both take turns within one run. Batches are measured beside decoding their bodies in one process.
Before anything is timed, answers are held to what a detector in the measuring process says.
"""

from functools import partial

from tests.bench.front.calls import BATCH_EVENTS, CONNECTIONS, IN_FLIGHT
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.rows import Part, Row, at_least, at_most
from tests.bench.sets.bodies import FORMS

CASE = "front"
CALLS = "tests.bench.front.calls"
BATCH_EVENTS_PER_S_MIN = 100_000
MACHINE_TOLERANCE = 0.5
"""How much a ratio may differ from the recorded one, since three processes share two cores."""


def parts(effort: Effort) -> list[Part]:
    """Return a part for each service that is started."""
    measures = {"single": measure_single, "batches": measure_batches}
    return [Part(CASE, partial(measure, effort), name) for name, measure in measures.items()]


def measure_single(effort: Effort) -> list[Row]:
    """Return the rate of single evaluations, and the delay of one caller."""
    found = call(
        CALLS,
        "single",
        rounds=effort.front_rounds,
        seconds=effort.front_round_s,
        calls=effort.front_calls,
    )
    rates = [
        Row(
            case=CASE,
            name=f"evaluations on {connections} connections",
            unit="/s",
            ours=found[f"ours {connections}"],
            worst=found[f"worst {connections}"],
            floor=found[f"bare {connections}"],
            ratio=1 / found[f"share {connections}"],
            over="a bare application in the same fast way",
            tolerance=MACHINE_TOLERANCE,
            remark=(
                f"CPU a request: front end {found[f'front us {connections}']:.0f} µs, "
                f"actor {found[f'actor us {connections}']:.0f}, bare {found[f'bare us {connections}']:.0f}"
            ),
        )
        for connections in CONNECTIONS
    ]
    ratio = found["ours p50"] / found["ray p50"]
    delay = Row(
        case=CASE,
        name="evaluation by one caller, median",
        unit="ms",
        ours=found["ours p50"],
        worst=found["ours worst"],
        floor=found["ray p50"],
        ratio=ratio,
        over="a bare call of Ray",
        target=at_most(1, ratio, "no more than a bare call of Ray"),
        tolerance=MACHINE_TOLERANCE,
        remark=(
            f"p99 {found['ours p99']:.2f}, of the bare call {found['ray p99']:.2f}; "
            f"bare application {found['bare p50']:.2f}, p99 {found['bare p99']:.2f}"
        ),
    )
    return [*rates, delay]


def measure_batches(effort: Effort) -> list[Row]:
    """Return the rate of events in batches of each form."""
    # To make the batches takes longer than to have them evaluated.
    found = call(CALLS, "batches", rounds=(effort.front_rounds + 1) // 2, seconds=effort.front_round_s)
    return [
        Row(
            case=CASE,
            name=f"batches of {BATCH_EVENTS} as {form.name}, {IN_FLIGHT} connections",
            unit="events/s",
            ours=found[f"{form.name} rate"],
            worst=found[f"{form.name} worst"],
            floor=found[f"{form.name} floor"],
            ratio=1 / found[f"{form.name} share"],
            over="decoding alone, in one process",
            target=at_least(BATCH_EVENTS_PER_S_MIN, found[f"{form.name} rate"], "at least 100000 events/s"),
            tolerance=MACHINE_TOLERANCE,
            remark=(
                f"CPU an event: front end {found[f'{form.name} front us']:.1f} µs, "
                f"actor {found[f'{form.name} actor us']:.1f}"
            ),
        )
        for form in FORMS
    ]
