"""`rule-detector test`: the tests that stand in rules files."""
