"""What benchmarks measure with: data, filled indexes, the systems that are compared, and steps of a search."""
