"""What people look at: what a detector holds, standing verdicts, timelines and comparisons."""
