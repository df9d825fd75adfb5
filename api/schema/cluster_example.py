"""The example of GET /api/cluster in the OpenAPI document."""

from typing import Any, Final

_PROCESS: Final = {
    "pid": 4711,
    "host": "a",
    "started_ms": 1_709_545_000_000,
    "resident_bytes": 83_000_000,
    "cpu_s": 12.5,
}
CLUSTER_EXAMPLE: Final[dict[str, Any]] = {
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
    "broker": _PROCESS,
    "front_ends": [
        {"process": _PROCESS, "waiting": 3, "waiting_s": 0.002, "word_age_s": 0.4, "loop_lag_s": 0.001}
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
                }
            ],
        }
    ],
    "activating": [],
    "folder": {"free_bytes": 90_000_000_000, "total_bytes": 200_000_000_000, "free_inodes": 12_000_000},
    "other_settings": [
        {"pid": 4711, "host": "a", "setting": "--max-resident", "in_force": "50", "given": "200"}
    ],
    "no_room": "",
}
