import io

from rich.console import Console

from api.cli.replaying.feeding import BarGauge, LineGauge


def test_plain_lines_come_every_few_seconds_and_at_the_end() -> None:
    said: list[str] = []
    times_s = iter([0.0, 1.0, 6.0, 7.0, 10.0])
    with LineGauge(said.append, 1000, lambda: next(times_s)) as gauge:
        gauge.advance(100, 100)
        gauge.advance(200, 250)
        gauge.advance(100, 500)
    assert said == ["300 events so far, 50/s, 25 %, 18 s left", "400 events in 10.0 s, 40/s"]


def test_nobody_guesses_the_time_left_of_a_stream_without_a_size() -> None:
    said: list[str] = []
    times_s = iter([0.0, 6.0, 6.0])
    with LineGauge(said.append, None, lambda: next(times_s)) as gauge:
        gauge.advance(6, 5)
    assert said[0] == "6 events so far, 1/s"


def test_a_terminal_gets_a_bar_with_events_rate_and_time_left() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with BarGauge(console, 1000) as gauge:
        gauge.advance(1234, 1000)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1,234 events" in shown
    assert "/s" in shown
    assert "left" in shown
