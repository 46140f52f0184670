"""The multi-index of the paper: posting lists of rows by parts of their codes."""
