"""Where things are, how long tests may take, and what some need of the system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Index files of every format, which must open for ever.
FIXTURES = ROOT / "tests" / "fixtures"
#: make test-long: the same properties, tried much more often.
LONG = os.environ.get("LSQINDEX_LONG") == "1"

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
