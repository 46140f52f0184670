"""What pytest must not collect: the plugin's own tests need it installed (see test_registry.py)."""

collect_ignore = ["plugin_package"]
