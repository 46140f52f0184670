"""The suites of hosts, run against their adapters: ``make test-hosts``."""
