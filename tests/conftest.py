"""What pytest must not collect: a plugin's own tests, which need it installed, and scripts that tests start."""

collect_ignore = ["plugin_package", "crash"]
