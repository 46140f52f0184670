# make demo       the main job on real data, from nothing
# make test       style, types, and the tests of the package and its documentation
# make test-bench the tests of the benchmarks, with FAISS and the other peers (hnswlib needs a C++ compiler)
# make test-hosts the suites of txtai, scikit-learn and others against their adapters, in .venv-hosts
# make test-long  crash, damage and state-machine tests in their long form (an hour or more)
# make docs       the documentation, as a site in build/docs; warnings are errors
# make sanitize   the tests of kernels and cells under AddressSanitizer and UBSan
# make emulate    the kernel tests on arm64 (NEON), under qemu-user
# make bench-encoders   the published comparison; data through LSQINDEX_DATA (docs/benchmarks.md)
# make bench-defaults   recall with no option set
# make bench-storage    opening, adding, file size and memory of the index; half an hour
# make bench-writes     single adds, many threads, bulk, payloads, deletions, beside LMDB and other libraries; ten minutes
# make bench-subset     the multi-index: the paper's finding, beside the scan and FAISS; half an hour
# make bench-cells      cells with no option set: recall, time, size, changes; half an hour (cells --million: more)
# make bench-scan       queries per second beside FAISS, threads, growth, gigabytes per second; ten minutes
# make bench-paper      every experiment of the paper's section 4
# make bench-peers      beside FAISS, USearch, hnswlib, ScaNN, RaBitQ-Library, sqlite-vec and LanceDB
# make bench-hosts      through txtai and LangChain, beside their default backends; in .venv-hosts
# make bench-flow       how many files, functions and calls across modules an operation passes through
# make bench-micro      the time of single operations; make bench-micro AGAINST=COMMIT compares with that commit

PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
HOSTS = $(VENV)-hosts
SOURCES = pyproject.toml setup.py $(wildcard cython_src/*.pyx cython_src/*.pxd cython_src/*.h)

.PHONY: demo docs test test-bench test-hosts test-long lint sanitize emulate dist clean \
  bench-cells bench-defaults bench-encoders bench-storage bench-writes bench-scan bench-subset bench-paper bench-peers bench-hosts \
  bench-micro bench-flow

# The package from this checkout, with what the demo needs. What builds it (as pyproject.toml says) is installed first:
# otherwise pip would make an environment of its own for that, each time. What it imports is installed at the same time;
# the last line looks into pyproject.toml for what that list may lack.
$(VENV)/.installed: $(SOURCES)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile numpy lmdb msgpack typer rich pillow & \
	  $(PY) -m pip install --quiet --no-compile 'setuptools>=77' 'cython>=3.1' && \
	  $(PY) -m pip install --quiet --no-compile --no-build-isolation --no-deps --editable . && wait $$!
	$(PY) -m pip install --quiet --no-compile 'lsqindex[demo]'
	touch $@

# Tools of development, and the libraries that benchmarks compare with: groups in pyproject.toml.
$(VENV)/.installed-test $(VENV)/.installed-peers: $(VENV)/.installed-%: pyproject.toml | $(VENV)/.installed
	$(PY) -m pip install --quiet --upgrade 'pip>=25.1'
	$(PY) -m pip install --quiet --group $*
	touch $@

# (Threads of OpenBLAS wait for each other longer than such small matrices take.)
demo: $(VENV)/.installed
	OPENBLAS_NUM_THREADS=1 $(PY) -m lsqindex demo

docs: $(VENV)/.installed $(VENV)/.installed-test
	$(PY) -m mkdocs build --strict

lint: $(VENV)/.installed $(VENV)/.installed-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# A file's tests stay together: some share what takes long to make.
test: lint
	OPENBLAS_NUM_THREADS=1 $(PY) -m pytest -n auto --dist loadfile --ignore=tests/bench

test-bench: $(VENV)/.installed $(VENV)/.installed-test $(VENV)/.installed-peers
	LSQINDEX_PEERS=required $(PY) -m pytest -n auto --dist loadfile tests/bench

# The package itself is the checkout, as $(VENV) has built it.
$(HOSTS)/.installed: tests_hosts/requirements.txt
	test -x $(HOSTS)/bin/python || $(PYTHON) -m venv $(HOSTS)
	$(HOSTS)/bin/python -m pip install --quiet "$$(grep '^torch==' tests_hosts/requirements.txt)"
	$(HOSTS)/bin/python -m pip install --quiet -r tests_hosts/requirements.txt
	touch $@

test-hosts: $(VENV)/.installed $(HOSTS)/.installed
	$(HOSTS)/bin/python -m tests_hosts

test-long: $(VENV)/.installed $(VENV)/.installed-test
	LSQINDEX_LONG=1 $(PY) -m pytest tests/storage tests/write tests/compiled tests/index tests/query/test_filters.py \
	  tests/subsets/test_paper_scores.py

sanitize:
	rm -rf build
	test -x $(VENV)-sanitize/bin/python || $(PYTHON) -m venv $(VENV)-sanitize
	LSQINDEX_SANITIZE=1 $(VENV)-sanitize/bin/python -m pip install --quiet --force-reinstall . pytest hypothesis scikit-learn
	rm -rf build
	rm -rf $(VENV)-sanitize/tests && cp -r tests $(VENV)-sanitize/
	cd $(VENV)-sanitize && LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 bin/python -m pytest -p no:cacheprovider -c /dev/null tests/compiled \
	  tests/query/test_one_call.py tests/query/test_cells_search.py tests/subsets/cells

emulate:
	bash tests/emulate/run

bench-cells bench-defaults bench-encoders bench-storage bench-writes bench-scan bench-subset bench-paper bench-peers: bench-%: \
  $(VENV)/.installed $(VENV)/.installed-peers
	$(PY) -m bench $*

bench-hosts: $(VENV)/.installed $(HOSTS)/.installed
	$(HOSTS)/bin/python -m bench hosts

bench-flow: $(VENV)/.installed
	$(PY) -m bench flow

bench-micro: $(VENV)/.installed
	$(PY) -m bench micro $(if $(AGAINST),--against $(AGAINST))

dist: $(VENV)/.installed-test
	rm -rf dist
	$(PY) -m build
	$(PY) -m twine check --strict dist/*

clean:
	rm -rf build dist *.egg-info cython_src/*.c lsqindex/_compiled/*.so $(VENV) $(VENV)-sanitize $(HOSTS)
