"""What pytest must not collect, and what several test files need."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Hundreds of tests start a Python that imports the package. Where bytecode must not be stored beside the sources, each
# would compile all of it again: so it is stored elsewhere.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / "build" / "bytecode")

#: Scripts that tests start.
collect_ignore = ["crash", "damage"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own into which pip has installed the example plugin, encoder "sign-pca"."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(Path(__file__).parents[1] / "examples" / "plugin_template", folder / "source")
    target = folder / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-index", "--no-deps",
         "--disable-pip-version-check", "--target", str(target), str(source)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return target
