"""What a process does for itself: its memory, its temporary files, its crashes."""
