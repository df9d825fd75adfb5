"""The past as an event finds it: what temporal nodes remember, and until when their verdicts stay."""
