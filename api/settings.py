"""Every setting of the service: default, help and bounds. They are the options of `serve`."""

import dataclasses
import functools
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from api.setting import ADDRESSES, Setting, SettingsError, type_of
from api.setting import setting_field as _setting
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.runtime.contract.settings import JournalSync, RuntimeSettings

_MIB: Final = 1024 * 1024
_AHEAD_SHARE: Final = 8
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
_DATA: Final = Path("rule-detector-data")
_OF_EACH_SERVICE: Final = frozenset(
    {
        *("host", "port", "tls_cert", "tls_key", "probe_port", "metrics_host", "data", "existing_data"),
        *("front_ends", "ray_address", "bootstrap_token", "bootstrap_token_file"),
        *("log_format", "log_level", "access_log", "slow_request_ms", "otlp_endpoint", "cors_origin"),
        *("deadline_s", "shutdown_wait_s", "shutdown_grace_s", "max_connections", "keep_alive_s"),
        *("max_header_bytes", "max_body_bytes", "max_batch_body_bytes"),
        *("max_memory_mb", "max_reading_bytes", "max_discard_bytes", "max_waiting", "max_waiting_bytes"),
    }
)
"""The settings that each service has separately. Services on one data folder share all others."""
_SECRET: Final = re.compile(r"[!-~]{32,}")
"""A bootstrap token; 32 random hexadecimal characters are 128 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force. Texts become values of their types. Raises SettingsError with every defect."""

    host: str = _setting("127.0.0.1", "The address to listen on.")
    port: int = _setting(8080, "The port to listen on; 0 picks a free one.", least=0, most=65_535)
    tls_cert: Path | None = _setting(
        None,
        "The file with the certificate, and those that lead to its root, as PEM: requests use TLS then. "
        "It is read again when it changes. Needs --tls-key.",
    )
    tls_key: Path | None = _setting(None, "The file with the private key of the certificate, as PEM.")
    probe_port: int = _setting(
        0,
        "The port at which a separate thread answers /healthz, /readyz and /metrics, however busy the "
        "service is; 0 for none.",
        least=0,
        most=65_535,
    )
    metrics_host: str | None = _setting(
        None,
        "The address to listen on at --probe-port, if not --host. The port of requests then has no /metrics.",
    )

    data: Path = _setting(_DATA, "The folder for all persistent data.")
    existing_data: bool = _setting(False, "Refuse a data folder without an id, as when its mount is missing.")
    front_ends: int = _setting(1, "The number of front ends; if several, each in its own process.", most=256)
    ray_address: str = _setting(
        "local", "`local` starts an embedded Ray; any other value is the cluster to join."
    )
    bootstrap_token: str | None = _setting(
        None,
        "A fixed first token of at least 32 characters, never stored and not revocable over the API. Other "
        "users can read the option in the list of processes; prefer the file or the variable.",
    )
    bootstrap_token_file: Path | None = _setting(None, "The file that holds the bootstrap token.")
    log_format: LogFormat = _setting(
        "text", "The format of the log on standard error: `text` for people, `json` for programs."
    )
    log_level: LogLevel = _setting(
        "warning",
        "The lowest level that is logged: `debug`, `info`, `warning` or `error`. Ray's own records appear at "
        "`debug` only.",
    )
    access_log: bool = _setting(
        False, "Log every request, which costs much of the throughput; /metrics counts requests in any case."
    )
    slow_request_ms: float = _setting(
        1000.0,
        "Log requests that take this many milliseconds or longer, at most 10 a second; 0 logs none.",
        least=0,
    )
    otlp_endpoint: str | None = _setting(
        None,
        "The OpenTelemetry collector that gets a span of each request, as http://127.0.0.1:4318 (OTLP over "
        "HTTP). Needs the extra `tracing`. If not set, OTEL_EXPORTER_OTLP_ENDPOINT counts.",
    )

    cors_origin: str | None = _setting(
        None, "The origins whose web pages may read responses: one, or several with commas between."
    )
    max_detectors: int = _setting(100_000, "The maximum number of detectors.")
    max_tokens: int = _setting(10_000, "The maximum number of tokens.")
    max_resident: int = _setting(50, "The maximum number of active detectors.")
    detectors_per_worker: int = _setting(
        1, "The maximum number of active detectors in a process; with 1, each has its own.", most=2_000
    )
    changes_kept_days: int = _setting(90, "How many days the changes log keeps a change.")
    spares: int = _setting(2, "The number of idle processes ready to activate a detector.", least=0)
    worker_cpus: float = _setting(
        0.1, "The CPUs that each detector worker reserves in a joined cluster.", least=0
    )
    worker_memory_bytes: int = _setting(
        128 * _MIB, "The memory that each detector worker reserves in a joined cluster, in bytes.", least=0
    )
    passivate_after_s: float = _setting(
        600.0, "Seconds without a request after which a detector is passivated.", least=0.1
    )
    journal_sync: JournalSync = _setting(
        "always",
        "What an acknowledged evaluation survives. `always`: power loss. `interval`: a process crash; a "
        "machine crash may lose the last second. `off`: only what the latest snapshot holds.",
    )
    snapshot_interval_s: float = _setting(
        60.0, "Seconds between two snapshots of a detector that changes.", least=0.1
    )
    snapshot_journal_bytes: int = _setting(
        64 * _MIB, "The size of a detector's journal, in bytes, that triggers a snapshot early."
    )
    snapshots_kept: int = _setting(3, "The number of snapshots kept of each detector.")
    deadline_s: float = _setting(
        30.0, "The deadline of a request in seconds, including the activation of its detector.", least=0.1
    )
    join_timeout_s: float = _setting(30.0, "Seconds that joining a Ray cluster may take.", least=1)
    node_timeout_s: float = _setting(
        3.0,
        "Seconds without a sign of life after which a process counts as dead, because it or its node was "
        "stopped, cut off or lost. Its detectors are then activated elsewhere.",
        least=0.5,
    )
    shutdown_wait_s: float = _setting(
        0.5,
        "Seconds between /readyz turning to 503 and the end of listening, so that load balancers notice.",
        least=0,
    )
    shutdown_grace_s: float = _setting(
        10.0, "Seconds that requests under way have to finish at shutdown.", least=0
    )

    max_late_ms: int = _setting(300_000, "How late an event may be, in milliseconds.", least=0)
    max_ahead_ms: int = _setting(
        60_000,
        "How far ahead of the server's clock an event may be, in milliseconds; at most max_late_ms.",
        least=0,
    )

    tick_s: float = _setting(
        1.0,
        "Seconds until a detector is ticked after a timed rule is due by the server's clock; 0 for never.",
        least=0,
    )

    max_connections: int = _setting(
        16_384,
        "The maximum number of connections of each front end. At the limit, a new connection evicts the "
        "oldest that never authenticated, otherwise the one idle longest.",
    )
    keep_alive_s: float = _setting(
        75.0,
        "Seconds after which an idle connection is closed. Longer than the idle timeout of callers and load "
        "balancers (mostly 60 s), so that they close first.",
        least=0.1,
    )
    max_header_bytes: int = _setting(
        16 * 1024, "The maximum size of a request's headers together, in bytes.", least=1024
    )
    max_body_bytes: int = _setting(_MIB, "The maximum size of a request's body, in bytes.")
    max_batch_body_bytes: int = _setting(16 * _MIB, "The maximum size of a batch's body, in bytes.")
    max_relation_tuples: int = _setting(
        DEFAULT_LIMITS.relation_tuples_max, "The maximum number of tuples of a stored relation."
    )
    max_relations_bytes: int = _setting(
        DEFAULT_LIMITS.relations_bytes_max,
        "The memory for all stored relations of a detector, in bytes. It is separate from that of keys.",
    )
    max_relation_body_bytes: int = _setting(
        DEFAULT_LIMITS.relation_body_bytes_max,
        "The maximum size of a body that replaces a relation, in bytes. It is read in parts.",
    )
    max_memory_mb: int = _setting(
        1024,
        "The memory of each front end for bodies, waiting requests and unread answers together, in MiB. "
        "Beyond it, new requests get 1401, and connections whose answers are not read are closed.",
        least=16,
    )
    max_reading_bytes: int = _setting(
        256 * _MIB,
        "The memory for the bodies that are being read, in bytes, in equal parts for all front ends of a "
        "`serve`. Beyond it, stalled bodies are refused first, then slow ones, then the youngest.",
        least=_MIB,
    )
    max_discard_bytes: int = _setting(
        32 * _MIB,
        "How much of a refused body is still read, in bytes, so that the caller can read the response.",
        least=0,
    )
    max_body_depth: int = _setting(64, "The maximum nesting of a body.", least=4, most=200)
    max_body_values: int = _setting(
        1_000_000, "The maximum number of values in a body; each takes up to about 100 bytes when decoded."
    )
    max_event_values: int = _setting(
        DEFAULT_LIMITS.event_values_max,
        "The maximum number of values in an event of a batch, in its context, and in any other body; a "
        "member of an object counts as five.",
    )
    max_batch_events: int = _setting(10_000, "The maximum number of events in a batch.")
    max_answer_bytes: int = _setting(
        64 * _MIB,
        "The maximum size of the answer to a batch, in bytes. Events beyond it are refused, not evaluated.",
    )
    max_waiting: int = _setting(
        10_000, "The maximum number of requests that wait for a detector in a front end."
    )
    max_waiting_bytes: int = _setting(
        64 * _MIB, "The maximum size of the requests that wait for a detector in a front end, in bytes."
    )
    max_answers_kept_bytes: int = _setting(
        64 * _MIB,
        "The memory for a detector's answers to requests with an Idempotency-Key, in bytes. Answers are kept "
        "for ten minutes; the default is enough for 2 000 answers a second.",
    )

    max_rules: int = _setting(100_000, "The maximum number of rules of a detector.")
    max_rules_bytes: int = _setting(
        DEFAULT_LIMITS.rules_bytes_max,
        "The maximum size of all rules of a detector, with conditions, sources and names as JSON, in bytes.",
    )
    max_keys: int = _setting(1_000_000, "The maximum number of live keys of a detector.")
    max_firings: int = _setting(
        DEFAULT_LIMITS.firings_max,
        "The number of firings that the feed of a detector keeps; 0 keeps none.",
        least=0,
        most=100_000,
    )
    max_state_bytes: int = _setting(
        DEFAULT_LIMITS.state_bytes_max,
        "The memory for the live keys of a detector and their state, in bytes. "
        "Counts without keys may take half as much in addition.",
    )
    max_condition_bytes: int = _setting(64 * 1024, "The maximum size of a condition's text, in bytes.")
    max_condition_nodes: int = _setting(2_000, "The maximum number of nodes of a condition.")
    max_condition_depth: int = _setting(64, "The maximum depth of a condition; a leaf has depth 1.", most=90)
    max_pattern_program: int = _setting(
        DEFAULT_LIMITS.pattern_program_max,
        "The maximum size of a compiled regular expression, in RE2 instructions.",
    )
    max_condition_preparation: int = _setting(
        DEFAULT_LIMITS.condition_preparation_max,
        "The maximum work of compiling the regular expressions of a condition, in units of about 0.5 µs.",
    )
    max_detector_preparation: int = _setting(
        DEFAULT_LIMITS.detector_preparation_max,
        "The same for all rules of a detector, which compiles them at each activation.",
    )
    max_pattern_text_chars: int = _setting(
        DEFAULT_LIMITS.pattern_text_chars_max,
        "The maximum length of a text that regular expressions are matched against, in characters.",
    )
    max_pattern_work: int = _setting(
        DEFAULT_LIMITS.pattern_work_max,
        "The maximum work of matching an exploding regular expression: its cost times the bytes of the text.",
    )
    max_pattern_event_work: int = _setting(
        DEFAULT_LIMITS.pattern_event_work_max, "The same for all such expressions and texts of one event."
    )
    max_pattern_event_bytes: int = _setting(
        DEFAULT_LIMITS.pattern_event_bytes_max,
        "The maximum for one event: the bytes of each text, times the regular expressions to try on it.",
    )

    def __post_init__(self) -> None:
        defects: list[str] = []
        for setting in settings():
            if (value := getattr(self, setting.name)) is None:
                continue
            try:
                object.__setattr__(self, setting.name, setting.read(value))
            except SettingsError as error:
                defects += error.defects
                object.__setattr__(self, setting.name, setting.default)
        if not self.host:
            defects.append("host: expected an address, got an empty string")
        if (self.tls_cert is None) != (self.tls_key is None):
            defects.append("tls_cert, tls_key: expected both, or none")
        if self.metrics_host is not None and not self.probe_port:
            defects.append("metrics_host: expected a probe_port as well, at which it listens")
        if self.bootstrap_token is not None and not _SECRET.fullmatch(self.bootstrap_token):
            defects.append(
                "bootstrap_token: expected at least 32 visible ASCII characters without blanks "
                "(`openssl rand -hex 32` makes some), since anyone who guesses it has full access"
            )
        for name, (pattern, wanted) in ADDRESSES.items():
            if (given := getattr(self, name)) is not None and not pattern.fullmatch(given):
                defects.append(f"{name}: expected {wanted}, got {given!r}")
        if self.max_ahead_ms > self.max_late_ms:
            defects.append(
                f"max_ahead_ms: {self.max_ahead_ms} is above max_late_ms ({self.max_late_ms}), so one "
                "fast clock could lock out all others"
            )
        if self.max_body_bytes > self.max_batch_body_bytes:
            defects.append(
                f"max_body_bytes: {self.max_body_bytes} is above max_batch_body_bytes "
                f"({self.max_batch_body_bytes})"
            )
        # A quarter of a front end's part is for small bodies; the rest must hold the largest body.
        if self.max_reading_bytes // self.front_ends < 2 * self.max_batch_body_bytes:
            defects.append(
                f"max_reading_bytes: {self.max_reading_bytes}, for {self.front_ends} front ends, is below "
                f"twice max_batch_body_bytes ({self.max_batch_body_bytes}) for each"
            )
        # Both count twice: they are copied when they are sent or decoded.
        for name in ("max_batch_body_bytes", "max_answer_bytes"):
            if self.max_memory_mb * _MIB < 4 * (size := getattr(self, name)):
                defects.append(f"max_memory_mb: {self.max_memory_mb} MiB is below four times {name} ({size})")
        if defects:
            raise SettingsError(*defects)

    @property
    def ahead_bytes_max(self) -> int:
        """The bytes that a front end reads ahead on all connections: a part of its memory for bodies."""
        return self.max_reading_bytes // self.front_ends // _AHEAD_SHARE

    @property
    def bodies_bytes_max(self) -> int:
        """The memory of a front end for bodies being read, after they are received by the application."""
        return self.max_reading_bytes // self.front_ends - self.ahead_bytes_max

    def runtime_settings(self) -> RuntimeSettings:
        """The settings of the runtime."""
        is_local = self.ray_address == "local"
        own: dict[str, Any] = {
            "transport": "unix" if is_local else "auto",
            "limits": self.limits(),
            "memory_bytes_max": self.max_memory_mb * _MIB,
        }
        reserved = {"worker_cpus": 0.0, "worker_memory_bytes": 0} if is_local else {}
        return RuntimeSettings(**{**self._of(RuntimeSettings), **own, **reserved})

    def shared_settings(self) -> dict[str, str]:
        """The options that all services of a data folder share, as text."""
        return {
            one.option: one.written(getattr(self, one.name))
            for one in settings()
            if one.name not in _OF_EACH_SERVICE
        }

    def limits(self) -> Limits:
        """The limits on the input of each detector."""
        of_condition = {
            "text_bytes_max": self.max_condition_bytes,
            "nodes_max": self.max_condition_nodes,
            "depth_max": self.max_condition_depth,
        }
        return Limits(**self._of(Limits), **of_condition)

    def _of(self, type_: type[Limits | RuntimeSettings]) -> dict[str, Any]:
        """Return the settings that are fields of a type: under their names, or `max_keys` as `keys_max`."""
        own = {one.name for one in settings()}
        names = {one.name for one in dataclasses.fields(type_)}
        said = {name: f"max_{name.removesuffix('_max')}" if name.endswith("_max") else name for name in names}
        return {name: getattr(self, setting) for name, setting in said.items() if setting in own}


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the documentation."""
    annotations = typing.get_type_hints(Settings)
    return tuple(
        Setting(one.name, type_of(annotations[one.name], *bounds), one.default, text)
        for one in dataclasses.fields(Settings)
        for text, bounds in (one.metadata.values(),)
    )
