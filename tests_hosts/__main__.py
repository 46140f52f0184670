"""``python -m tests_hosts [SUITE …]``: the hosts' suites, each in a process of its own, and how many tests each ran.

A suite is a host's own checks of what plugs into it, our tests, and the examples of its page in docs/hosts. Nothing is
skipped: a host that is not installed, a skipped test and a suite without tests are failures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]

#: Test files, adapters (their docstrings) and pages.
SUITES = {
    "txtai": ("tests_hosts/test_txtai.py", "lsqindex/hosts/txtai.py", "docs/hosts/txtai.md"),
    "langchain": ("tests_hosts/langchain", "lsqindex/hosts/langchain.py", "docs/hosts/langchain.md"),
    "llama-index": ("tests_hosts/llama_index", "lsqindex/hosts/llama_index.py", "docs/hosts/llama-index.md"),
    # (The docstrings of the document store and its retriever are run by test_suites.py.)
    "haystack": (
        "tests_hosts/haystack",
        "lsqindex/hosts/haystack_filters.py",
        "lsqindex/hosts/haystack_documents.py",
        "docs/hosts/haystack.md",
    ),
    "scikit-learn": ("tests_hosts/test_sklearn.py", "lsqindex/hosts/sklearn.py", "docs/hosts/scikit-learn.md"),
    "faiss": ("tests_hosts/test_faiss_like.py", "lsqindex/hosts/faiss_like.py", "docs/hosts/faiss.md"),
    "no host": ("tests_hosts/test_no_host.py", "lsqindex/hosts/files.py", "docs/hosts/index.md"),
    "benchmark": ("tests_hosts/test_bench_hosts.py",),
}

#: scikit-learn checks arrays of other libraries only where SciPy is told to take them; no host may fetch anything.
ENVIRONMENT = {"SCIPY_ARRAY_API": "1", "HF_HUB_OFFLINE": "1", "HAYSTACK_TELEMETRY_ENABLED": "False"}


@dataclass(frozen=True)
class Outcome:
    """What became of a suite's tests."""

    suite: str
    tests: int
    failed: int
    skipped: int

    @property
    def good(self) -> bool:
        """Whether all that there is was run, and passed."""
        return self.tests > 0 and not self.failed and not self.skipped


def run(suite: str) -> Outcome:
    """Run a suite; what it prints is seen as it comes."""
    print(f"\n== {suite}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-c", "tests_hosts/pytest.ini", "--rootdir", ".", f"--junitxml={report}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, *SUITES[suite]], cwd=ROOT, env={**os.environ, **ENVIRONMENT}
        )
        found = list(ElementTree.parse(report).iter("testsuite")) if report.exists() else []
    tests, errors, failures, skipped = (
        sum(int(part.get(name, 0)) for part in found) for name in ("tests", "errors", "failures", "skipped")
    )
    return Outcome(suite, tests, errors + failures, skipped)


def main() -> None:
    """Run the suites that are named, or all; exit 1 unless everything passed."""
    chosen = sys.argv[1:] or list(SUITES)
    unknown = sorted(set(chosen) - set(SUITES))
    if unknown:
        sys.exit(f"tests_hosts: no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    outcomes = [run(suite) for suite in chosen]
    print(f"\n{'suite':14} {'tests':>6} {'failed':>7} {'skipped':>8}")
    for outcome in outcomes:
        print(f"{outcome.suite:14} {outcome.tests:6} {outcome.failed:7} {outcome.skipped:8}")
    bad = [outcome.suite for outcome in outcomes if not outcome.good]
    sys.exit(f"tests_hosts: not all passed: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
