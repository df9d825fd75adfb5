"""Concurrency: background tasks, threads, event loops in threads, and how late a loop is."""
