# Switchgear: everything a developer does, by name.  `make help` lists it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := .make
SEED   ?= 1
# `make fuzz TARGET=dwork-session SECONDS=600`; `python -m fuzz --list` names the targets.
TARGET  ?= all
SECONDS ?= 10
TORTURE_MINUTES ?= 5

# The package as it is installed: with compiled modules.  On PYTHONPATH it comes before the sources of the checkout, in
# every process that a test starts.
COMPILED := build/compiled
ON_COMPILED := PYTHONPATH="$(CURDIR)/$(COMPILED)"
SOURCES  := $(shell find src scripts/build_backend.py scripts/build-compiled setup.py -type f -not -name '*.pyc' -not -path '*.egg-info/*' 2>/dev/null)

# What is tried a second time, uncompiled: all that compiled modules do, but not everybody who may talk to them, and not
# the longest scenarios: several nodes, bridges, and floods.
PURE_TESTS  := tests/engine tests/protocols tests/net tests/storage tests/testing tests/joblog tests/torture tests/build tests/fuzz \
	$(filter-out %/test_owners.py %/test_cluster.py %/test_bombs.py,$(filter-out tests/system/test_owners_% tests/system/test_bridge%,$(wildcard tests/system/test_*.py))) \
	tests/system/test_owners_edges.py tests/system/test_owners_reports.py

# What `make quick` runs: tests without sockets, and of those not the ones that try thousands of random histories, or take
# seconds because they need very many of something.
QUICK_TESTS := tests/test_layers.py tests/test_modules_page.py tests/test_public_names.py tests/test_units.py tests/verbs \
	$(filter-out %_model.py %/test_simulation.py %/test_simulated_nodes.py %/test_edges.py %/test_order.py %/test_packed_queues.py \
		%/test_limiter_invariants.py %/test_memory_of_tables.py, $(wildcard tests/engine/test_*.py)) \
	$(wildcard tests/protocols/*/test_codec.py tests/protocols/*/test_conversations.py tests/protocols/*/test_session.py) \
	tests/protocols/gearman/test_admin.py tests/net/test_operations.py tests/net/test_job_operations.py
QUICK_BUT   := not small_questions_cannot_fill_the_memory and not spoke_for_very_many_workers

.DEFAULT_GOAL := help
.PHONY: help run test check lint types unit torture example simulate fuzz bench bench-docs bench-peers format diagram settings verbs modules reference quick screenshots soak-dashboard interop clean peers compiled pure postgresql free-threaded

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(STAMPS)/installed ## set up, start the server with its defaults, send a job from each submitter to each worker, serve until Ctrl-C
	@exec $(BIN)/switchgear serve --demo

test: $(STAMPS)/developing peers lint types unit pure ## set up, install the peers, and run everything that CI runs

check: lint types unit pure ## what `make test` runs, without looking for peers first

quick: $(STAMPS)/developing ## the checks worth running at every save, in less than a minute: lint, types, layers, engine and protocols without their long tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	BRIEF_TESTS=1 PYTHONPATH="$(CURDIR)/src" $(BIN)/pytest -n 2 --dist worksteal -k "$(QUICK_BUT)" $(QUICK_TESTS)

lint: $(STAMPS)/developing ## ruff: mistakes and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)/developing ## mypy --strict
	$(BIN)/mypy

unit: $(STAMPS)/compiled ## every test, with compiled modules: import rules, units, properties, simulation, torture, real peers
	$(ON_COMPILED) EXPECT_BUILD=compiled scripts/run-tests $(BIN)/pytest

pure: $(STAMPS)/developing ## the tests of what is compiled, without compiled modules
	BRIEF_TESTS=1 EXPECT_BUILD=pure scripts/run-tests $(BIN)/pytest $(PURE_TESTS)

compiled: $(STAMPS)/compiled ## build the package with compiled modules, and unpack it in build/compiled

torture: $(STAMPS)/compiled ## kill servers under load, fail their disks, set their clocks and more for TORTURE_MINUTES; SCENARIO=kills, SEED=7, LANES=2 as you like
	@command -v cc >/dev/null || scripts/install-packages gcc libc6-dev
	$(ON_COMPILED) $(BIN)/python -m torture --minutes $(TORTURE_MINUTES) $(if $(LANES),--lanes $(LANES)) $(if $(SCENARIO),--scenario $(SCENARIO)) \
		$(if $(filter command line environment,$(origin SEED)),--seed $(SEED))

free-threaded: $(STAMPS)/developing ## the tests of the Python library without the interpreter lock, with python3.14t or PYTHON_FREE_THREADED
	scripts/install-free-threaded
	PYTHONPATH="$(CURDIR)/src" build/free-threaded/bin/python -m pytest -n 2 -p no:cacheprovider tests/app tests/compat \
		--deselect tests/app/test_payloads.py --ignore tests/app/typing

postgresql: $(STAMPS)/developing ## the tests of the store in PostgreSQL and of clusters with PostgreSQL 16 and 18, from PyPI
	scripts/test-postgresql-versions $(BIN)

example: $(STAMPS)/developing ## run the ten tasks of the 2005 draft through a server of their own
	$(BIN)/python -m examples.livejournal

simulate: $(STAMPS)/developing ## replay the engine simulation with SEED
	$(BIN)/python -m switchgear.testing.simulation --seed $(SEED) --verbose

fuzz: $(STAMPS)/fuzzing ## give each fuzz target, or TARGET, new inputs for SECONDS; see fuzz/README.md
	PYTHONPATH="$(CURDIR)/src" $(BIN)/python -m fuzz $(TARGET) --seconds $(SECONDS) --seed $(SEED)

bench: bench-peers $(STAMPS)/compiled ## measure this server beside others in one run of ten minutes, or ONLY some groups of it; readings go to bench/results
	$(ON_COMPILED) $(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

bench-docs: bench-peers $(STAMPS)/compiled ## the same, and write tables and charts into docs/benchmarks.md
	$(ON_COMPILED) $(BIN)/python -m bench --write-docs

bench-peers: $(STAMPS)/developing
	@command -v cc >/dev/null || scripts/install-packages gcc libc6-dev
	@command -v gearmand >/dev/null || test -x /usr/sbin/gearmand || scripts/install-packages gearman-job-server
	@command -v beanstalkd >/dev/null || scripts/install-packages beanstalkd
	@command -v redis-server >/dev/null || scripts/install-packages redis-server
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		scripts/install-packages postgresql
	@scripts/install-bench-peers

format: $(STAMPS)/developing ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

diagram: $(STAMPS)/developing ## redraw the diagram of a job's life from its table
	$(BIN)/python -m switchgear.testing.lifecycle_diagram

settings: $(STAMPS)/developing ## write the tables of settings in docs/howto/configure.md from the settings themselves
	$(BIN)/python scripts/write-settings-tables
	$(BIN)/python scripts/write-job-options-table

verbs: $(STAMPS)/developing ## write docs/verbs.md from the table of operator verbs
	$(BIN)/python scripts/write-verbs-page

modules: $(STAMPS)/developing ## draw the pictures of modules in docs/modules.md from the imports
	$(BIN)/python scripts/write-modules-page

reference: $(STAMPS)/developing ## write docs/reference from the source
	$(BIN)/python scripts/write-reference-pages

screenshots: $(STAMPS)/developing peers ## make the pictures of the dashboard in docs/images, and those that tests compare with, anew
	WRITE_SCREENSHOTS=1 $(BIN)/pytest tests/dashboard/test_browser.py -k 'every_view or first_run or look_as_before'

soak-dashboard: $(STAMPS)/compiled peers ## watch the heap and the frames of the task stream beside 5,000 jobs a second for MINUTES (10)
	$(ON_COMPILED) $(BIN)/python -m bench.dashboard_soak --minutes $(or $(MINUTES),10)

interop: $(STAMPS)/developing peers ## try every submitter with every worker, and write docs/interop.md from what was found
	WRITE_INTEROP=1 $(BIN)/pytest tests/matrix

peers: ## install the real programs that the tests talk to
	@command -v gearmand >/dev/null && command -v gearman >/dev/null || \
		scripts/install-packages gearman-job-server gearman-tools
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		scripts/install-packages postgresql
	@command -v pgbouncer >/dev/null || test -x /usr/sbin/pgbouncer || scripts/install-packages pgbouncer
	@command -v redis-server >/dev/null || scripts/install-packages redis-server
	@command -v beanstalkd >/dev/null || scripts/install-packages beanstalkd
	@command -v curl >/dev/null || scripts/install-packages curl
	@command -v cc >/dev/null || scripts/install-packages gcc libc6-dev
	@command -v valgrind >/dev/null || scripts/install-packages valgrind
	@command -v openssl >/dev/null || scripts/install-packages openssl
	@command -v promtool >/dev/null || scripts/install-packages prometheus
	@command -v systemd-analyze >/dev/null || scripts/install-packages systemd
	@command -v npm >/dev/null || scripts/install-packages nodejs npm
	@scripts/install-django
	@scripts/install-bench-peers
	@test -e /usr/include/zmq.h && test -d /usr/include/hiredis || scripts/install-packages libzmq3-dev libhiredis-dev
	@test -d tests/interop/node/node_modules/openapi-typescript || \
		npm ci --silent --no-audit --no-fund --ignore-scripts --prefix tests/interop/node
	@command -v chromium >/dev/null || scripts/install-packages chromium fonts-dejavu-core
	@test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf || scripts/install-packages fonts-dejavu-core
	@command -v nginx >/dev/null || test -x /usr/sbin/nginx || scripts/install-packages nginx-light
	@test -e /usr/lib/nginx/modules/ngx_stream_module.so || scripts/install-packages libnginx-mod-stream
	@test -d tests/dashboard/browser/node_modules/lighthouse || \
		npm ci --silent --no-audit --no-fund --ignore-scripts --prefix tests/dashboard/browser

clean: ## remove what the other targets made
	rm -rf $(VENV) $(STAMPS) build dist bench/build bench/results .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf tests/interop/node/node_modules tests/dashboard/browser/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Switchgear needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/install-packages python3-venv
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/installed: $(VENV)/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/developing: $(VENV)/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/installed

# Without atheris, which is not made for every Python and system, inputs are made without looking at coverage.
$(STAMPS)/fuzzing: $(STAMPS)/developing
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,fuzz]' || \
		echo "atheris cannot be installed here: fuzzing goes on without coverage"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/compiled: $(STAMPS)/developing $(SOURCES) pyproject.toml
	@command -v cc >/dev/null || scripts/install-packages gcc libc6-dev
	@$(BIN)/python -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || \
		scripts/install-packages python3-dev
	scripts/build-compiled "$(BIN)" "$(COMPILED)"
	@touch $@
