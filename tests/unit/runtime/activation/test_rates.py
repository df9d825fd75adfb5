"""How busy detectors are."""

from engine.runtime.activation.loads import RateMeter, Rates, Totals


def test_rates_are_those_since_the_last_look_and_one_that_is_alone_has_all_of_the_processor_time() -> None:
    used_s = 100.0
    meter = RateMeter(lambda: used_s)
    assert meter.measure(1_000.0, {7: Totals(50, 0.0)}) == {}
    used_s = 101.0
    assert meter.measure(1_005.0, {7: Totals(60, 0.0)}) == {7: Rates(2.0, 0.2)}
    used_s = 104.0
    two = {7: Totals(60, 0.5), 8: Totals(1_000, 4.0)}
    assert meter.measure(1_010.0, two) == {7: Rates(0.0, 0.1)}
    both = {7: Totals(110, 0.5), 8: Totals(1_001, 6.0)}
    assert meter.measure(1_015.0, both) == {7: Rates(10.0, 0.0), 8: Rates(0.2, 0.4)}
