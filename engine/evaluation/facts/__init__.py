"""What an event's facts are: names, values, and what is looked up in them once for each event."""
