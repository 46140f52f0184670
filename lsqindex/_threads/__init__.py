"""What threads need that Python's own library does not give."""
