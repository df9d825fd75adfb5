"""Each alert fires when it should, stays quiet when it should, and has a section in the operators' page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.deploy.monitoring import ALERTS, DELIVER_ALERTS, alerts, dashboard_expressions

P = "rule_detector_"

Case = tuple[dict[str, str], dict[str, str]]


def once(series: str, fires: str, quiet: str) -> Case:
    return {series: fires}, {series: quiet}


CASES: dict[str, Case] = {
    # What makes it fire, and what almost does. Values as promtool writes them, one each 15 seconds.
    "RuleDetectorDown": ({'up{job="rule-detector"}': "0x200"}, {'up{job="rule-detector"}': "1x200"}),
    "RuleDetectorNotReady": once(P + "ready", "0x200", "1x100 0 0 1x98"),
    "RuleDetectorErrors": (
        {
            P + 'requests_total{operation="evaluate",status="200"}': "0+98x200",
            P + 'requests_total{operation="evaluate",status="503"}': "0+2x200",
        },
        {
            P + 'requests_total{operation="evaluate",status="200"}': "0+1000x200",
            P + 'requests_total{operation="evaluate",status="503"}': "0+2x200",
        },
    ),
    "RuleDetectorDetectorProblems": once(P + "detectors_with_problems", "1x200", "0x190 1x10"),
    "RuleDetectorTokensStale": once(P + "directory_answer_age_seconds", "0x198 9 10 12", "2x200"),
    "RuleDetectorWorkersSilent": once(P + 'workers_silent{node="a"}', "1x200", "0x198 1 1"),
    "RuleDetectorWorkersLost": once(P + "detectors_lost_total", "0x150 0+1x50", "0x190 2x10"),
    "RuleDetectorNodeLost": once(P + "nodes_alive", "3x190 2x10", "2x100 3x100"),
    "RuleDetectorNoRoom": once(P + "no_room", "0x100 1x100", "0x196 1x4"),
    "RuleDetectorSlow": (
        {
            P + 'request_seconds_bucket{operation="evaluate",le="0.5"}': "0+90x200",
            P + 'request_seconds_bucket{operation="evaluate",le="1.0"}': "0+100x200",
            P + 'request_seconds_bucket{operation="evaluate",le="+Inf"}': "0+100x200",
        },
        {
            P + 'request_seconds_bucket{operation="evaluate",le="0.5"}': "0+999x200",
            P + 'request_seconds_bucket{operation="evaluate",le="1.0"}': "0+1000x200",
            P + 'request_seconds_bucket{operation="evaluate",le="+Inf"}': "0+1000x200",
        },
    ),
    "RuleDetectorQueueOld": (
        {P + "front_end_waiting_seconds": "0x200", P + 'waiting_seconds{node="a"}': "0x190 6x10"},
        {P + "front_end_waiting_seconds": "0x198 9 0", P + 'waiting_seconds{node="a"}': "4x200"},
    ),
    "RuleDetectorBackPressure": once(
        P + 'requests_total{operation="evaluate",status="429"}', "0+1x200", "7x200"
    ),
    "RuleDetectorDeadlines": once(P + 'expired_total{cause="slots"}', "0+1x200", "7x200"),
    "RuleDetectorActivationThrashing": (
        {P + "detectors_activated_total": "0+900x200"},
        {P + "detectors_activated_total": "0+900x200", P + "due_activations_total": "0+600x200"},
    ),
    "RuleDetectorOverdue": once(P + "overdue_seconds", "0x180 15x20", "2x190 60x2 0x8"),
    "RuleDetectorEventsLate": (
        {
            P + 'events_refused_total{node="a",code="1402"}': "0+10x200",
            P + 'events_total{node="a"}': "0+20x200",
        },
        {
            P + 'events_refused_total{node="a",code="1402"}': "0+1x200",
            P + 'events_total{node="a"}': "0+99x200",
        },
    ),
    "RuleDetectorEventLoopLag": once(P + 'event_loop_lag_seconds{process="worker"}', "1x200", "0.1x200"),
    "RuleDetectorSlowDisk": (
        {
            P + 'journal_sync_seconds_bucket{node="a",le="0.1"}': "0+90x200",
            P + 'journal_sync_seconds_bucket{node="a",le="0.2"}': "0+100x200",
            P + 'journal_sync_seconds_bucket{node="a",le="+Inf"}': "0+100x200",
        },
        {
            P + 'journal_sync_seconds_bucket{node="a",le="0.1"}': "0+1000x200",
            P + 'journal_sync_seconds_bucket{node="a",le="0.2"}': "0+1000x200",
            P + 'journal_sync_seconds_bucket{node="a",le="+Inf"}': "0+1000x200",
        },
    ),
    "RuleDetectorDiskFilling": (
        {
            P + "data_free_bytes": "5x200",
            P + "data_total_bytes": "100x200",
            P + "data_free_inodes": "1e6x200",
        },
        {
            P + "data_free_bytes": "20x200",
            P + "data_total_bytes": "100x200",
            P + "data_free_inodes": "1e6x200",
        },
    ),
    "RuleDetectorDiskFull": once(P + "batches_without_room_total", "0x190 0+1x10", "3x200"),
    "RuleDetectorJournalFailures": once(P + "journal_failures_total", "0x190 1x10", "1x200"),
    "RuleDetectorSnapshotsFail": once(P + "snapshots_failed_total", "0+1x200", "0x180 1x20"),
    "RuleDetectorDamage": (
        {P + "files_set_aside_total": "0x200", P + "detectors_diverged_total": "0x190 1x10"},
        {P + "files_set_aside_total": "2x200", P + "detectors_diverged_total": "1x200"},
    ),
    "RuleDetectorOwnersFenced": once(P + "owners_fenced_total", "0x190 1x10", "1x200"),
    "RuleDetectorCertificateStale": once(P + "certificate_stale", "1x200", "1x180 0x20"),
    "RuleDetectorSpansLost": (
        {P + 'spans_total{outcome="lost"}': "0+5x200", P + 'spans_total{outcome="sent"}': "0x200"},
        {P + 'spans_total{outcome="lost"}': "7x200", P + 'spans_total{outcome="sent"}': "0+5x200"},
    ),
    "RuleDetectorKeysEvicted": once(P + 'keys_evicted_total{node="a"}', "0+5x200", "9x200"),
}

D, OF = P + "deliver_", '{detector="a"}'

DELIVER_CASES: dict[str, Case] = {
    "RuleDetectorDeliverDown": (
        {'up{job="rule-detector-deliver"}': "1x180 0x20"},
        {'up{job="rule-detector-deliver"}': "1x195 0x5", 'up{job="rule-detector"}': "0x200"},
    ),
    "RuleDetectorDeliverStuck": once(D + "waiting" + OF, "0x150 1x50", "1x170 0 1x29"),
    "RuleDetectorDeliverDeadLetters": once(D + "dead_letters_total" + OF, "0x180 1x20", "3x200"),
    "RuleDetectorDeliverLost": once(D + "lost_total" + OF, "0x180 9x20", "9x200"),
    "RuleDetectorDeliverFailing": once(D + "failed_attempts_total" + OF, "0+1x200", "0x180 5x20"),
    "RuleDetectorDeliverBreaks": once(D + "feed_breaks_total" + OF, "0x160 0+1x40", "0x100 0+1x10 10x90"),
}
FILES = [(ALERTS, "MONITORING.md", CASES), (DELIVER_ALERTS, "DELIVERING.md", DELIVER_CASES)]
"""Files of rules, the page about each, and its cases."""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def minutes(duration: str) -> float:
    return int(duration[:-1]) * {"s": 1 / 60, "m": 1, "h": 60}[duration[-1]]


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("file", "about", "cases"), FILES)
def test_every_alert_has_a_case_and_a_section_in_its_page(
    file: Path, about: str, cases: dict[str, object]
) -> None:
    names = [rule["alert"] for rule in alerts(file)]
    assert cases.keys() == set(names)
    page = (ALERTS.parents[2] / about).read_text("utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_rules_and_the_dashboards_expressions_are_valid(promtool: str, tmp_path: Path) -> None:
    run(promtool, "check", "rules", str(ALERTS), str(DELIVER_ALERTS))
    rules = [{"record": f"r{number}", "expr": expr} for number, expr in enumerate(dashboard_expressions())]
    assert len(rules) > 30
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    run(promtool, "check", "rules", str(file))


@pytest.mark.parametrize("rule", alerts() + alerts(DELIVER_ALERTS), ids=lambda rule: rule["alert"])
def test_an_alert_does_not_fire_when_its_trouble_is_over(rule: dict[str, str]) -> None:
    # A `min_over_time(…) > 0` is false as soon as its trouble is over.
    remembering = re.sub(r"min_over_time\([^)]*\)", "", rule["expr"])
    if "for" in rule:
        assert all(minutes(one) < minutes(rule["for"]) for one in re.findall(r"\[(\w+)\]", remembering))


@pytest.mark.storm
def test_each_alert_fires_and_does_not_fire_too_early(promtool: str, tmp_path: Path) -> None:
    """Each alert is alone in its file: promtool evaluates all rules of a file at each step."""
    rules = {rule["alert"]: rule for file in (ALERTS, DELIVER_ALERTS) for rule in alerts(file)}
    files = []
    for name, series_of in (CASES | DELIVER_CASES).items():
        tests = []
        for fires, series in zip((True, False), series_of, strict=True):
            expected = [{"labels": "{}", "value": 1}] if fires else []
            tests.append(
                {
                    "interval": "15s",
                    "input_series": [{"series": one, "values": values} for one, values in series.items()],
                    "promql_expr_test": [
                        {
                            "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                            "eval_time": "50m",
                            "exp_samples": expected,
                        }
                    ],
                }
            )
        own = tmp_path / f"{name}.yaml"
        own.write_text(yaml.safe_dump({"groups": [{"name": "alerts", "rules": [rules[name]]}]}), "utf-8")
        files.append(tmp_path / f"{name}_test.yaml")
        document = {"rule_files": [str(own)], "evaluation_interval": "15s", "tests": tests}
        files[-1].write_text(yaml.safe_dump(document), "utf-8")
    run(promtool, "test", "rules", *map(str, files))
