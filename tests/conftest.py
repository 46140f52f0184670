"""What pytest must not collect: scripts that tests start."""

collect_ignore = ["crash"]
