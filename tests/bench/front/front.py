"""The service over HTTP, started and asked as by those who use it; its journal is synced before each answer.

A single evaluation is measured beside a bare application under the same server, which reads the body and
answers a constant, in the fast way in which the service itself answers and, for orientation, as any
application does it under that server; the delay of one caller beside a bare call of Ray. All take turns
within one run.
Batches are measured beside their evaluation in one process, without journal, Ray and HTTP.
"""

from functools import partial

from tests.bench.front.calls import BATCH_EVENTS, CONNECTIONS, FORMS, FRONT_ENDS, ONE_STREAM
from tests.bench.front.disturbance import ACTIVE
from tests.bench.front.fairness import FLOOD_CONNECTIONS, HEAVY_EVENTS, STEADY_PER_S, WAITING_MAX
from tests.bench.front.keyed import KEYED_CONNECTIONS
from tests.bench.front.misbehaving import EACH_PER_S, TRICKLES
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.rows import Part, Row, Target, at_least, at_most

CASE = "front"
BARE_SHARE_MIN = 0.8
BATCH_EVENTS_PER_S_MIN = 100_000
KEYED_PER_S_MIN = 2_000
"""As many as `--max-answers-kept-bytes` has room for by default."""
KEPT_SHARE_MIN = 0.8
IDLE_SHARE_MIN = 0.9
P99_MS_MAX = 100
HEAVY_P99_MS_MAX = 1_000
"""What is promised whatever one caller sends."""
WAITING_MB = 67.108864
"""What `--max-waiting-bytes` comes to by default."""
MACHINE_TOLERANCE = 0.5
"""How much a ratio may differ from the recorded one: three processes share two cores."""


def parts(effort: Effort) -> list[Part]:
    """Give a part for each service that is started; a quick run has no time for the last two."""
    flood = partial(measure_fairness, effort)
    usual = [
        Part(CASE, partial(measure_single, effort), "single"),
        Part(CASE, partial(measure_several, effort), "several"),
        Part(CASE, partial(measure_batches, effort), "batches"),
        Part(CASE, partial(measure_keyed, effort), "keyed"),
        Part(CASE, partial(flood, heavy=False), "fairness"),
        Part(CASE, partial(measure_idle, effort), "idle"),
    ]
    long = [
        Part(CASE, measure_misbehaving, "misbehaving"),
        Part(CASE, partial(flood, heavy=True), "heavy flood"),
    ]
    return [*usual, *long] if effort.front_long else usual


def measure_single(effort: Effort) -> list[Row]:
    """Give the rate of single evaluations, and the delay of one caller."""
    found = call(
        "tests.bench.front.calls",
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
            floor=found[f"short {connections}"],
            ratio=1 / found[f"share short {connections}"],
            over="a bare application in the same fast way",
            target=at_least(
                BARE_SHARE_MIN,
                found[f"share short {connections}"],
                f"at least 80 % of it (is {100 * found[f'share short {connections}']:.0f} %)",
            ),
            tolerance=MACHINE_TOLERANCE,
            remark=(
                f"CPU a request: front end {found[f'ours us {connections}']:.0f} µs, "
                f"actor {found[f'actor us {connections}']:.0f}, bare {found[f'bare us {connections}']:.0f}, "
                f"caller {found[f'own us {connections}']:.0f}; "
                f"waited for a processor: front end {100 * found[f'front waited {connections}']:.0f} %, "
                f"actor {100 * found[f'actor waited {connections}']:.0f} %; "
                f"{100 * found[f'late {connections}']:.1f} % overtook another; bare in the server's own way "
                f"{found[f'bare {connections}']:.0f}/s, of which this is "
                f"{100 * found[f'share bare {connections}']:.0f} %"
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


def measure_several(effort: Effort) -> list[Row]:
    """Give what a request costs the process that starts the front ends, beside what it costs one of them."""
    found = call(
        "tests.bench.front.calls", "several", rounds=effort.front_rounds, seconds=effort.front_round_s
    )
    ratio = found["main"] / found["front"]
    return [
        Row(
            case=CASE,
            name=f"CPU of an evaluation in the process that starts {FRONT_ENDS} front ends",
            unit="µs",
            ours=found["main"],
            worst=found["worst"],
            floor=found["front"],
            ratio=ratio,
            over="that in its front end",
            tolerance=MACHINE_TOLERANCE,
            remark=f"{CONNECTIONS[-1]} connections, {found['per s']:.0f}/s",
        )
    ]


def measure_batches(effort: Effort) -> list[Row]:
    """Give the rate of events in batches of each form."""
    found = call(
        "tests.bench.front.calls",
        "batches",
        # To make the batches takes longer than to have them evaluated.
        rounds=(effort.front_rounds + 1) // 2,
        seconds=effort.front_round_s,
    )
    return [
        Row(
            case=CASE,
            name=f"batches of {BATCH_EVENTS} as {form.name}, {form.sent}",
            unit="events/s",
            ours=found[form.name],
            worst=found[f"{form.name} worst"],
            floor=found[f"{form.name} floor"],
            ratio=1 / found[f"{form.name} share"],
            over="in one process, without journal, Ray and HTTP",
            # A stream goes on with the next lines when it knows what became of the last.
            target=None
            if form.name == ONE_STREAM
            else at_least(BATCH_EVENTS_PER_S_MIN, found[form.name], "at least 100000 events/s"),
            tolerance=MACHINE_TOLERANCE,
            remark=(
                f"CPU an event: front end {found[f'{form.name} front us']:.1f} µs, "
                f"actor {found[f'{form.name} actor us']:.1f}, caller {found[f'{form.name} own us']:.1f}"
            ),
        )
        for form in FORMS
    ]


def measure_keyed(effort: Effort) -> list[Row]:
    """Give the rate of evaluations with idempotency keys, half of them of late events."""
    found = call("tests.bench.front.keyed", "keyed", rounds=effort.front_rounds, seconds=effort.front_round_s)
    return [
        Row(
            case=CASE,
            name=f"evaluations with idempotency keys on {KEYED_CONNECTIONS} connections, half of them late",
            unit="/s",
            ours=found["keyed"],
            worst=found["worst"],
            floor=found["plain"],
            ratio=found["plain"] / found["keyed"],
            over="without keys and in time",
            target=at_least(KEYED_PER_S_MIN, found["keyed"], f"at least {KEYED_PER_S_MIN}/s"),
            tolerance=MACHINE_TOLERANCE,
        )
    ]


def measure_fairness(effort: Effort, *, heavy: bool) -> list[Row]:
    """Give what two detectors at a fixed rate keep of it beside a flood of a third, and what that costs."""
    found = call("tests.bench.front.fairness", "fairness", seconds=effort.front_flood_s, heavy=heavy)
    flood = (
        f"{FLOOD_CONNECTIONS} connections with batches of {HEAVY_EVENTS}"
        if heavy
        else f"{FLOOD_CONNECTIONS} connections, at most {WAITING_MAX} wait"
    )
    kept = found["beside per s"] / STEADY_PER_S
    # What is being read of each connection, twice while it is put together, beside all that may wait.
    bound_mb = WAITING_MB + 2 * FLOOD_CONNECTIONS * found["body MB"]
    taken_per_s, refused_per_s = found["flood 200/s"], found["flood 1401/s"]
    rate_target = Target(text="keep 80 %; 1401 is seen", met=kept >= KEPT_SHARE_MIN and refused_per_s > 0)
    p99_ms_max = HEAVY_P99_MS_MAX if heavy else P99_MS_MAX
    delay_target = at_most(p99_ms_max, found["beside p99"], f"under {p99_ms_max} ms")
    return [
        Row(
            case=CASE,
            name=f"rate of the slower of two detectors beside a flood of {flood}",
            unit=f"/s of {STEADY_PER_S}",
            ours=found["beside per s"],
            floor=found["alone per s"],
            ratio=found["alone per s"] / found["beside per s"],
            over="without the flood",
            target=None if heavy else rate_target,
            tolerance=MACHINE_TOLERANCE,
            remark=f"of the flood {taken_per_s:.0f}/s with 200, {refused_per_s:.0f}/s with 1401",
        ),
        Row(
            case=CASE,
            name=f"p99 of the two beside a flood of {flood}",
            unit="ms from when it was due",
            ours=found["beside p99"],
            floor=found["alone p99"],
            ratio=found["beside p99"] / p99_ms_max,
            over=f"{p99_ms_max} ms",
            target=delay_target,
            tolerance=2.0,
            remark=f"median {found['beside p50']:.1f}, without the flood {found['alone p50']:.1f}",
        ),
        Row(
            case=CASE,
            name=f"memory of the front end, grown by a flood of {flood}",
            unit="MB",
            ours=found["front grown MB"],
            floor=bound_mb,
            ratio=max(found["front grown MB"], 1.0) / bound_mb,
            over="what may wait, and twice what is being read",
            target=at_most(bound_mb, found["front grown MB"], f"at most {bound_mb:.0f} MB"),
            tolerance=2.0,
            remark=f"peak {found['front peak MB']:.0f}, of an actor {found['actor peak MB']:.0f}",
        ),
    ]


def measure_idle(effort: Effort) -> list[Row]:
    """Give what active callers keep of their rate beside many who connect and say nothing."""
    idle = effort.front_idle
    found = call("tests.bench.front.idle", "idle", connections=idle, rounds=effort.front_idle_rounds)
    kept = found["kept"]
    return [
        Row(
            case=CASE,
            name=f"evaluations on {ACTIVE} connections beside {idle} silent ones",
            unit="/s",
            ours=found["silent"],
            floor=found["alone"],
            ratio=1 / kept,
            over="without them",
            target=at_least(IDLE_SHARE_MIN, kept, f"at least 90 % (is {100 * kept:.0f} %)"),
            remark=(
                f"from their coming to their end {100 * found['kept of all']:.0f} %, while they come "
                f"{100 * found['kept coming']:.0f} %; CPU a request: front end {found['us alone']:.0f} µs, "
                f"beside them {found['us silent']:.0f}, from their coming to their end "
                f"{found['us of all']:.0f}; {found['bytes each'] / 1024:.1f} KiB each"
            ),
        ),
        Row(
            case=CASE,
            name=f"of {idle} silent connections are cut",
            unit="connections",
            ours=found["cut"],
            floor=idle,
            ratio=idle / found["cut"],
            over="all",
            target=Target(
                text="all, and no descriptor is left", met=found["cut"] == idle and found["left"] <= 0
            ),
            remark=f"{found['held']:.0f} were open at once; {found['left']:.0f} descriptors left",
        ),
    ]


def measure_misbehaving(trickles: int = TRICKLES) -> list[Row]:
    """Give what active callers keep of their rate beside those who trickle, vanish, or are refused."""
    found = call("tests.bench.front.misbehaving", "misbehaving", trickles=trickles)
    kept = found["beside"] / found["alone"]
    return [
        Row(
            case=CASE,
            name=(
                f"evaluations on {ACTIVE} connections beside {trickles} bodies that trickle, "
                f"{EACH_PER_S} callers a second who vanish amid a body, and {EACH_PER_S} refused amid chunks"
            ),
            unit="/s",
            ours=found["beside"],
            floor=found["alone"],
            ratio=1 / kept,
            over="without them",
            target=Target(
                text=f"at least 90 % (is {100 * kept:.0f} %); all who trickle are cut, no descriptor is left",
                met=kept >= IDLE_SHARE_MIN and found["cut"] == trickles and found["left"] <= 0,
            ),
            remark=(
                f"CPU a request: front end {found['us alone']:.0f} µs, beside them {found['us beside']:.0f}; "
                f"{found['cut']:.0f} cut, {found['vanished']:.0f} vanished, {found['refused']:.0f} refused, "
                f"{found['left']:.0f} descriptors left"
            ),
        )
    ]
