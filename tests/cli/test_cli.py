"""The command line: every command, its answers for people and programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from lsqindex import Cells, Index, MultiIndex

from .running import VECTORS, run


def test_create_takes_what_an_index_takes(tmp_path: Path) -> None:
    path = tmp_path / "a.lsq"
    told = run("create", path, "--dim", 16, "--metric", "cosine", "--encoder", "lsh", "--bits", 64, "-p", "axes=8",
               "--keep-vectors", "int8", "--subset", "multi-index", "--table-bits", 6, "--ids", "str",
               "--json")  # fmt: skip
    assert told.json["metric"] == "cosine" and told.json["ids"] == "str" and told.json["keep_vectors"] == "int8"
    with Index.open(path) as made:
        assert made.dim == 16 and made.encoder.config["axes"] == 8 and made.encoder.config["bits"] == 64
        assert made.subset == MultiIndex(6)
    run("create", tmp_path / "b.lsq", "--dim", 16, "--subset", "cells")
    with Index.open(tmp_path / "b.lsq") as made:
        assert made.subset == Cells()
    assert (
        "--subset multi-index"
        in run("create", tmp_path / "c.lsq", "--dim", 16, "--subset", "cells", "--table-bits", 6, code=2).err
    )


def test_create_can_take_the_dimensions_of_a_file(tmp_path: Path, vectors: Path) -> None:
    assert "8 dimensions" in run("create", tmp_path / "a.lsq", "--like", vectors).out


def test_create_does_not_overwrite(index: Path) -> None:
    assert "already exists" in run("create", index, "--dim", 8, code=3).err


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
    assert "'a' is not a 64-bit integer" in run("add", index, vectors, "--ids", tmp_path / "ids.txt", code=3).err


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
    assert "64-bit integer" in run("search", index, query, "--filter", "a", code=3).err


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
    # Everywhere: an older copy may lie in a free page, where damage does no harm.
    vector = VECTORS[100].tobytes()
    data = index.read_bytes().replace(vector, bytes([vector[0] ^ 1]) + vector[1:])
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
    assert told["same_digit"] > 0.95  # exact search: 0.9645
    assert Path(told["picture"]).read_bytes().startswith(b"\x89PNG")
