"""``python -m bench micro``: every operation is timed, and two source trees are told apart."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

import pytest

from bench import micro
from bench.framework.errors import UserError
from bench.material import operations


def _arguments(out: Path, **given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"against": None, "rounds": 1, "only": None, "built": None, "out": out, **given})


def test_every_operation_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    micro.run(_arguments(tmp_path))
    rows = json.loads((tmp_path / "micro.json").read_text(encoding="utf-8"))["rows"]
    assert [row["operation"] for row in rows] == [name.replace("_", " ") for name in operations.NAMES]
    assert all(row["µs"] > 0 for row in rows)
    assert "| query " in capsys.readouterr().out
    assert set(micro.FASTER) <= set(operations.NAMES)


def test_a_commit_is_measured_beside_this_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The build is left out: the other tree is a link to this one, told apart by its path."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "lsqindex").symlink_to(micro.ROOT / "lsqindex")
    monkeypatch.setattr(micro, "built", lambda commit, folder: other)
    micro.run(_arguments(tmp_path, against="base", only="encode", rounds=3))
    record = json.loads((tmp_path / "micro.json").read_text(encoding="utf-8"))
    assert record["machine"]["before"] == "base"
    (row,) = record["rows"]
    assert row["before µs"] > 0 and row["low"] <= row["ratio"] <= row["high"]
    assert "before / now" in capsys.readouterr().out


def test_a_package_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """A tree without the package would measure whatever is installed."""
    tree = tmp_path / "tree"
    tree.mkdir()
    with pytest.raises(UserError, match=r"was imported instead|ended"):
        micro.Version(tree, tmp_path / "work")


def test_the_sources_of_a_commit_are_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "setup.py").write_text("open('compiled', 'a').write('x')\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(micro, "ROOT", repository)
    for _ in range(2):
        tree = micro.built("HEAD", tmp_path / "built")
    assert (tree / "compiled").read_text() == "x"
    (repository / "setup.py").write_text("raise SystemExit('no compiler')\n")
    subprocess.run([*git, "commit", "-qam", "two"], check=True)
    with pytest.raises(UserError, match="holds something else"):
        micro.built("HEAD", tmp_path / "built")
    with pytest.raises(UserError, match="no compiler"):
        micro.built("HEAD", tmp_path / "another")
    with pytest.raises(UserError, match="no-such-commit"):
        micro.built("no-such-commit", tmp_path / "third")


def test_an_unknown_operation_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no operation dance"):
        micro.run(_arguments(tmp_path, only="dance"))
