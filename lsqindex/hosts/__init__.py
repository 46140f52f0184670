"""lsqindex inside other programs: an adapter for each host, none imported until asked for."""
