"""The engine of the Rule Detector Service, for use in process: no server, no Ray.

from rule_detector import Detector, format, parse

detector = Detector()
rule_id = detector.add_rule(name="burst", condition='per user once within 10m ok == false')
actions = detector.evaluate({"user": "ada", "ok": False}, 1_700_000_000_000)
"""

import engine

if not hasattr(engine, "Detector"):
    raise ImportError(
        f"rule_detector needs the package `engine` that is installed with it, but Python finds {engine!r}: "
        "rename that one, or run from another folder"
    )

from engine import *  # noqa: F403 -- all that is in `__all__`
from engine import __all__ as __all__
