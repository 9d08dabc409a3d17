"""Studies: compute only, return records; one study a file."""
