# `make run` and `make test` do all their set-up on a fresh Debian machine with Python 3.11+, make and git (and, unless root, python3-venv).
PYTHON := .venv/bin/python
SCRATCH := .cache/check
# Live tests wait as often as they work: one more than there are cores. Tests that share a service stay together.
IN_PARALLEL := -n $(shell expr $$(nproc) + 1) --dist loadgroup --durations=10
# Lines that the tests' own processes run, in per cent over both databases; those of child processes are not seen. Only
# with MEASURE, as in `make test-all` and .ci/run: it adds 7 s of CPU time to the start of each worker, and a tenth to the rest.
# The floor holds over `make test`: what is deep repeats it, and need not be measured.
COVERAGE := .cache/coverage
PACKAGES := accounting_app,allocation,audit_app,cluster_app,config,connections_app,database,engines,estimation,forecast,insight_app,jobs_app,operations,scheduler_app,simulation,sweeps,web
# Programs that only child processes run: tests of sessions, of Slurm (batch, node_start), of the service and the stack drive them.
UNSEEN := engines/sessions/enter.py,engines/sessions/session.py,engines/sessions/relay_from_elsewhere.py,engines/supervision/session_socket.py
UNSEEN := $(UNSEEN),engines/slurm/batch.py,engines/slurm/node_start.py
UNSEEN := $(UNSEEN),operations/management/commands/serve.py,operations/management/commands/schedule.py
SLIPCOVER = -m slipcover --source $(PACKAGES) --omit $(UNSEEN) --json --out $(COVERAGE)/$(1).json
TESTS := -m pytest $(if $(REPEAT),--cache-clear) $(IN_PARALLEL)
MEASURED = $(PYTHON) $(if $(MEASURE),$(SLIPCOVER)) $(TESTS)
# With REPEAT, as in .ci/run, up to three failed tests run again, alone and once (docs/decisions/0102).
REPEATED = $(if $(REPEAT),|| { test $$? -eq 1 && $(1) $(PYTHON) -m tests.repeat_failed; })
# Its import takes 2 s in each worker; on SQLite no test needs it (ON_POSTGRESQL_ALONE in tests/tiers.py).
NO_FUZZ := -p no:schemathesis
ON_POSTGRESQL := $(PYTHON) -m tests.private_servers
FLOOR := 94
# The last two for useradd and the like: `su` without a dash leaves them out.
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin
unexport PYTHONDONTWRITEBYTECODE  # or every process of every test compiles Django and SciPy for itself

.PHONY: run test test-all test-deep test-repeats test-fast test-loaded test-slurm test-postgresql chaos test-torch check format bench reproduction bench-service schema deb sbom screenshots

run:  ## the service with jobs already flowing (SQLite, no broker); MOTLEY_PORT and DEMO=0 are heeded, SLURM=1 is a private Slurm
	@./bootstrap.sh run
	@exec $(PYTHON) -u manage.py serve

test:  ## each promise once, on real parts and on both databases; with ARGS, pytest's, those on SQLite
	@./bootstrap.sh test
	@mkdir -p $(COVERAGE)
	$(if $(ARGS),$(PYTHON) -m pytest $(IN_PARALLEL) $(ARGS),$(call MEASURED,sqlite) $(NO_FUZZ) --tier test $(REPEATED))
	$(if $(ARGS),,$(ON_POSTGRESQL) $(call MEASURED,postgresql) --tier test $(call REPEATED,$(ON_POSTGRESQL)))
	$(if $(MEASURE),$(if $(ARGS),,@$(COVERED)))

# Says the lines of both databases, and fails below the floor.
define COVERED
cd $(COVERAGE) && { \
	../../$(PYTHON) -m slipcover --merge sqlite.json postgresql.json --out merged.json --fail-under $(FLOOR) >report.txt; \
	code=$$?; tail -n 3 report.txt; \
	test $$code -eq 0 || { echo "fewer than $(FLOOR) % of the lines are covered: see $(COVERAGE)/report.txt"; exit 1; }; }
endef

test-all: MEASURE := 1

test-all: test test-deep test-repeats  ## everything: `make test`, then what it leaves out

test-deep:
	@./bootstrap.sh test-all
	$(PYTHON) $(TESTS) $(NO_FUZZ) --tier deep $(ARGS) $(REPEATED)
	$(ON_POSTGRESQL) $(PYTHON) $(TESTS) --tier deep $(ARGS) $(call REPEATED,$(ON_POSTGRESQL))

test-repeats:
	@./bootstrap.sh test
	$(ON_POSTGRESQL) $(PYTHON) $(TESTS) --tier repeats $(ARGS)

test-loaded:  ## `make test` N times with eight busy processes beside it; says how often it was green
	@./bootstrap.sh test
	$(PYTHON) -m tests.under_load $(or $(N),10)

test-postgresql:  ## `make test` on a private PostgreSQL alone; with ARGS, pytest's, those
	@./bootstrap.sh test
	$(ON_POSTGRESQL) $(PYTHON) -m pytest $(IN_PARALLEL) $(or $(ARGS),--tier test)

test-slurm:  ## the whole contract of engines on a private Slurm cluster; `make test-all` runs a part of it
	@./bootstrap.sh test-all
	MOTLEY_TEST_SLURM=all $(PYTHON) -m pytest -k "slurm" tests/engines $(ARGS)

chaos:  ## random faults, 340 on each of the embedded service, the full stack, Slurm and servers, in some 90 minutes; ARGS="embedded --seed 1 --faults 100"
	@./bootstrap.sh test-all
	$(PYTHON) -m tests.chaos $(ARGS)

test-torch:  ## trainings by DDP on both engines, Lightning, Transformers and Accelerate; `make test-all` runs two of DDP
	@./bootstrap.sh test-all
	MOTLEY_TEST_TORCH=all $(PYTHON) -m pytest tests/training $(ARGS)

test-fast:  ## before each commit: the tests that wait for no process, on SQLite
	@./bootstrap.sh test
	$(PYTHON) -m pytest -n $$(nproc) --dist loadgroup --durations=10 $(NO_FUZZ) --tier fast $(ARGS)

check:  ## format (Python and templates), lint, types, layers, deployment, migrations, API schema
	@./bootstrap.sh test
	ruff format --check .
	djhtml --tabwidth 2 --check templates
	ruff check .
	mypy
	lint-imports
	MOTLEY_VAR=$(SCRATCH) MOTLEY_TLS=1 $(PYTHON) manage.py check --deploy --fail-level WARNING
	MOTLEY_VAR=$(SCRATCH) $(PYTHON) manage.py makemigrations --check --dry-run
	MOTLEY_VAR=$(SCRATCH) $(PYTHON) manage.py spectacular --validate --fail-on-warn | diff docs/openapi.yaml - \
		|| { echo "docs/openapi.yaml is out of date: run 'make schema'"; exit 1; }

schema:  ## write docs/openapi.yaml anew
	@./bootstrap.sh test
	MOTLEY_VAR=$(SCRATCH) $(PYTHON) manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

deb:  ## the Debian packages of this version, in .cache/deb
	@./bootstrap.sh run
	deploy/debian/build

sbom:  ## the software bill of materials of the service, CycloneDX 1.5, in .cache/motley.cdx.json
	@./bootstrap.sh run
	UV_SYSTEM_CERTS=1 .tools/bin/uv export --quiet --frozen --no-dev --format cyclonedx1.5 --preview-features sbom-export --output-file .cache/motley.cdx.json

format:  ## format and mend what can be mended
	@./bootstrap.sh test
	ruff format .
	djhtml --tabwidth 2 templates
	ruff check --fix .

bench:  ## every policy on up to 100,000 jobs beside its plain formula, a round of 2,000 jobs split by step, long traces simulated
	@./bootstrap.sh test
	$(PYTHON) -m benchmarks.policies
	$(PYTHON) -m benchmarks.packed
	$(PYTHON) -m benchmarks.round
	$(PYTHON) -m benchmarks.traces

reproduction:  ## the tables of docs/reproduction.md anew, in hours, into .cache/reproduction; ARGS="--only bounds", or --list
	@./bootstrap.sh test
	$(PYTHON) -m benchmarks.reproduction $(ARGS)

bench-service:  ## the service under load on PostgreSQL: rounds, submissions, pages, lists; ARGS as --only rounds
	@./bootstrap.sh test
	$(PYTHON) -m benchmarks.service $(ARGS)

screenshots:  ## pictures of every page of a sample site, at two widths, light and dark, in .cache/pages; ARGS="--only home jobs"
	@./bootstrap.sh test
	$(PYTHON) -m tests.screenshots .cache/pages $(ARGS)
	cp .cache/pages/queue.png .cache/pages/why.png docs/
