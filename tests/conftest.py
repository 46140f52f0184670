"""What pytest must not collect: the plugin's own tests need it installed (see test_registry.py)."""

collect_ignore = ["plugin_package"]

#: Scripts that tests run in processes of their own; pytest is not to import them for their examples.
collect_ignore = ["crash"]
