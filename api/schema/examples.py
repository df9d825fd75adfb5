"""Examples of requests and responses, for the OpenAPI document and the demo."""

from typing import Any, Final

ID: Final = "6f1c2a9be07d4c58a3f0d1e2b3c4d5e6"
TOKEN: Final = {"id": ID, "token": "rd_Zk9vYm1hcmtzLWFyZS1ub3Qtc2VjcmV0cy1hdC1hbGw", "hint": "hbGw"}
RULE_ID: Final = "0b7d3c41f2a84e6d9c5b1a0f8e7d6c5b"
CONDITION_OBJECT: Final = {
    "keyed": {
        "inner": {
            "once_within": {"inner": {"leaf": {"fact": "ok", "op": "eq", "value": False}}, "window_secs": 600}
        },
        "key": "user",
    }
}
CONDITION_TEXT: Final = "per user once within 10m ok == false"
PARSED: Final = {
    "condition": CONDITION_OBJECT,
    "text": CONDITION_TEXT,
    "estimate": {"event_ns": 83, "memories": [{"per": ["user"], "entries_max": 1}]},
}
RULE: Final = {
    "id": RULE_ID,
    "condition": CONDITION_OBJECT,
    "detectorId": ID,
    "enabled": True,
    "name": "a failed login within ten minutes",
    "notify": False,
    "priority": 1,
}
VERSION: Final = {
    "version": 1,
    "time_ms": 1_709_545_260_000,
    "token": {"id": "5d0c2f4b8e7a4c1d9b3f6a2e1c8d7b60", "name": "ada"},
    "rule": {**RULE, "source": CONDITION_TEXT},
}
EVENT: Final = {
    "fields": {"action": "payment", "amount": 4200, "user": {"id": "u0305"}},
    # A minute after the end of the sample recording, which is the time of the demo's detector.
    "timestamp_ms": 1_709_545_260_000,
}
"""An event that a new detector accepts, and that fires rules of the demo's detector."""
LOGS: Final = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeLogs": [
                {
                    "scope": {"name": "payments"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1709545260000000000",
                            "severityText": "INFO",
                            "severityNumber": 9,
                            "body": {"stringValue": "payment of 4200"},
                            "attributes": [{"key": "amount", "value": {"intValue": "4200"}}],
                        }
                    ],
                }
            ],
        }
    ]
}
"""One log record in the JSON of OTLP/HTTP."""
ACTION: Final = {
    "type": "match",
    "ruleId": RULE_ID,
    "name": "a failed login within ten minutes",
    "priority": 1,
    "notify": False,
}
ACTION_BY_TIME: Final = {
    "type": "notify",
    "ruleId": RULE_ID,
    "name": "no heartbeat within five minutes",
    "priority": 1,
    "notify": True,
    "keys": {"host": "web-1"},
    "time_ms": 1_709_545_260_000.001,
    "timed": True,
}
EXPLAINED: Final = {
    "ruleId": RULE_ID,
    "name": "a failed login within ten minutes",
    "verdict": True,
    "node": {
        "text": CONDITION_TEXT,
        "verdict": True,
        "nodes": [
            {
                "text": "once within 10m ok == false",
                "verdict": True,
                "nodes": [{"text": "ok == false", "verdict": False}],
                "witness_ms": 1_709_545_200_000,
                "until_ms": 1_709_545_800_000,
            }
        ],
        "key": {"user": "u0305"},
        "until_ms": 1_709_545_800_000,
    },
}
TIMELINE: Final[dict[str, Any]] = {
    "ruleId": RULE_ID,
    "text": "per user once within 10m ok == false",
    "rows": ["per user: once within 10m ok == false"],
    "moments": [
        {
            "number": 1,
            "time_ms": EVENT["timestamp_ms"],
            "verdict": True,
            "verdicts": [True],
            "key": {"user": "ada"},
        }
    ],
}
FIRINGS: Final[dict[str, Any]] = {
    "firings": [
        {
            "seq": 1,
            "time_ms": EVENT["timestamp_ms"],
            "ruleId": RULE_ID,
            "name": "failed logins",
            "priority": 1,
            "keys": {"user": "ada"},
            "why": {"version": 1},
        }
    ],
    "next": 1,
}
_EXAMPLE: Final = {
    "number": 1_712,
    "timestamp_ms": EVENT["timestamp_ms"],
    "key": {"user": "ada"},
    "fields": {"user": "ada", "ok": True},
}
COMPARISON: Final[dict[str, Any]] = {
    "ruleId": RULE_ID,
    "draftId": "5a2e4c60d1b84f7f8e3c9d0a1b2c3d4e",
    "since_event": 1_204,
    "events": 3_796,
    "both": 0,
    "only_rule": 1,
    "only_draft": 0,
    "examples": {"both": [], "only_rule": [_EXAMPLE], "only_draft": []},
    "since_ms": 1_709_544_000_000,
    "young_until_ms": 1_709_544_600_000,
}
STATE: Final[dict[str, Any]] = {
    "clock_ms": EVENT["timestamp_ms"],
    "events": 5_000,
    "rules": {"total": 1, "enabled": 1},
    "nodes": {"total": 3, "temporal": 1},
    "indexed": False,
    "keys": {"live": 400, "max": 1_000_000, "paths": [{"per": ["user"], "live": 400}]},
    "bytes": {"held": 140_800, "max": 1_073_741_824},
    "relations": {
        "total": 1,
        "bytes": 2_410,
        "bytes_max": 1_073_741_824,
        "stored": [
            {"name": "blocked", "tuples": 2, "arity": 1, "changed_ms": 1_700_000_000_000, "bytes": 2_410}
        ],
    },
    "feed": {"newest": 1_204, "kept": 1_204, "max": 10_000, "bytes": 301_000},
    "samples": 0,
    "journal": {"record": 812, "bytes": 91_204, "segments": 1, "synced": True},
    "snapshot": {"record": 640},
    "worker": {"node": "worker-1", "pid": 4711, "epoch": 3, "resident_bytes": 92_000_000},
}
_PROCESS: Final = {
    "pid": 4711,
    "host": "a",
    "started_ms": 1_709_545_000_000,
    "resident_bytes": 83_000_000,
    "cpu_s": 12.5,
}
_BUSY: Final = {
    "id": "6f1c2a9be07d4c58a3f0d1e2b3c4d5e6",
    "name": "logins",
    "worker": "worker-1f0c9a7e-1",
    "address": "10.0.0.7",
    "events_per_s": 812.4,
    "cpu": 0.057,
}
CLUSTER: Final[dict[str, Any]] = {
    "nodes": [
        {
            "id": 2 * "9f3c1d",
            "address": "10.0.0.7",
            "host": "a",
            "alive": True,
            "cpus": 8.0,
            "memory_bytes": 16_000_000_000,
            "cpus_free": 7.7,
            "memory_free_bytes": 15_600_000_000,
            "draining": "",
        }
    ],
    "directory": _PROCESS,
    "front_ends": [
        {
            "process": _PROCESS,
            "waiting": 3,
            "waiting_s": 0.002,
            "directory_answer_age_s": 0.4,
            "loop_lag_s": 0.001,
            "memory_bytes": {"bodies": 200_000, "requests": 1_200, "answers": 0},
            "certificate_stale": False,
        }
    ],
    "workers": [
        {
            "name": "worker-1f0c9a7e-1",
            "answers": True,
            "node": 2 * "9f3c1d",
            "address": "10.0.0.7",
            "process": _PROCESS,
            "connections": {"unix": 2},
            "detectors": [
                {
                    "id": "6f1c2a9be07d4c58a3f0d1e2b3c4d5e6",
                    "epoch": 4,
                    "since_ms": 1_709_545_100_000,
                    "name": "logins",
                    "waiting": 1,
                    "waiting_s": 0.0004,
                    "rules": 9,
                    "keys": 1200,
                    "state_bytes": 340_000,
                    "journal_bytes": 52_000,
                    "events": 4_200_000,
                    "events_per_s": 812.4,
                    "cpu": 0.057,
                }
            ],
        }
    ],
    "activating": [],
    "folder": {"free_bytes": 90_000_000_000, "total_bytes": 200_000_000_000, "free_inodes": 12_000_000},
    "other_settings": [
        {"pid": 4711, "host": "a", "setting": "--max-resident", "in_force": "50", "given": "200"}
    ],
    "busiest": {"by_events": [_BUSY], "by_cpu": [_BUSY]},
    "no_room": "",
}

TUPLES: Final = [["ada", "10.0.0.7"], ["bob", "10.0.0.9"]]
RELATION: Final = {"name": "known_hosts", "tuples": 2, "arity": 2, "changed_ms": 1_709_542_800_000}

CHANGES: Final = {
    "changes": [
        {
            "seq": 7,
            "time_ms": 1_709_542_800_000,
            "token": {"id": ID, "name": "ada"},
            "request": "0d6cbb9b6c5d4c1f8a3e2b1c0d9e8f7a",
            "kind": "rule",
            "action": "change",
            "id": RULE_ID,
            "name": "a failed login",
            "detectorId": ID,
            "old": {"enabled": True},
            "new": {"enabled": False},
        }
    ],
    "next": 7,
}
