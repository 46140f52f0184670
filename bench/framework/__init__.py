"""What all benchmarks share: sections, rows that are kept, bars, turns, progress and pages."""
