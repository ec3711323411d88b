# `make run` and `make test` do all their set-up on a fresh Debian machine with Python 3.11+, make and git.
PYTHON := .venv/bin/python
SCRATCH := $(CURDIR)/.cache/check
ON_POSTGRESQL := -m database $(addprefix tests/,cluster config jobs connections accounting scheduler insight operations pages rest security)
# Slow ones of these run there alone: production's database is the one that refuses more.
ON_SQLITE := -m "not (slow and database)"
# Live tests wait as often as they work: one more than there are cores. Tests that share a service stay together.
IN_PARALLEL := -n $(shell expr $$(nproc) + 1) --dist loadgroup --durations=10
# Lines that the tests' own processes run, in per cent over both databases; those of child processes are not seen.
COVERAGE := .cache/coverage
PACKAGES := accounting_app,allocation,audit_app,cluster_app,config,connections_app,database,engines,estimation,forecast,insight_app,jobs_app,operations,scheduler_app,simulation,web
# Programs that only child processes run: tests of sessions, of Slurm (batch, node_start), of the service and the stack drive them.
UNSEEN := engines/sessions/enter.py,engines/sessions/session.py,engines/sessions/through.py,engines/supervision/session_door.py
UNSEEN := $(UNSEEN),engines/slurm/batch.py,engines/slurm/node_start.py
UNSEEN := $(UNSEEN),operations/management/commands/serve.py,operations/management/commands/schedule.py
MEASURED = $(PYTHON) -m slipcover --source $(PACKAGES) --omit $(UNSEEN) --json --out $(COVERAGE)/$(1).json -m pytest --cache-clear $(IN_PARALLEL)
# One failure in five thousand live tests on a loaded machine may be an accident: it is repeated alone, and told if it passes.
REPEATED = $(if $(ARGS),,|| { test $$? -eq 1 && $(1) $(PYTHON) -m tests.repeat_failed; })
FLOOR := 94
export PATH := $(CURDIR)/.venv/bin:$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # or every process of every test compiles Django and SciPy for itself

.PHONY: run test coverage test-fast test-slurm chaos test-torch test-postgresql check format bench bench-service schema screenshots

run:  ## the service with jobs already flowing (SQLite, no broker); MOTLEY_PORT and DEMO=0 are heeded, SLURM=1 is a private Slurm
	@./bootstrap.sh run
	@exec $(PYTHON) -u manage.py serve

test:  ## all tests on SQLite or PostgreSQL, quick ones that touch the database on both, and the floor of coverage; with ARGS, pytest's, on SQLite only
	@./bootstrap.sh test
	@mkdir -p $(COVERAGE)
	$(call MEASURED,sqlite) $(or $(ARGS),$(ON_SQLITE)) $(call REPEATED)
	$(if $(ARGS),,@$(MAKE) --no-print-directory test-postgresql)
	$(if $(ARGS),,@$(MAKE) --no-print-directory coverage)

test-postgresql:  ## those that touch the database on a private PostgreSQL, which goes when they are done
	@./bootstrap.sh test
	@mkdir -p $(COVERAGE)
	$(PYTHON) -m tests.private_servers $(call MEASURED,postgresql) $(or $(ARGS),$(ON_POSTGRESQL)) \
		$(call REPEATED,$(PYTHON) -m tests.private_servers)

test-slurm:  ## the whole contract of engines on a private Slurm cluster; `make test` runs a part of it
	@./bootstrap.sh test
	MOTLEY_TEST_SLURM=all $(PYTHON) -m pytest -k "slurm" tests/engines $(ARGS)

chaos:  ## a thousand random faults in about an hour on the embedded service, the full stack and Slurm; ARGS="embedded --seed 1 --faults 100"
	@./bootstrap.sh test
	$(PYTHON) -m tests.chaos $(ARGS)

test-torch:  ## trainings by DDP on both engines, Lightning, Transformers and Accelerate; `make test` runs two of DDP
	@./bootstrap.sh test
	MOTLEY_TEST_TORCH=all $(PYTHON) -m pytest tests/training $(ARGS)

coverage:  ## of the last `make test`: lines that neither half ran, in .cache/coverage/report.txt, and whether the floor holds
	@cd $(COVERAGE) && $(CURDIR)/$(PYTHON) -m slipcover --merge sqlite.json postgresql.json --out both.json --fail-under $(FLOOR) >report.txt \
		|| { tail -n 3 report.txt; echo "fewer than $(FLOOR) % of the lines are covered: see $(COVERAGE)/report.txt"; exit 1; }
	@tail -n 3 $(COVERAGE)/report.txt

test-fast:  ## before each commit: all but the slow modules (SLOW in tests/conftest.py), on SQLite
	@./bootstrap.sh test
	$(PYTHON) -m pytest -n $$(nproc) --dist loadgroup --durations=10 -p no:schemathesis --hypothesis-profile fast -m "not slow" $(ARGS)

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

bench-service:  ## the service under load on PostgreSQL: rounds, submissions, pages, lists; ARGS as --only rounds
	@./bootstrap.sh test
	$(PYTHON) -m benchmarks.service $(ARGS)

screenshots:  ## pictures of every page of a sample site, at two widths, light and dark, in .cache/pages; ARGS="--only home jobs"
	@./bootstrap.sh test
	$(PYTHON) -m tests.screenshots $(CURDIR)/.cache/pages $(ARGS)
	cp .cache/pages/readme.png docs/screenshot.png
