"""The command line: every command, its answers for people and programs, its exit codes."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from lsqindex import Index
from lsqindex._storage.format.records import REMEDY
from lsqindex.cli import main
from lsqindex.cli.remedies import for_the_shell

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "create", "add", "search", "get", "delete", "info", "check", "compact", "copy", "reencode", "train", "encoders",
    "tune", "demo",
}  # fmt: skip
RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((600, 8)).astype(np.float32)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*words: Any, code: int = 0) -> Done:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        got = main([str(word) for word in words])
    done = Done(got, out.getvalue(), err.getvalue())
    assert got == code, done
    assert "Traceback" not in done.err
    if code == 3:
        assert done.err.startswith("lsqindex: ") and done.err.count("\n") == 1, done.err
    return done


def process(*words: Any) -> subprocess.CompletedProcess[str]:
    # Typer colours pipes, too, where it finds one of these.
    colours = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in colours}
    command = [sys.executable, "-m", "lsqindex", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    np.save(tmp_path / "vectors.npy", VECTORS)
    return tmp_path / "vectors.npy"


@pytest.fixture
def index(tmp_path: Path, vectors: Path) -> Path:
    """Trained, with kept vectors and a multi-index."""
    path = tmp_path / "some.lsq"
    run("create", path, "--dim", 8, "--encoder", "lsh", "--bits", 32, "--keep-vectors", "float32",
        "--subset", "multi-index", "--table-bits", 8, "--train-size", 500)  # fmt: skip
    run("add", path, vectors)
    return path


# -- commands -----------------------------------------------------------------------------------


def test_create_takes_what_an_index_takes(tmp_path: Path) -> None:
    path = tmp_path / "a.lsq"
    told = run("create", path, "--dim", 16, "--metric", "cosine", "--encoder", "lsh", "--bits", 64, "-p", "axes=8",
               "--keep-vectors", "int8", "--subset", "multi-index", "--table-bits", 6, "--ids", "str",
               "--json")  # fmt: skip
    assert told.json["metric"] == "cosine" and told.json["ids"] == "str" and told.json["keep_vectors"] == "int8"
    with Index.open(path) as made:
        assert made.dim == 16 and made.encoder.config["axes"] == 8 and made.encoder.config["bits"] == 64
        assert made.subset is not None and made.subset.bits == 6


def test_create_can_take_the_dimensions_of_a_file(tmp_path: Path, vectors: Path) -> None:
    assert "8 dimensions" in run("create", tmp_path / "a.lsq", "--like", vectors).out


def test_create_does_not_overwrite(index: Path) -> None:
    assert "is there already" in run("create", index, "--dim", 8, code=3).err


@pytest.mark.parametrize(
    "words",
    [
        ["create", "a.lsq"],
        ["create", "a.lsq", "--dim", "8", "--like", "x.npy"],
        ["create", "a.lsq", "--dim", "eight"],
        ["create", "a.lsq", "--dim", "8", "--metric", "l3"],
        ["create", "a.lsq", "--dim", "8", "--table-bits", "8"],
        ["create", "a.lsq", "--dim", "8", "-p", "bits"],
        ["create", "a.lsq", "--dim", "8", "--bits", "8", "-p", "bits=16"],
        ["no-such-command"],
        ["info"],
    ],
)
def test_what_is_not_understood_exits_2(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(*words, code=2)
    assert not list(tmp_path.iterdir())


def test_an_unknown_encoder_is_answered_with_near_names(tmp_path: Path) -> None:
    assert "did you mean 'lsq'" in run("create", tmp_path / "a.lsq", "--dim", 8, "--encoder", "lsqq", code=3).err


def test_add_tells_what_it_did(index: Path, vectors: Path) -> None:
    told = run("add", index, vectors, "--batch", 100, "--json").json
    assert told["added"] == 600 and told["vectors"] == 1200
    assert "600 vectors added" in run("add", index, vectors).out


def test_add_takes_ids_and_replaces_them_if_asked(tmp_path: Path, index: Path, vectors: Path) -> None:
    text, array = tmp_path / "ids.txt", tmp_path / "ids.npy"
    text.write_text("\n".join(str(5000 + i) for i in range(600)) + "\n")
    np.save(array, np.arange(600))
    run("add", index, vectors, "--ids", text, "--batch", 256)
    assert "0" in run("add", index, vectors, "--ids", array, code=3).err
    assert run("add", index, vectors, "--ids", array, "--upsert", "--json").json["added"] == 0
    with Index.open(index) as opened:
        assert len(opened) == 1200 and 5599 in opened


def test_add_wants_an_id_for_each_vector(tmp_path: Path, index: Path, vectors: Path) -> None:
    (tmp_path / "ids.txt").write_text("1\n2\n")
    assert "2 ids" in run("add", index, vectors, "--ids", tmp_path / "ids.txt", code=3).err
    (tmp_path / "ids.txt").write_text("a\n")
    assert "'a' is not a whole number" in run("add", index, vectors, "--ids", tmp_path / "ids.txt", code=3).err


def test_string_ids(tmp_path: Path, vectors: Path) -> None:
    path, ids = tmp_path / "a.lsq", tmp_path / "ids.txt"
    ids.write_text("\n".join(f"doc {i}" for i in range(600)))
    run("create", path, "--dim", 8, "--ids", "str")
    assert "string ids" in run("add", path, vectors, code=3).err
    run("add", path, vectors, "--ids", ids)
    (answer,) = run("search", path, json.dumps(VECTORS[7].tolist()), "--k", 1, "--json").json
    assert answer["matches"][0]["id"] == "doc 7"
    assert run("delete", path, "doc 7", "--json").json == {"deleted": 1, "vectors": 599}


def test_search_answers_people_and_programs(index: Path, vectors: Path) -> None:
    answers = run("search", index, vectors, "--k", 3, "--rerank", 50, "--json").json
    assert [answer["query"] for answer in answers] == list(range(600))
    assert [answer["matches"][0]["id"] for answer in answers] == list(range(600))
    lines = run("search", index, json.dumps(VECTORS[:2].tolist()), "--k", 2, "--rerank", 9).out.splitlines()
    assert lines[0].split() == ["query", "rank", "id", "distance"] and len(lines) == 2 + 4
    assert lines[2].split()[:3] == ["0", "1", "0"]


def test_search_does_as_the_index_does(index: Path) -> None:
    query = json.dumps(VECTORS[3].tolist())
    options = {"k": 5, "strategy": "subset", "probes": 20, "candidates": 40, "rerank": 30, "distance": "asymmetric"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    (answer,) = run("search", index, query, *words, "--json").json
    with Index.open(index) as opened:
        found = opened.search(VECTORS[3], **options)  # type: ignore[arg-type]
    assert [match["id"] for match in answer["matches"]] == found.ids.tolist()


def test_search_filters(tmp_path: Path, index: Path) -> None:
    query, ids = json.dumps(VECTORS[3].tolist()), tmp_path / "ids.txt"
    ids.write_text("5\n6\n")
    for only in ("5,6", ids, f"@{ids}"):
        (answer,) = run("search", index, query, "--filter", only, "--json").json
        assert {match["id"] for match in answer["matches"]} == {5, 6}
    assert "whole number" in run("search", index, query, "--filter", "a", code=3).err


def test_a_json_object_is_a_filter_over_payloads(tmp_path: Path) -> None:
    path, query = tmp_path / "a.lsq", json.dumps(VECTORS[3].tolist())
    with Index.create(path, dim=8, ids="str", keep_vectors=None) as made:
        made.add(VECTORS[:9], [f"id {i}, x" for i in range(9)], [{"lang": "en" if i % 2 else "de"} for i in range(9)])
    (answer,) = run("search", path, query, "--filter", '{"lang": "en"}', "--json").json
    assert {match["id"] for match in answer["matches"]} == {f"id {i}, x" for i in (1, 3, 5, 7)}
    (answer,) = run("search", path, query, "--filter", '["id 2, x"]', "--json").json
    assert [match["id"] for match in answer["matches"]] == ["id 2, x"]
    assert "not a JSON object" in run("search", path, query, "--filter", '{"lang": en}', code=3).err
    assert "no operator '$no'" in run("search", path, query, "--filter", '{"lang": {"$no": 1}}', code=3).err
    for nothing in ('{"lang": "vi"}', "id 1"):
        done = run("search", path, query, "--filter", nothing, "--json")
        assert done.json[0]["matches"] == [] and "nothing can be found" in done.err


def test_a_filter_can_be_longer_than_the_name_of_a_file(index: Path) -> None:
    query, many = json.dumps(VECTORS[3].tolist()), ",".join(map(str, range(200, 500)))
    (answer,) = run("search", index, query, "--filter", many, "--json").json
    assert all(200 <= match["id"] < 500 for match in answer["matches"])
    assert run("search", index, query, "--filter", "700,800").err.count("none of these ids") == 1


def test_a_long_table_is_the_table_of_a_short_one(index: Path, vectors: Path) -> None:
    lines = run("search", index, vectors, "--k", 3).out.splitlines()
    assert lines[0].split() == ["query", "rank", "id", "distance"] and len(lines) == 2 + 1800
    few = run("search", index, json.dumps(VECTORS[599:].tolist()), "--k", 3).out.splitlines()
    assert [line.split()[1:] for line in lines[-3:]] == [line.split()[1:] for line in few[2:]]


@pytest.mark.parametrize("query", ["[1, 2", '["a"]', "[[1, 2], [1]]", "[" * 5000])
def test_search_refuses_bad_json(index: Path, query: str) -> None:
    assert "JSON list" in run("search", index, query, code=3).err


def test_search_refuses_other_dimensions(index: Path) -> None:
    assert "8 dimensions are needed" in run("search", index, "[1, 2]", code=3).err


def test_get(tmp_path: Path, index: Path) -> None:
    (first, second) = run("get", index, 4, 5, "--json").json
    assert first["id"] == 4 and np.allclose(second["vector"], VECTORS[5])
    assert run("get", index, 4).out.splitlines()[2].split()[0] == "4"
    (tmp_path / "ids.txt").write_text("9\n")
    run("get", index, "--ids", tmp_path / "ids.txt", "-o", tmp_path / "got.npy")
    assert np.allclose(np.load(tmp_path / "got.npy"), VECTORS[9:10])
    assert "99999" in run("get", index, 99999, code=3).err
    run("get", index, code=2)


def test_delete_compact_and_copy(tmp_path: Path, index: Path) -> None:
    assert run("delete", index, 1, 2, 2, 12345, "--json").json == {"deleted": 2, "vectors": 598}
    assert "before" in run("compact", index).out
    assert set(run("compact", index, "--json").json) == {"bytes_before", "bytes_after"}
    copy = tmp_path / "copy.lsq"
    assert run("copy", index, copy, "--json").json["vectors"] == 598
    assert "--force" in run("copy", index, copy, code=3).err
    assert "598 vectors" in run("copy", index, copy, "--force").out
    assert "sound" in run("check", copy).out


def test_info_is_what_stats_tells(index: Path) -> None:
    told = run("info", index, "--json").json
    with Index.open(index) as opened:
        assert told == {**opened.stats(), "parameters": opened.encoder.config}
    assert re.search(r"^vectors +600$", re.sub(" +$", "", run("info", index).out, flags=re.M), re.M)


def test_check_exits_1_where_something_is_wrong(tmp_path: Path, index: Path) -> None:
    assert run("check", index, "--json").json == {"path": str(index), "sound": True, "problems": []}
    data = bytearray(index.read_bytes())
    at = data.find(VECTORS[100].tobytes())
    data[at] ^= 1
    (tmp_path / "damaged.lsq").write_bytes(data)
    assert run("check", tmp_path / "damaged.lsq", code=1).out
    assert not run("check", tmp_path / "damaged.lsq", "--json", code=1).json["sound"]
    (tmp_path / "garbage.lsq").write_bytes(b"garbage" * 5000)
    assert run("check", tmp_path / "garbage.lsq", code=1).out
    assert run("check", tmp_path / "nothing.lsq", code=3).err


def test_train_and_reencode(index: Path, vectors: Path) -> None:
    told = run("reencode", index, "pq", "--bits", 16, "-p", "field_bits=4", "--json", code=3)
    assert "subset" in told.err  # 8-bit tables are for binary codes
    told = run("reencode", index, "itq", "--bits", 8, "--json")
    assert told.json["encoder"] == "itq" and told.json["parameters"]["bits"] == 8
    assert "ITQ" in run("train", index, "--on", vectors).out
    assert run("train", index, "--json").json["trained"]
    assert "takes no 'axis'" in run("reencode", index, "lsh", "-p", "axis=3", code=3).err


def test_encoders() -> None:
    assert {one["name"] for one in run("encoders", "--json").json} >= {"lsq", "itq", "pq", "flat"}
    assert "Linear Subspace Quantization" in run("encoders").out


def test_demo(tmp_path: Path) -> None:
    told = run("demo", "--dir", tmp_path / "digits", "--json").json
    assert not told["problems"] and told["index"]["vectors"] == 1597
    rows = {row["encoder"]: row for row in told["encoders"]}
    assert rows["brute force"]["recall"] == 1 and rows["lsq"]["reranked"] > 0.95
    assert Path(told["picture"]).read_bytes().startswith(b"\x89PNG")


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
    assert missing.returncode == 3 and missing.stderr == "lsqindex: nothing.npy: there is no such file\n"
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
    assert "--subset multi-index" in run("search", plain, query, "--strategy", "subset", code=3).err
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
    data = bytearray(index.read_bytes())
    data[data.find(VECTORS[100].tobytes())] ^= 1
    (tmp_path / "damaged.lsq").write_bytes(data)
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
