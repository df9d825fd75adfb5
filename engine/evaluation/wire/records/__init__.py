"""Plain records, as log shippers send them: found in a body, made events of, evaluated, and counted."""
