# make run: the whole path on a simulated mast.   make test: gates and tests.   Both install what they need.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MVN_COPY := mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime

.PHONY: help setup packages jars mirror-jars run deb test test-full test-vm mutants bench lint lock clean

help:
	@echo 'make run        install what is missing, then the demo: mast, brokers, Spark jobs, live view'
	@echo 'make test       install what is missing, then lint, types, architecture and all tests'
	@echo 'make test-full  the long versions of the tests too'
	@echo 'make test-vm    the package and power cuts in a virtual machine; ARGS=--full for all of them'
	@echo 'make mutants    break the code once for each promise and see the test named fail'
	@echo 'make bench      measure: rows for docs/performance.md (some minutes; BENCH=drain for one of them)'
	@echo 'make deb        Debian packages for bookworm and trixie, amd64 and arm64, into dist/'
	@echo 'make setup      only install: Debian packages, virtual environment, jars'
	@echo 'make lint       only the gates; make lock renews requirements.lock; make clean removes what setup made'

setup: packages $(VENV)/.installed jars

packages:
	@.ci/install-packages

# --no-deps: the lock is the only source of versions.
$(VENV)/.installed: requirements.lock pyproject.toml
	@echo 'Installing the Python packages of requirements.lock into $(VENV) (about 1.3 GB)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps -e .
	@touch $@

jars: .jars/kafka/.complete .jars/spark/.complete

.jars/kafka/.complete: cloud/local/kafka_broker.pom.xml
	@echo "Fetching the jars of the local Kafka broker into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

.jars/spark/.complete: spark_jobs/spark.pom.xml
	@echo "Fetching Spark's Kafka and Delta jars into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

# Only for a long test: MirrorMaker 2.
.jars/mirror/.complete: tests/spark/mirror.pom.xml
	@echo "Fetching the jars of MirrorMaker into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

mirror-jars: .jars/mirror/.complete

# Spark and Kafka start in half the time with them; it takes longer to make them than a demo would save.
.jars/spark/classes.jsa: .ci/archive_classes.py | .jars/kafka/.complete .jars/spark/.complete $(VENV)/.installed
	@echo 'Archiving the classes that Java loads, for quicker starts'
	@PYTHONPATH=. $(BIN)/python $< .jars

run: setup
	@$(BIN)/fieldgate demo $(ARGS)

# ARGS='--release trixie --arch arm64' for one of them.
deb: packages $(VENV)/.installed
	@$(BIN)/python systemd/debian/build.py $(ARGS)

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Three at a time on two cores: most of the time tests wait for servers.
test: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint .jars/spark/classes.jsa
	$(BIN)/pytest -n 3 $(ARGS)

test-full: setup mirror-jars lint
	$(BIN)/pytest --full $(ARGS)

# The machine's program: $$GATEWAY_VM, else ../shared/vm/gateway-vm.
test-vm: setup
	$(BIN)/pytest --vm -rs $(ARGS) tests/vm

mutants: setup
	.ci/check-mutants

BENCH ?= drain hung_driver alert_latency
bench: setup
	@for what in $(BENCH); do $(BIN)/python -m tests.bench.$$what $(ARGS) || exit 1; done

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --extra pi --extra spark --extra anomaly --extra analyst --extra dev --custom-compile-command 'make lock' \
	  pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .jars .wheels dist
