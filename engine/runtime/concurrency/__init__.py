"""What goes on at the same time: background tasks, batches of calls, threads, and how late the loop is."""
