"""Every setting of the service: default, help and bounds. They are the options of `serve`."""

import dataclasses
import functools
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click

from api.secret_files import SecretFileError, read_secret
from api.setting import PREFIX, Setting, SettingsError
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.runtime.contract.settings import JournalSync, RuntimeSettings

_MIB: Final = 1024 * 1024
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
_DATA: Final = Path("rule-detector-data")
_SECRET: Final = re.compile(r"[!-~]{32,}")
"""A bootstrap token; 32 random hexadecimal characters are 128 bits."""


def _setting(default: Any, text: str, *, least: float | None = None, most: float | None = None) -> Any:
    """Give a field with its default, its help, and its inclusive bounds."""
    return dataclasses.field(default=default, metadata={"text": text, "bounds": (least, most)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, with the values in force. Contradictory settings are refused."""

    host: str = _setting("127.0.0.1", "The address to listen on.")
    port: int = _setting(8080, "The port to listen on; 0 takes a free one.", least=0, most=65_535)
    data: Path = _setting(_DATA, "The folder that holds everything to be kept.")  # noqa: RUF009 — a path is immutable
    workers: int = _setting(
        1, "Front ends on the address, each a process of its own if there are several.", least=1, most=256
    )
    ray_address: str = _setting("local", "`local` starts Ray inside; any other value is a cluster to join.")
    bootstrap_token: str | None = _setting(
        None,
        "A fixed first token of at least 32 characters, never stored and not revocable over the API. An "
        "option can be read in the list of processes; a file or the variable cannot.",
    )
    bootstrap_token_file: Path | None = _setting(  # noqa: RUF009 — a path is immutable
        None, "A file that holds the bootstrap token."
    )
    log_format: LogFormat = _setting(  # noqa: RUF009 — a word is immutable
        "text", "How the log is written to standard error: `text` for people, `json` for programs."
    )
    log_level: LogLevel = _setting(  # noqa: RUF009 — a word is immutable
        "warning",
        "What is logged: records of this level (`debug`, `info`, `warning`, `error`) and worse. What Ray "
        "says is logged at `debug` only.",
    )
    access_log: bool = _setting(
        False,
        "Log each request, at the cost of much of the throughput; /metrics counts them anyway.",
    )
    slow_request_ms: float = _setting(
        1000.0,
        "Milliseconds from which on a request is logged as slow, at most 10 a second; 0 logs none.",
        least=0,
    )

    max_detectors: int = _setting(100_000, "Detectors that there may be.", least=1)
    max_resident: int = _setting(50, "Detectors awake at once.", least=1)
    spares: int = _setting(2, "Started processes that wait for a detector to wake in them.", least=0)
    idle_rest_s: float = _setting(
        600.0, "Seconds without a request after which a detector is put to rest.", least=0.1
    )
    journal_sync: JournalSync = _setting(  # noqa: RUF009 — a word is immutable
        "always",
        "Against what answered evaluations are kept: `always`, the loss of the machine; `interval`, that of "
        "processes (of the machine, all but the last second); `off`, nothing but by snapshots.",
    )
    snapshot_interval_s: float = _setting(
        60.0, "Seconds between two snapshots of a detector that has changed.", least=0.1
    )
    snapshot_journal_bytes: int = _setting(
        64 * _MIB, "Bytes in a detector's journal that bring its next snapshot forward.", least=1
    )
    snapshots_kept: int = _setting(3, "Snapshots kept of each detector, the newest included.", least=1)
    deadline_s: float = _setting(
        30.0, "Seconds that a request may take, the wait for a waking detector included.", least=0.1
    )
    shutdown_wait_s: float = _setting(
        0.5,
        "Seconds between /readyz turning to 503 and the end of listening, for load balancers to notice.",
        least=0,
    )
    shutdown_grace_s: float = _setting(10.0, "Seconds that requests under way are given at the end.", least=0)

    max_late_ms: int = _setting(
        300_000, "How late an event may be, in milliseconds, and still be evaluated.", least=0
    )
    max_ahead_ms: int = _setting(
        60_000,
        "How far past the server's own time an event may be, in milliseconds; at most max_late_ms.",
        least=0,
    )

    max_connections: int = _setting(
        16_384,
        "Connections open at once, of each front end. Past that, one without a request under way that a "
        "token let pass is closed for each that comes.",
        least=1,
    )
    keep_alive_s: float = _setting(
        75.0,
        "Seconds that a connection may wait for its next request. Longer than those who call keep theirs, "
        "most load balancers 60 s, so that they are the ones who close.",
        least=0.1,
    )
    max_header_bytes: int = _setting(16 * 1024, "Bytes of a request's headers together.", least=1024)
    max_body_bytes: int = _setting(_MIB, "Bytes of a request's body.", least=1)
    max_batch_body_bytes: int = _setting(16 * _MIB, "Bytes of a batch's body.", least=1)
    max_reading_bytes: int = _setting(
        256 * _MIB,
        "Bytes of all bodies that are being read, of each front end; past that, those that have stalled are "
        "refused, then those that come too slowly, then the youngest.",
        least=_MIB,
    )
    max_drain_bytes: int = _setting(
        32 * _MIB,
        "Bytes of a refused body that are still read, so that the caller can read the answer.",
        least=0,
    )
    max_body_depth: int = _setting(64, "Nesting of a body.", least=4, most=200)
    max_body_values: int = _setting(
        1_000_000,
        "Values in a body: however few bytes they have, each takes up to some 100 when decoded.",
        least=1,
    )
    max_batch_events: int = _setting(10_000, "Events in one batch.", least=1)
    max_answer_bytes: int = _setting(
        64 * _MIB,
        "Bytes of the answer to a batch. Events that find no room in it are not evaluated, and say so.",
        least=1,
    )
    max_waiting: int = _setting(10_000, "Requests that wait for one detector.", least=1)
    max_waiting_bytes: int = _setting(64 * _MIB, "Bytes of the requests that wait for one detector.", least=1)
    max_answers_kept_bytes: int = _setting(
        64 * _MIB,
        "Bytes of memory for the answers kept for one detector, ten minutes each, to evaluations with an "
        "Idempotency-Key. The default is enough for 2 000 of them a second.",
        least=1,
    )

    max_rules: int = _setting(100_000, "Rules in one detector.", least=1)
    max_keys: int = _setting(1_000_000, "Live keys in one detector.", least=1)
    max_state_bytes: int = _setting(
        DEFAULT_LIMITS.state_bytes_max,
        "Memory that the live keys of one detector and their histories may take, in bytes.",
        least=1,
    )
    max_condition_bytes: int = _setting(64 * 1024, "Bytes of a condition's text.", least=1)
    max_condition_nodes: int = _setting(2_000, "Conditions within one condition, itself included.", least=1)
    max_condition_depth: int = _setting(64, "Depth of a condition; a leaf has depth 1.", least=1, most=90)
    max_pattern_program: int = _setting(
        DEFAULT_LIMITS.pattern_program_max,
        "Size of a compiled regular expression, in RE2's instructions.",
        least=1,
    )
    max_condition_preparation: int = _setting(
        DEFAULT_LIMITS.condition_preparation_max,
        "Work of compiling the regular expressions of one condition, in units of about 0.5 µs.",
        least=1,
    )
    max_detector_preparation: int = _setting(
        DEFAULT_LIMITS.detector_preparation_max,
        "The same for all rules of a detector, which compiles them whenever it wakes.",
        least=1,
    )
    max_pattern_text_chars: int = _setting(
        DEFAULT_LIMITS.pattern_text_chars_max,
        "Characters of a text that regular expressions are tried on.",
        least=1,
    )
    max_pattern_work: int = _setting(
        DEFAULT_LIMITS.pattern_work_max,
        "Work of a regular expression that explodes times the bytes of a text that it is tried on.",
        least=1,
    )
    max_pattern_event_work: int = _setting(
        DEFAULT_LIMITS.pattern_event_work_max,
        "The same for all such expressions that may be in the texts of one event.",
        least=1,
    )

    max_pattern_event_bytes: int = _setting(
        DEFAULT_LIMITS.pattern_event_bytes_max,
        "Bytes of the texts of one event times the regular expressions that are tried on each.",
        least=1,
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
        if self.bootstrap_token is not None and not _SECRET.fullmatch(self.bootstrap_token):
            defects.append(
                "bootstrap_token: expected at least 32 visible ASCII characters without blanks "
                "(`openssl rand -hex 32` makes some), for whoever guesses it may do everything"
            )
        if self.max_ahead_ms > self.max_late_ms:
            defects.append(
                f"max_ahead_ms: {self.max_ahead_ms} is above max_late_ms ({self.max_late_ms}), so that one "
                "fast clock would lock out those that are right"
            )
        if self.max_body_bytes > self.max_batch_body_bytes:
            defects.append(
                f"max_body_bytes: {self.max_body_bytes} is above max_batch_body_bytes "
                f"({self.max_batch_body_bytes})"
            )
        # A quarter of it is for small bodies, and what is left has to hold the largest.
        if self.max_reading_bytes < 2 * self.max_batch_body_bytes:
            defects.append(
                f"max_reading_bytes: {self.max_reading_bytes} is below twice max_batch_body_bytes "
                f"({self.max_batch_body_bytes})"
            )
        if defects:
            raise SettingsError(*defects)

    def runtime_settings(self) -> RuntimeSettings:
        """What the runtime needs to know."""
        return RuntimeSettings(
            data=self.data,
            limits=self.limits(),
            deadline_s=self.deadline_s,
            detectors_max=self.max_detectors,
            max_resident=self.max_resident,
            idle_rest_s=self.idle_rest_s,
            journal_sync=self.journal_sync,
            snapshot_interval_s=self.snapshot_interval_s,
            snapshot_journal_bytes=self.snapshot_journal_bytes,
            snapshots_kept=self.snapshots_kept,
            waiting_max=self.max_waiting,
            waiting_bytes_max=self.max_waiting_bytes,
            answers_kept_bytes_max=self.max_answers_kept_bytes,
            spares=self.spares,
        )

    def limits(self) -> Limits:
        """The bounds that each detector holds its input to."""
        return Limits(
            text_bytes_max=self.max_condition_bytes,
            nodes_max=self.max_condition_nodes,
            depth_max=self.max_condition_depth,
            pattern_program_max=self.max_pattern_program,
            condition_preparation_max=self.max_condition_preparation,
            detector_preparation_max=self.max_detector_preparation,
            pattern_text_chars_max=self.max_pattern_text_chars,
            pattern_work_max=self.max_pattern_work,
            pattern_event_work_max=self.max_pattern_event_work,
            pattern_event_bytes_max=self.max_pattern_event_bytes,
            body_depth_max=self.max_body_depth,
            body_values_max=self.max_body_values,
            batch_events_max=self.max_batch_events,
            answer_bytes_max=self.max_answer_bytes,
            rules_max=self.max_rules,
            keys_max=self.max_keys,
            state_bytes_max=self.max_state_bytes,
            late_ms_max=self.max_late_ms,
            ahead_ms_max=self.max_ahead_ms,
        )


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Every setting, in the order of the documentation."""
    hints = typing.get_type_hints(Settings)
    return tuple(
        Setting(
            field.name,
            _type_of(hints[field.name], *field.metadata["bounds"]),
            field.default,
            field.metadata["text"],
        )
        for field in dataclasses.fields(Settings)
    )


def _type_of(hint: Any, least: Any, most: Any) -> click.ParamType[Any]:
    if typing.get_origin(hint) is Literal:
        return click.Choice(typing.get_args(hint), case_sensitive=False)
    if hint is int:
        return click.IntRange(least, most)
    if hint is float:
        return click.FloatRange(least, most)
    if hint is bool:
        return click.BOOL
    return click.STRING if hint in (str, str | None) else click.Path(path_type=Path, readable=False)


def settings_from(given: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Give the settings in force: what was `given` by name, else what the environment says, else the default.

    A given value is a text, or already of its kind; None is not given. An empty environment variable is one
    that is not set. Raises SettingsError with every defect.
    """
    known = {setting.name for setting in settings()}
    values: dict[str, Any] = {
        one.name: environment[one.variable] for one in settings() if environment.get(one.variable)
    }
    values |= {name: value for name, value in given.items() if name in known and value is not None}
    defects = [f"{name}: no such setting" for name in given if name not in known]
    if "bootstrap_token" in values and "bootstrap_token_file" in values:
        defects.append("bootstrap_token_file: bootstrap_token is set too; only one of them can be")
    elif "bootstrap_token_file" in values:
        try:
            values["bootstrap_token"] = read_secret(Path(values["bootstrap_token_file"]))
        except SecretFileError as error:
            defects.append(f"bootstrap_token_file: {error}")
    try:
        found = Settings(**values)
    except SettingsError as error:
        raise SettingsError(*defects, *error.defects) from None
    if defects:
        raise SettingsError(*defects)
    return found


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Give the variables that look like settings and are none: worth a warning, since they have no effect."""
    known = {setting.variable for setting in settings()} | _OTHER_VARIABLES
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


_OTHER_VARIABLES: Final = frozenset(
    {PREFIX + "TEST_DATA", PREFIX + "URL", PREFIX + "TOKEN", PREFIX + "TOKEN_FILE"}
)
"""Variables of the same family for the tests, and for the commands that call a running service."""
