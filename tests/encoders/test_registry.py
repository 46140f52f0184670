"""Names of encoders: built in, registered, and brought by installed packages."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lsqindex import available_encoders, make_encoder, register_encoder
from lsqindex.encoders import encoder_class, from_bytes
from lsqindex.encoders.lsh import LSH
from lsqindex.errors import DuplicateEncoderError, ParameterError, UnknownEncoderError
from tests.processes import environment
from tests.settings import ROOT

PLUGIN = ROOT / "examples" / "plugin_template"
BUILT_IN = ("ckmeans", "flat", "itq", "kmeans", "lsh", "lsq", "okmeans", "pq")


def run(code: str, *paths: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Python with these folders importable, and lsqindex."""
    command = [sys.executable, "-B", "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment(*paths), capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


# -- names and parameters -----------------------------------------------------------------------


def test_all_built_in_encoders_have_their_names() -> None:
    assert set(BUILT_IN) <= set(available_encoders())
    assert list(available_encoders()) == sorted(available_encoders())
    for name in BUILT_IN:
        assert encoder_class(name).name == name
        assert make_encoder(name).name == name


@pytest.mark.parametrize(("name", "near"), [("lsqq", "lsq"), ("ITQ", "itq"), ("kmean", "kmeans"), ("flatt", "flat")])
def test_a_name_with_a_slip_gets_a_suggestion(name: str, near: str) -> None:
    with pytest.raises(UnknownEncoderError) as caught:
        make_encoder(name)
    assert f"did you mean {near!r}" in str(caught.value) or f"or {near!r}" in str(caught.value)
    assert repr(name) in str(caught.value)


def test_an_unknown_name_lists_the_known_ones_in_a_sentence() -> None:
    with pytest.raises(KeyError) as caught:
        make_encoder("zzzzzz")
    assert all(name in str(caught.value) for name in BUILT_IN)
    assert "did you mean" not in str(caught.value)
    assert "'zzzzzz'. " in str(caught.value) or "'zzzzzz'; " in str(caught.value), "sentences end with a full stop"


@pytest.mark.parametrize("name", BUILT_IN)
def test_unknown_parameters_are_named_with_the_valid_ones(name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        make_encoder(name, bitz=3, colour="red")
    assert "'bitz', 'colour'" in str(caught.value)
    assert all(parameter in str(caught.value) for parameter in make_encoder(name).config)


def test_a_made_encoder_passes_through_and_takes_no_parameters() -> None:
    encoder = make_encoder("lsh", bits=8)
    assert make_encoder(encoder) is encoder
    with pytest.raises(ParameterError, match="only with the name of an encoder"):
        make_encoder(encoder, bits=9)


@pytest.mark.parametrize("name", [None, 3, b"lsq", ("lsq",)])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises((UnknownEncoderError, ParameterError)):
        make_encoder(name)  # type: ignore[arg-type]


def test_registering_a_built_in_name_tells_both_owners() -> None:
    with pytest.raises(DuplicateEncoderError) as caught:
        register_encoder("pq")(type("Mine", (LSH,), {"__module__": "my_module"}))
    assert "my_module.Mine" in str(caught.value)
    assert "lsqindex" in str(caught.value)
    assert encoder_class("pq").__module__ == "lsqindex.encoders.pq"
    assert LSH.name == "lsh"


def test_registering_a_name_twice_tells_both_owners_and_again_by_the_same_class_is_fine() -> None:
    first = type("First", (LSH,), {"__module__": "one"})
    register_encoder("test-twice")(first)
    register_encoder("test-twice")(type("First", (LSH,), {"__module__": "one"}))
    with pytest.raises(DuplicateEncoderError, match=r"two\.Second.*one\.First"):
        register_encoder("test-twice")(type("Second", (LSH,), {"__module__": "two"}))
    assert "test-twice" in available_encoders()


@pytest.mark.parametrize("name", ["", " lsq", "lsq ", None, 3])
def test_impossible_names_are_refused(name: object) -> None:
    with pytest.raises(ParameterError, match="name"):
        register_encoder(name)(LSH)  # type: ignore[arg-type]
    assert LSH.name == "lsh"


def test_listing_names_imports_no_encoder() -> None:
    done = run(
        """
        import sys, lsqindex
        print(*lsqindex.available_encoders())
        modules = [f"lsqindex.encoders.{name}" for name in lsqindex.available_encoders()]
        print([name for name in modules if name in sys.modules])
        lsqindex.make_encoder("lsh")
        print("lsqindex.encoders.lsh" in sys.modules, "lsqindex.encoders.lsq" in sys.modules)
        """
    )
    names, loaded, after = done.stdout.splitlines()
    assert set(names.split()) >= set(BUILT_IN)
    assert loaded == "[]"
    assert after == "True False"


# -- plugins ------------------------------------------------------------------------------------


def fake_distribution(folder: Path, name: str, module: str, code: str, entry: str) -> Path:
    """A second distribution on the path: a module and the metadata that pip would write."""
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lsqindex.encoders]\n{entry}\n")
    return folder


FIT_AND_STORE = """
import numpy as np
from lsqindex import make_encoder
from lsqindex.encoders import to_bytes
vectors = np.random.default_rng(0).standard_normal((200, 8))
encoder = make_encoder("sign-pca", bits=8).fit(vectors)
with open({path!r}, "wb") as file:
    file.write(to_bytes(encoder))
print(encoder.encode(vectors).tobytes().hex())
"""
READ_AND_ENCODE = """
import numpy as np
from lsqindex.encoders import from_bytes
vectors = np.random.default_rng(0).standard_normal((200, 8))
with open({path!r}, "rb") as file:
    encoder = from_bytes(file.read())
print(encoder.encode(vectors).tobytes().hex())
"""


def test_an_installed_plugin_is_known_by_name_and_stored_by_one_process_for_another(
    installed: Path, tmp_path: Path
) -> None:
    path = str(tmp_path / "encoder")
    assert "sign-pca" in run("import lsqindex; print(*lsqindex.available_encoders())", installed).stdout.split()
    wrote = run(FIT_AND_STORE.format(path=path), installed)
    read = run(READ_AND_ENCODE.format(path=path), installed)
    assert wrote.stdout == read.stdout
    assert len(wrote.stdout) > 200


def test_without_its_plugin_a_stored_encoder_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    path = tmp_path / "encoder"
    run(FIT_AND_STORE.format(path=str(path)), installed)
    with pytest.raises(UnknownEncoderError, match=r"sign-pca.*pip install lsqindex-sign-pca") as caught:
        from_bytes(path.read_bytes())
    assert "0.2.0" in str(caught.value)


def test_the_plugin_passes_the_conformance_tests(installed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(PLUGIN), "-c",
         str(PLUGIN / "pyproject.toml"), str(PLUGIN / "tests")],
        env=environment(installed), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_a_broken_plugin_is_an_error_of_its_own_and_disturbs_nobody(installed: Path, tmp_path: Path) -> None:
    code = "raise RuntimeError('no licence')"
    fake_distribution(tmp_path, "broken-thing", "broken_thing", code, "broken = broken_thing:X")
    fake_distribution(tmp_path, "wrong-thing", "wrong_thing", "X = dict", "wrong = wrong_thing:X")
    fake_distribution(tmp_path, "absent-thing", "absent_other", "", "absent = absent_thing:X")
    done = run(
        """
        import lsqindex
        from lsqindex.errors import PluginError
        assert {"broken", "wrong", "absent", "sign-pca", "lsq"} <= set(lsqindex.available_encoders())
        for name in ("broken", "wrong", "absent"):
            try:
                lsqindex.make_encoder(name)
            except PluginError as error:
                print(error)
        print(lsqindex.make_encoder("sign-pca"), lsqindex.make_encoder("lsh"))
        """,
        tmp_path,
        installed,
    )
    broken, wrong, absent, others = done.stdout.splitlines()
    assert "broken-thing 1.0" in broken
    assert "no licence" in broken
    assert "wrong-thing 1.0" in wrong
    assert "absent-thing 1.0" in absent
    assert others == "SignPCA(bits=16) LSH(bits=256, seed=0)"


def test_two_distributions_with_one_name_are_both_told(installed: Path, tmp_path: Path) -> None:
    code = "from lsqindex.encoders.lsh import LSH\nclass Other(LSH): pass"
    fake_distribution(tmp_path, "other-sign-pca", "other_sign_pca", code, "sign-pca = other_sign_pca:Other")
    done = run(
        """
        import lsqindex
        from lsqindex.errors import DuplicateEncoderError
        try:
            lsqindex.make_encoder("sign-pca")
        except DuplicateEncoderError as error:
            print(error)
        print(lsqindex.make_encoder("lsh"))
        """,
        tmp_path,
        installed,
    )
    told, other = done.stdout.splitlines()
    assert "other-sign-pca 1.0" in told
    assert "lsqindex-sign-pca 0.2.0" in told
    assert other == "LSH(bits=256, seed=0)"


def test_a_plugin_cannot_take_a_built_in_name(tmp_path: Path) -> None:
    code = "from lsqindex.encoders.lsh import LSH\nclass Mine(LSH): pass"
    fake_distribution(tmp_path, "rude-thing", "rude_thing", code, "pq = rude_thing:Mine")
    done = run(
        """
        import lsqindex
        from lsqindex.errors import DuplicateEncoderError
        try:
            print(type(lsqindex.make_encoder("pq")).__module__)
        except DuplicateEncoderError as error:
            print(error)
        """,
        tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "lsqindex.encoders.pq" in done.stdout or "rude-thing" in done.stdout


def test_a_plugin_may_register_itself_too(tmp_path: Path) -> None:
    code = """
    from lsqindex import register_encoder
    from lsqindex.encoders.lsh import LSH
    @register_encoder("polite")
    class Polite(LSH):
        pass
    """
    fake_distribution(tmp_path, "polite-thing", "polite_thing", code, "polite = polite_thing:Polite")
    done = run("import lsqindex; print(lsqindex.make_encoder('polite', bits=8))", tmp_path)
    assert done.stdout.strip() == "Polite(bits=8, seed=0)"
