"""Without a host: lsqindex imports none, and an adapter whose host is missing says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_lsqindex_imports_no_adapter_and_no_host() -> None:
    done = run("import sys, lsqindex, lsqindex.hosts; print(*sys.modules)")
    loaded = done.stdout.split()
    assert "lsqindex.hosts" in loaded
    assert not [name for name in loaded if name.startswith("lsqindex.hosts.")]
    hosts = {"txtai", "langchain_core", "llama_index", "haystack", "sklearn", "faiss", "torch", "scipy"}
    assert not hosts & set(loaded)


def test_the_faiss_shaped_index_needs_no_faiss() -> None:
    done = run(
        "import sys; sys.modules['faiss'] = None; from lsqindex.hosts.faiss_like import Index; print(Index(2).d)"
    )
    assert done.stdout == "2\n", done.stderr


@pytest.mark.parametrize(
    ("adapter", "host"),
    [
        ("txtai", "txtai"),
        ("langchain", "langchain_core"),
        ("llama_index", "llama_index"),
        ("haystack", "haystack"),
        ("sklearn", "sklearn"),
    ],
)
def test_missing_host(adapter: str, host: str) -> None:
    done = run(f"import sys; sys.modules['{host}'] = None; import lsqindex.hosts.{adapter}")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError:")
    assert f"pip install 'lsqindex[{adapter.replace('_', '-')}]'" in last
