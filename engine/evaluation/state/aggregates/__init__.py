"""What `count`, `distinct`, `sum` and `avg` keep of the past: times, values, and sums by panes."""
