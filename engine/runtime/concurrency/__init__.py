"""What goes on at the same time: background tasks, threads, other loops, and how late a loop is."""
