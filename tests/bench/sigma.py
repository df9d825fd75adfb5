"""All Windows rules of SigmaHQ in one detector, over a recorded attack, in process.

    RULE_DETECTOR_TEST_DATA=… python -m tests.bench.sigma             rules, events/s
    RULE_DETECTOR_TEST_DATA=… python -m tests.bench.sigma --profile   and where the time goes

The folder has `sigmahq-rules.tar.gz` and `windows-dcsync.ndjson.gz`. The recording is evaluated twice before
it is measured, so that no code is generated meanwhile.
"""

import argparse
import cProfile
import os
import pstats
import tarfile
import tempfile
import time
from pathlib import Path

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.sigma.conversion import Converter
from engine import Detector

KEYWORD_FIELDS = ("Message",)
SHOWN = 20


def main() -> None:
    """Convert, add, evaluate, and print what each took."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sigma", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true", help="print the functions that take longest")
    options = parser.parse_args()
    data = Path(os.environ["RULE_DETECTOR_TEST_DATA"])
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(data / "sigmahq-rules.tar.gz") as packed:
        packed.extractall(folder, filter="data")
        conversion = Converter(keyword_fields=KEYWORD_FIELDS).convert([f"{folder}/rules/windows"])
    print(f"converted  {len(conversion.converted)} rules in {time.process_time() - started:.1f} s")
    started = time.process_time()
    detector = Detector()
    for place, each in enumerate(conversion.converted):
        detector.add_rule(str(place), each.condition)
    print(f"added      in {time.process_time() - started:.1f} s")
    with Recording(str(data / "windows-dcsync.ndjson.gz"), None, ReadingOptions("@timestamp")) as recording:
        events = [(event.fields, event.time_us / 1000) for event in recording.events()]
    last_ms = max(time_ms for _, time_ms in events)
    fired = sum(len(rules) for rules in detector.evaluate_many([(*event, None) for event in events]))
    profile = cProfile.Profile()
    again = [(fields, last_ms, None) for fields, _ in events]
    # Rules that joined the index at the first pass are analysed at the second.
    detector.evaluate_many(again)
    if options.profile:
        profile.enable()
    started = time.process_time()
    detector.evaluate_many(again)
    took_s = time.process_time() - started
    profile.disable()
    print(f"evaluated  {len(events)} events, {fired} firings, {len(events) / took_s:.0f} events/s")
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN)


if __name__ == "__main__":
    main()
