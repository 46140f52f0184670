"""What is in the file, byte by byte: keys, records, columns of rows, ids, options and state."""
