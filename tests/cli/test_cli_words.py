"""Errors, pipes, interruptions, exit codes and help of the command line."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format.records import REMEDY
from lsqindex.cli.remedies import for_the_shell
from tests.settings import ROOT

from .running import COMMANDS, VECTORS, process, run

# -- errors, pipes, interruptions -----------------------------------------------------------------


@pytest.mark.parametrize("command", ["info", "check", "compact", "train"])
def test_no_such_index(command: str, tmp_path: Path) -> None:
    assert "nothing.lsq" in run(command, tmp_path / "nothing.lsq", code=3).err


def test_nan_is_refused_and_its_place_told(tmp_path: Path, index: Path) -> None:
    bad = VECTORS.copy()
    bad[450, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    told = run("add", index, tmp_path / "bad.npy", "--batch", 200, code=3).err
    assert "rows 400 to 599" in told and "row 50 " in told and "NaN" in told
    with Index.open(index) as opened:
        assert len(opened) == 600 + 400


def test_a_pipe_gets_plain_text_and_errors_have_no_traceback(index: Path) -> None:
    done = process("info", index)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert process("--help").stdout.count("\x1b") == 0
    missing = process("search", index, "nothing.npy")
    assert missing.returncode == 3 and missing.stderr == "lsqindex: nothing.npy: no such file\n"
    assert missing.stdout == ""


@pytest.mark.parametrize("form", [["--json"], []])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, index: Path, form: list[str]) -> None:
    np.save(tmp_path / "many.npy", np.tile(VECTORS, (20, 1)))
    words = [sys.executable, "-m", "lsqindex", "search", str(index), str(tmp_path / "many.npy"), *form]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.read(100)
        running.stdout.close()
        told = running.stderr.read()
    assert running.returncode == 141 and told == b""


def interruptible(words: list[str], stdin: int | None = None) -> subprocess.Popen[bytes]:
    """A process that Ctrl-C reaches: one that a shell started in the background would pass on that it is ignored."""

    def heed() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=stdin, stdout=pipe, stderr=pipe, cwd=ROOT, preexec_fn=heed)


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to one process there")
def test_ctrl_c_leaves_the_last_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.lsq"
    run("create", path, "--dim", 8, "--encoder", "flat")
    words = [sys.executable, "-m", "lsqindex", "add", str(path), "-", "--dim", "8", "--batch", "100"]
    with interruptible(words, stdin=subprocess.PIPE) as adding:
        assert adding.stdin is not None and adding.stderr is not None
        adding.stdin.write(VECTORS[:550].tobytes())  # and no end: it waits for more
        adding.stdin.flush()
        with Index.open(path, read_only=True) as reading:
            until = time.monotonic() + 30
            while len(reading) < 500 and time.monotonic() < until:
                time.sleep(0.02)
        adding.send_signal(signal.SIGINT)
        adding.wait(30)
        told = adding.stderr.read().decode()
    assert adding.returncode == 130 and "Traceback" not in told
    assert "500 vectors are in the index" in told and told.endswith("lsqindex: interrupted\n")
    with Index.open(path) as left:
        assert len(left) == 500 and left.check() == []
        assert np.array_equal(left.get(np.arange(500)), VECTORS[:500])


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to one process there")
def test_ctrl_c_while_it_is_writing(tmp_path: Path) -> None:
    path, file = tmp_path / "a.lsq", tmp_path / "many.npy"
    np.lib.format.open_memmap(file, "w+", np.float32, (400_000, 8))[:] = 1
    run("create", path, "--dim", 8, "--encoder", "flat")
    words = [sys.executable, "-m", "lsqindex", "add", str(path), str(file), "--batch", "200"]
    with interruptible(words) as adding:
        with Index.open(path, read_only=True) as reading:
            until = time.monotonic() + 30
            while len(reading) < 1000 and time.monotonic() < until:
                time.sleep(0.01)
        adding.send_signal(signal.SIGINT)
        adding.wait(30)
    assert adding.returncode == 130
    with Index.open(path) as left:
        assert 1000 <= len(left) < 400_000 and len(left) % 200 == 0 and left.check() == []


def test_without_typer_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from lsqindex.cli import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 3 and "pip install 'lsqindex[cli]'" in done.stderr and "Traceback" not in done.stderr


def test_the_library_alone_imports_nothing_of_this() -> None:
    code = "import lsqindex, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    plain = subprocess.run(
        [sys.executable, "-c", code.replace("lsqindex, ", "")], capture_output=True, text=True, cwd=ROOT
    )
    new = set(done.stdout.split()) - set(plain.stdout.split()) - set(sys.stdlib_module_names)
    new -= {name for name in new if name.startswith("_") or name == "cython_runtime"}  # made up by Cython
    assert new <= {"lsqindex", "numpy", "lmdb", "msgpack"}


# -- the words of the command line ----------------------------------------------------------------


def test_errors_name_commands_and_options(tmp_path: Path, index: Path, vectors: Path) -> None:
    query = json.dumps(VECTORS[3].tolist())
    (tmp_path / "ids.txt").write_text("".join(f"{i}\n" for i in range(600)))
    plain, words = tmp_path / "plain.lsq", tmp_path / "words.lsq"
    run("create", plain, "--dim", 8)
    run("create", words, "--dim", 8, "--ids", "str")
    assert "choose another name" in run("create", index, "--dim", 8, code=3).err
    assert "lsqindex create" in run("info", tmp_path / "none.lsq", code=3).err
    assert "--upsert" in run("add", index, vectors, "--ids", tmp_path / "ids.txt", code=3).err
    assert "--id-column" in run("add", words, vectors, code=3).err
    assert "--subset cells or multi-index" in run("search", plain, query, "--strategy", "subset", code=3).err
    assert "--subset multi-index" in run("search", plain, query, "--candidates", 3, code=3).err
    assert "--bits 8" in run("create", tmp_path / "b.lsq", "--dim", 8, "--encoder", "itq", "--bits", 9, code=3).err


def test_no_message_of_the_library_speaks_python_on_the_command_line() -> None:
    python = re.compile(
        r"\bIndex\.\w|\b(save|compact|check|delete|add|train|reencode|search|get)\("
        r"|(?<!-p )\b(bits|ids|keep_vectors|metric|encoder|subset|strategy|distance|rerank|upsert|train_size|wait)=\w"
    )
    seen = 0
    for path in (ROOT / "lsqindex").rglob("*.py"):
        if {"hosts", "cli"} & set(path.relative_to(ROOT).parts) or path.name == "testing.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            for argument in node.exc.args:
                message = _message(argument)
                about_memory = "in memory" in message or message.startswith(("save()", "compact()", "wait="))
                if python.search(message) and not about_memory:  # (the command line has no index in memory)
                    seen += 1
                    assert not python.search(for_the_shell(message)), (path.name, message, for_the_shell(message))
    assert seen > 10
    assert not python.search(for_the_shell(REMEDY))


def _message(node: ast.expr) -> str:
    """The text of a message; what is put into it is "7"."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def test_check_speaks_so_too(index: Path, tmp_path: Path) -> None:
    vector = VECTORS[100].tobytes()  # everywhere: an older copy may lie in a free page
    (tmp_path / "damaged.lsq").write_bytes(index.read_bytes().replace(vector, bytes([vector[0] ^ 1]) + vector[1:]))
    told = run("check", tmp_path / "damaged.lsq", code=1).out
    assert "lsqindex copy" in told and "save(" not in told


def test_a_warning_is_one_line(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stats(self: Index) -> Any:
        warnings.simplefilter("default")
        warnings.warn("something is odd; save(path) first", UserWarning, stacklevel=2)
        return real(self)

    real = Index.stats
    monkeypatch.setattr(Index, "stats", stats)
    assert run("info", index).err == "lsqindex: warning: something is odd; lsqindex copy first\n"


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals there")
def test_the_bar_shows_that_the_index_is_training(tmp_path: Path, vectors: Path) -> None:
    import pty

    path = tmp_path / "a.lsq"
    run("create", path, "--dim", 8, "--train-size", 500, "--bits", 16, "--keep-vectors", "float32")
    for words in (["add", str(path), str(vectors)], ["train", str(path)]):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "lsqindex", *words]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=ROOT, env=environment) as running:
            os.close(theirs)
            told = b""
            with contextlib.suppress(OSError):  # a terminal whose other end is closed
                while part := os.read(ours, 1 << 16):
                    told += part
        os.close(ours)
        assert running.returncode == 0
        assert re.search(rb"training[^\r\n]*[1-9]\d*/\d+", told), told
        assert b"encoding" in told


# -- help and documentation -----------------------------------------------------------------------


def test_help_has_every_command_with_an_example() -> None:
    told = re.sub(r"\x1b\[[0-9;]*m", "", run("--help").out)
    for command in COMMANDS:
        assert re.search(rf"^│ {command} ", told, re.M), command
        help_text = re.sub(r"\x1b\[[0-9;]*m", "", run(command, "--help").out)
        assert f"Example: lsqindex {command}" in help_text, command
    assert run("--version").out.strip()


def test_the_page_has_every_command_and_every_option() -> None:
    import typer.main

    from lsqindex.cli.app import app

    group: Any = typer.main.get_command(app)
    assert set(group.commands) == COMMANDS
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### `lsqindex (\w+)`\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    assert set(sections) == COMMANDS
    reading = page.partition("## Files of vectors")[2]
    for name, command in group.commands.items():
        options = {max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}
        listed = set(re.findall(r"`(--[a-z-]+)", sections[name]))
        shared = {option for option in options if f"`{option}" in reading}
        assert options - shared <= listed | {"--json", "--help"}, (name, options - shared - listed)
        assert listed <= options, (name, listed - options)
