"""Every setting takes effect: a request that it refuses shows this, or a test that is named here."""

import ast
import dataclasses
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.http.app import Application
from api.server.hypercorn_config import REFUSALS_S, server_config
from api.settings import Settings, settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.service import local_service

ROOT = Path(__file__).parents[3]

Act = Callable[[Caller, str], Awaitable[set[int]]]
"""Sends a request to a detector, and gives the codes of all errors and messages in the reply."""


def codes_in(envelope: Any) -> set[int]:
    found = {entry["code"] for entry in [*envelope["errors"], *envelope["messages"]]}
    results = envelope["result"].get("results", []) if isinstance(envelope["result"], dict) else []
    for result in results:
        found |= {entry["code"] for entry in [*result.get("errors", []), *result.get("messages", [])]}
    return found


def event(at_ms: float = 0, **fields: object) -> dict[str, object]:
    return {"fields": fields, "timestamp_ms": at_ms}


def evaluated(*events: dict[str, object], rule: str | None = None) -> Act:
    """Evaluate events one by one, after a rule was made."""

    async def act(caller: Caller, detector: str) -> set[int]:
        if rule is not None:
            await caller.rule(detector, rule)
        replies = [
            await caller("POST", f"/api/detectors/{detector}/evaluate", {"event": each}) for each in events
        ]
        return set().union(*(codes_in(reply.envelope) for reply in replies))

    return act


def in_a_batch(*events: dict[str, object], rule: str | None = None) -> Act:
    async def act(caller: Caller, detector: str) -> set[int]:
        if rule is not None:
            await caller.rule(detector, rule)
        reply = await caller("POST", f"/api/detectors/{detector}/evaluate/batch", {"events": events})
        return codes_in(reply.envelope)

    return act


def rules(*conditions: str) -> Act:
    async def act(caller: Caller, detector: str) -> set[int]:
        found: set[int] = set()
        for condition in conditions:
            document = {"name": "r", "condition": condition}
            found |= codes_in((await caller("POST", f"/api/detectors/{detector}/rules", document)).envelope)
        return found

    return act


async def with_a_long_header(caller: Caller, detector: str) -> set[int]:
    reply = await caller("GET", f"/api/detectors/{detector}/rules", headers={"X-Long": "x" * 2_000})
    return codes_in(reply.envelope)


async def of_half_a_minute_ahead(caller: Caller, detector: str) -> set[int]:
    return codes_in((await caller.evaluate(detector, {}, time.time() * 1_000 + 30_000)).envelope)


async def one_more_detector(caller: Caller, _: str) -> set[int]:
    return codes_in((await caller("POST", "/api/detectors", {"name": "one more"})).envelope)


async def two_more_tokens(caller: Caller, _: str) -> set[int]:
    named = {"name": "one more"}
    return codes_in((await caller("POST", "/api/token")).envelope) | codes_in(
        (await caller("POST", "/api/tokens", named)).envelope
    )


def relation(*tuples: object) -> Act:
    async def act(caller: Caller, detector: str) -> set[int]:
        path = f"/api/detectors/{detector}/relations/owns"
        return codes_in((await caller("PUT", path, {"tuples": tuples})).envelope)

    return act


def deep(levels: int) -> object:
    return [deep(levels - 1)] if levels else 1


@dataclass(frozen=True)
class Reach:
    """A value of a setting, and a request that is answered with `code` for it, and not by default."""

    value: Any
    code: int
    act: Act
    more: tuple[tuple[str, Any], ...] = ()
    """Other settings that have to be set along with it."""


REFUSED: dict[str, Reach] = {
    "max_header_bytes": Reach(1_024, 1006, with_a_long_header),
    "max_body_bytes": Reach(200, 1003, evaluated(event(text="x" * 300))),
    "max_batch_body_bytes": Reach(300, 1003, in_a_batch(event(text="x" * 400)), (("max_body_bytes", 200),)),
    "max_body_depth": Reach(6, 1000, evaluated(event(x=deep(8)))),
    "max_batch_events": Reach(2, 1400, in_a_batch(event(), event(), event())),
    "max_rules": Reach(1, 1400, rules("a == 1", "a == 2")),
    "max_rules_bytes": Reach(80, 1400, rules("a == 1", "a == 2")),
    "max_keys": Reach(
        2, 2002, in_a_batch(*(event(k=number) for number in range(1_000)), rule="per k once k == k")
    ),
    "max_condition_bytes": Reach(5, 1303, rules("a == 1")),
    "max_condition_nodes": Reach(2, 1303, rules("a == 1 and b == 2")),
    "max_condition_depth": Reach(1, 1303, rules("not a == 1")),
    "max_pattern_program": Reach(5, 1302, rules("a matches 'abcdefgh'")),
    "max_pattern_text_chars": Reach(3, 2004, evaluated(event(a="long"), rule="a matches 'x'")),
    "max_pattern_work": Reach(
        100,
        2004,
        evaluated(event(a="ab" * 20), rule="a matches '[ab].{30}c'"),
        (("max_pattern_event_work", 10**6),),
    ),
    "max_pattern_event_work": Reach(100, 2004, evaluated(event(a="ab" * 20), rule="a matches '[ab].{30}c'")),
    "max_body_values": Reach(20, 1000, evaluated(event(x=[1] * 30))),
    "max_event_values": Reach(40, 1000, evaluated(event(x=[1] * 60))),
    "max_answer_bytes": Reach(
        100, 1400, in_a_batch(event(), event(), event(), rule="historically a != 1 or not a == 1")
    ),
    "max_detectors": Reach(1, 1400, one_more_detector),
    "max_tokens": Reach(1, 1400, two_more_tokens),
    "max_state_bytes": Reach(
        10_000, 2002, in_a_batch(*(event(k=str(n) * 90) for n in range(1_000)), rule="per k once k == k")
    ),
    "max_condition_preparation": Reach(5, 1302, rules("a matches 'abcdefgh'")),
    "max_detector_preparation": Reach(1, 1400, rules("a matches 'c+d'")),
    "max_pattern_event_bytes": Reach(100, 2004, evaluated(event(a="ab" * 200), rule="a matches 'c+d'")),
    "max_relation_tuples": Reach(2, 1400, relation("a", "b", "c")),
    "max_relations_bytes": Reach(2_000, 1400, relation("x" * 4_000)),
    "max_relation_body_bytes": Reach(100, 1003, relation("x" * 200), (("max_body_bytes", 100),)),
    "max_late_ms": Reach(1_000, 1402, evaluated(event(5_000), event(3_000)), (("max_ahead_ms", 1_000),)),
    "max_ahead_ms": Reach(0, 1402, of_half_a_minute_ahead),
}

OF_THE_RUNTIME = {
    "data": "tests/integration/service/test_command_line.py::"
    "test_a_service_with_existing_data_begins_no_folder",
    "deadline_s": "tests/unit/runtime/activation/queue/test_batches.py::"
    "test_a_deadline_that_passes_during_activation_is_1501_and_nothing_is_evaluated",
    "detectors_per_worker": "tests/unit/runtime/scheduler/workers/test_workers.py::"
    "test_few_workers_are_filled_and_those_with_room_come_before_new_ones",
    "passivate_after_s": "tests/unit/runtime/ticks/test_timed_rules.py::"
    "test_a_silent_host_is_told_once_at_its_own_time",
    "journal_sync": "tests/unit/runtime/detector/executor/test_disk.py::"
    "test_less_may_be_asked_of_evaluations_and_never_of_rules",
    "max_answers_kept_bytes": "tests/unit/runtime/scheduler/test_settings_in_force.py::"
    "test_no_more_answers_are_kept_than_there_is_memory_for",
    "max_resident": "tests/unit/runtime/backend/test_activation.py::"
    "test_more_detectors_than_places_take_turns_and_forget_nothing",
    "max_waiting": "tests/unit/runtime/front_end/channels/test_shares.py::"
    "test_a_token_that_floods_a_full_queue_leaves_others_their_share",
    "max_waiting_bytes": "tests/unit/runtime/front_end/channels/test_shares.py::"
    "test_a_token_with_large_requests_leaves_others_their_share_of_bytes",
    "node_timeout_s": "tests/unit/runtime/scheduler/workers/test_heartbeat.py::"
    "test_a_stopped_worker_is_replaced_and_finds_itself_fenced_when_it_goes_on",
    "snapshot_interval_s": "tests/unit/runtime/backend/test_activation.py::"
    "test_a_changed_detector_is_saved_after_the_interval_and_not_again_without_a_change",
    "snapshot_journal_bytes": "tests/unit/runtime/backend/test_answered.py::"
    "test_a_long_journal_brings_the_next_snapshot_forward_and_batches_go_on_meanwhile",
    "changes_kept_days": "tests/unit/runtime/catalogue/catalogue/test_change_log.py::"
    "test_what_is_older_than_the_setting_says_is_gone",
    "snapshots_kept": "tests/unit/runtime/scheduler/test_settings_in_force.py::"
    "test_as_many_snapshots_are_kept_as_are_asked_for",
    "spares": "tests/unit/runtime/scheduler/test_settings_in_force.py::"
    "test_so_many_processes_wait_for_a_detector",
    "tick_s": "tests/unit/runtime/ticks/test_timed_rules.py::"
    "test_a_caller_may_let_time_pass_and_the_answer_has_what_fires",
    "worker_cpus": "tests/unit/runtime/scheduler/test_settings_in_force.py::"
    "test_ray_is_asked_for_what_a_worker_needs",
    "worker_memory_bytes": "tests/unit/runtime/scheduler/test_settings_in_force.py::"
    "test_a_node_takes_as_many_workers_as_its_memory_has_room_for",
}
"""Given to the runtime as they are. These tests show what they do there."""

ELSEWHERE = {
    "access_log": "tests/api/observability/test_logs.py::"
    "test_a_request_is_found_with_all_that_is_known_of_it",
    "bootstrap_token": "tests/api/process/test_settings.py::test_a_secret_can_come_from_a_file",
    "bootstrap_token_file": "tests/api/process/test_settings.py::test_a_secret_can_come_from_a_file",
    "cors_origin": "tests/api/http/test_cors.py::"
    "test_a_listed_origin_may_read_every_response_and_others_none",
    "existing_data": "tests/integration/service/test_command_line.py::"
    "test_a_service_with_existing_data_begins_no_folder",
    "tls_cert": "tests/integration/service/test_front_door.py::"
    "test_requests_come_over_tls_and_a_new_certificate_is_taken_over_and_metrics_have_their_own_listener",
    "tls_key": "tests/integration/service/test_front_door.py::"
    "test_files_that_are_wrong_end_the_start_with_their_names",
    "metrics_host": "tests/integration/service/test_front_door.py::"
    "test_requests_come_over_tls_and_a_new_certificate_is_taken_over_and_metrics_have_their_own_listener",
    "host": "tests/integration/service/test_command_line.py::test_an_address_that_is_none_is_said",
    "join_timeout_s": "tests/integration/cluster/test_cluster_ray.py::"
    "test_a_cluster_that_lets_nobody_in_is_given_up_in_words",
    "keep_alive_s": "tests/api/server/http1/test_http_requests.py::"
    "test_a_connection_is_not_idle_amid_a_plain_request_and_is_after_it",
    "log_format": "tests/api/observability/test_logs.py::"
    "test_the_level_is_that_of_the_settings_and_ray_is_heard_at_debug_only",
    "log_level": "tests/api/observability/test_logs.py::"
    "test_the_level_is_that_of_the_settings_and_ray_is_heard_at_debug_only",
    "max_firings": "tests/api/http/handling/test_firings.py::test_what_is_gone_is_a_gap",
    "max_memory_mb": "tests/api/http/body/test_memory_budget.py::"
    "test_bodies_for_cold_detectors_stay_within_the_budget_and_others_are_served",
    "max_reading_bytes": "tests/api/http/body/test_bodies_over_sockets.py::"
    "test_bodies_that_stop_short_do_not_keep_others_out",
    "slow_request_ms": "tests/api/observability/test_logs.py::"
    "test_slow_requests_are_logged_and_only_so_many_in_a_second",
    "max_connections": "tests/api/process/test_descriptors.py::"
    "test_connections_leave_descriptors_for_the_service_itself",
    "max_discard_bytes": "tests/api/http/wire/test_bodies_and_callers.py::"
    "test_an_endless_body_past_the_discard_leaves_no_task_behind",
    "otlp_endpoint": "tests/api/observability/test_spans.py::"
    "test_a_collector_gets_a_span_of_each_request_with_where_its_time_went",
    "port": "tests/integration/service/test_command_line.py::test_a_port_in_use_is_said",
    "probe_port": "tests/api/observability/test_probes.py::"
    "test_a_port_in_use_is_told_before_anything_else_is_started",
    "ray_address": "tests/integration/cluster/test_cluster_ray.py::"
    "test_a_cluster_that_is_not_there_is_told_at_once",
    "shutdown_grace_s": "tests/api/process/test_settings_reach.py::test_the_server_is_given_its_times",
    "shutdown_wait_s": "tests/integration/service/test_command_line.py::"
    "test_a_service_that_is_ended_in_each_way_is_found_again_as_it_was",
    "front_ends": "tests/integration/service/test_front_ends.py::"
    "test_shutdown_answers_all_that_was_evaluated",
}
"""The tests in which the settings of the front end have another value than by default."""


async def asked(folder: Path, act: Act, **chosen: Any) -> set[int]:
    values = Settings(data=folder, bootstrap_token=BOOTSTRAP, **chosen)
    given = values.runtime_settings()
    rest = {name: value for name, value in vars(given).items() if name != "data"}
    async with local_service(folder, **rest) as service:
        caller = Caller(Application(values, service.backend), BOOTSTRAP)
        return await act(caller, await caller.detector())


@pytest.mark.parametrize("name", REFUSED)
async def test_a_limit_that_is_set_is_the_one_that_refuses(tmp_path: Path, name: str) -> None:
    reach = REFUSED[name]
    limited = await asked(tmp_path / "limited", reach.act, **dict(reach.more), **{name: reach.value})
    assert reach.code in limited


async def test_by_default_none_of_them_refuses(tmp_path: Path) -> None:
    async def all_asked(caller: Caller, _: str) -> set[int]:
        found = {name: await reach.act(caller, await caller.detector()) for name, reach in REFUSED.items()}
        return {REFUSED[name].code for name, codes in found.items() if REFUSED[name].code in codes}

    assert await asked(tmp_path, all_asked) == set()


def source_of(place: str) -> str:
    """Return the source of a test that is named by its file and its function."""
    path, _, function = place.partition("::")
    text = (ROOT / path).read_text("utf-8")
    (found,) = (
        ast.get_source_segment(text, node) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    )
    return found


def test_no_setting_is_forgotten() -> None:
    named = [*REFUSED, *OF_THE_RUNTIME, *ELSEWHERE]
    assert sorted(named) == sorted(setting.name for setting in settings())


def runtime_field(name: str) -> str:
    """Return the setting of the runtime that changes with one of the service, and only that one."""
    usual = getattr(Settings(), name)
    other = {"data": Path("elsewhere"), "journal_sync": "off"}.get(name) or usual + 1
    # An embedded Ray is asked for nothing.
    joined = {"ray_address": "127.0.0.1:6379"}
    before, after = (
        dataclasses.asdict(Settings(**joined, **chosen).runtime_settings()) for chosen in ({}, {name: other})
    )
    (field,) = (field for field in after if after[field] != before[field])
    assert after[field] == other
    return field


@pytest.mark.parametrize("name", OF_THE_RUNTIME)
def test_a_setting_of_the_runtime_is_one_of_its_own_whose_effect_is_tested(name: str) -> None:
    assert re.search(rf"\b{runtime_field(name)}\b", source_of(OF_THE_RUNTIME[name]))


def test_the_server_is_given_its_times() -> None:
    config = server_config(Settings(shutdown_grace_s=3, keep_alive_s=4))
    assert (config.graceful_timeout - REFUSALS_S, config.keep_alive_timeout) == (3, 4)


@pytest.mark.parametrize("place", ELSEWHERE.values(), ids=list(ELSEWHERE))
def test_the_tests_that_are_named_exist(place: str) -> None:
    assert source_of(place)
