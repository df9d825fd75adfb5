"""Process-wide concerns: memory, temporary files, crash reports."""
