# make run: the whole path on a simulated mast.   make test: gates and tests.   Both install what they need.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Keeps what Python compiles, whatever the environment says: else each start of a program compiles all it imports.
BYTECODE := env -u PYTHONDONTWRITEBYTECODE
MVN_COPY := mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime

.PHONY: help setup setup-dev packages packages-dev jars jars-s3 mirror-jars registry-jars run deb apt-repository test \
  test-full test-vm test-pi mutants bench lint lock clean wheel

help:
	@echo 'make run        install what is missing, then the demo: mast, brokers, Spark jobs, live view'
	@echo 'make test       install what is missing, then lint, types, architecture and all tests'
	@echo 'make test-full  the long versions of the tests too'
	@echo 'make test-vm    the package and power cuts in a virtual machine; ARGS=--full for all of them'
	@echo 'make test-pi    the packages on an emulated Raspberry Pi, which the first call builds; ARGS="-k trixie-arm64" for one card'
	@echo 'make mutants    break the code once for each promise and see the test named fail'
	@echo 'make bench      measure for docs/performance.md (an hour; BENCH=peers 30 minutes, BENCH=grid 18)'
	@echo 'make wheel      a wheel for analysts and their notebooks, without Java and Spark, into dist/'
	@echo 'make deb        Debian packages for bookworm and trixie, amd64, arm64 and armhf, into dist/; ARGS="--product cloud"'
	@echo 'make apt-repository KEY=FINGERPRINT   a signed repository of the packages in dist/, into dist/apt'
	@echo 'make jars-s3    what Spark needs for a lake on S3'
	@echo 'make setup      only install what the demo needs: Debian packages, virtual environment, jars'
	@echo 'make lint       only the gates; make lock renews both locks; make clean removes what setup made'

# What the demo needs, and what the tests and the package's build need besides.
setup: packages $(VENV)/.installed jars

# Downloads wait for the network, and for each other's unpacking: beside each other, but for what is made of two of them.
setup-dev: packages-dev
	@$(MAKE) --no-print-directory -j3 $(VENV)/.installed-dev jars .moto/.installed
	@$(MAKE) --no-print-directory jars-s3

packages:
	@.ci/install-packages run

packages-dev:
	@.ci/install-packages run dev

# --no-deps: the lock is the only source of versions. Python compiles what it imports, not all of it.
define INSTALL
	@echo 'Installing the Python packages of $< into $(VENV)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on --no-compile --require-hashes -r $<
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps -e .
endef

$(VENV)/.installed: requirements.lock pyproject.toml
	$(INSTALL)
	@touch $@

# The same versions as in requirements.lock, and more.
$(VENV)/.installed-dev: requirements-dev.lock pyproject.toml
	$(INSTALL)
	@touch $(VENV)/.installed $@

# A store of objects for the tests, in an environment of its own: it wants older libraries than the jobs have.
.moto/.installed: tests/support/moto.lock
	@echo 'Installing an S3 for the tests into .moto'
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r $<
	@touch $@

jars: .jars/kafka/.complete .jars/spark/.complete

.jars/kafka/.complete: cloud/local/kafka_broker.pom.xml
	@echo "Fetching the jars of the local Kafka broker into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

# Never two Mavens at a time: what they have fetched is in a folder that one may write.
.jars/spark/.complete: spark_jobs/spark.pom.xml | .jars/kafka/.complete
	@echo "Fetching Spark's Kafka and Delta jars into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

# Only for a lake on S3: its file system, and a log store of ours.
jars-s3: .jars/s3/.complete

.jars/s3/.complete: spark_jobs/s3.pom.xml spark_jobs/ConditionalPutLogStore.java | $(VENV)/.installed .jars/spark/.complete
	@echo "Fetching the jars of S3 into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D)
	@cd $(@D) && java -jar ecj-*.jar -17 -d classes $(CURDIR)/spark_jobs/ConditionalPutLogStore.java -classpath \
	  $$(printf %s: $(CURDIR)/$(VENV)/lib/python3*/site-packages/pyspark/jars/hadoop-client-*.jar ../spark/*.jar *.jar)
	@cd $(@D) && $(CURDIR)/$(BIN)/python -m zipfile -c fieldgate-s3.jar classes/fieldgate && rm -r classes ecj-*.jar && touch .complete

# Only for a long test: MirrorMaker 2.
.jars/mirror/.complete: tests/spark/mirror.pom.xml
	@echo "Fetching the jars of MirrorMaker into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D) && touch $@

mirror-jars: .jars/mirror/.complete

# Only for a long test: Apicurio's schema registry.
.jars/registry/.complete: tests/support/registry.pom.xml
	@echo "Fetching a schema registry into $(@D)"
	@rm -rf $(@D) && $(MVN_COPY) -f $< -DoutputDirectory=$(CURDIR)/$(@D)
	@cd $(@D) && tar xzf *.tar.gz && rm *.tar.gz && touch .complete

registry-jars: .jars/registry/.complete

# Java starts in half the time with its classes archived. Archiving them takes longer than one demo saves by it: it gets
# what processor time the first demo leaves over.
run: setup
	@test -e .jars/spark/classes.jsa || PYTHONPATH=. \
	  setsid nice -n 19 flock --nonblock .jars $(BIN)/python .ci/archive_classes.py .jars >.jars/archive.log 2>&1 &
	@$(BYTECODE) $(BIN)/fieldgate demo $(ARGS)

wheel:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .
	@ls dist/fieldgate-*.whl

# ARGS='--release trixie --arch arm64' for one of them; ARGS='--product cloud' for the jobs' (740 MB each, after make jars).
# What has no wheel for armhf is compiled, for ten minutes the first time.
ARMHF = $(if $(findstring --arch,$(ARGS)),$(filter armhf,$(ARGS)),$(if $(filter cloud,$(ARGS)),,armhf))
deb: packages-dev $(VENV)/.installed-dev
	@.ci/install-packages deb $(ARMHF)
	@$(BIN)/python systemd/debian/build.py $(ARGS)

# What is in it stays, so that a mast can go back. KEY: the fingerprint of a key in gpg's keyring.
apt-repository:
	@KEY='$(KEY)' $(PYTHON) systemd/debian/repository.py $(ARGS)

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A broker starts with two thirds of the processor time where its classes are archived, and the tests start twenty.
.jars/kafka/classes.jsa: .jars/kafka/.complete .ci/archive_classes.py | $(VENV)/.installed-dev
	@PYTHONPATH=. $(BYTECODE) $(BIN)/python .ci/archive_classes.py .jars kafka

# Four tests at a time on two cores, and the gates beside them: most of the time tests wait for servers. What one process
# compiles by collecting the tests, four need not. Spark's archived classes are used where there are any, and not made:
# that takes as much as it would save here. Where a server hangs, each of its tests waits for its own end: the run has one
# too, and says then what failed. Up to three failures are run again alone: what passes then, failed by others' load, and
# both runs are printed. More than three are no such case.
test: setup-dev
	@nice make --no-print-directory lint >.lint.log 2>&1 & gates=$$!; \
	  $(MAKE) --no-print-directory .jars/kafka/classes.jsa >.jars/archive.log 2>&1 & archive=$$!; \
	  $(BYTECODE) $(BIN)/pytest --collect-only -qq $(ARGS) >/dev/null 2>&1; wait $$archive; \
	  $(BYTECODE) $(BIN)/pytest -n 4 --session-timeout 3000 --cache-clear $(ARGS); tests=$$?; \
	  if [ $$tests -eq 1 ] && [ $$(grep -c '": true' .pytest_cache/v/cache/lastfailed) -le 3 ]; then \
	    echo 'Run again, alone:'; $(BYTECODE) $(BIN)/pytest --last-failed --session-timeout 900 $(ARGS); tests=$$?; fi; \
	  wait $$gates; gates=$$?; cat .lint.log; exit $$((tests | gates))

test-full: setup-dev mirror-jars registry-jars lint
	$(BYTECODE) $(BIN)/pytest --full $(ARGS)

# The machine's program: $$GATEWAY_VM, else ../shared/vm/gateway-vm.
test-vm: setup-dev
	$(BIN)/pytest --vm -rs $(ARGS) $(if $(filter tests/vm/%,$(ARGS)),,tests/vm)

# QEMU and four cards are built once, in half an hour, into ~/.cache/fieldgate-pi.
test-pi: setup-dev
	@.ci/install-packages deb armhf
	@tests/pi/emulator/pi build
	@for release in trixie bookworm; do for arch in arm64 armhf; do \
	  tests/pi/emulator/pi image --release $$release --arch $$arch || exit 1; done; done
	$(BIN)/pytest --pi -rs -s $(ARGS) tests/pi

mutants: setup-dev
	.ci/check-mutants

BENCH ?= peers grid drain alert_latency
bench: setup-dev
	@for what in $(BENCH); do $(BIN)/python -m tests.bench.$$what $(ARGS) || exit 1; done

COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command 'make lock'

# requirements.lock is a part of requirements-dev.lock; systemd-python has no wheel, and a demo no journal.
lock:
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --extra pi --extra modbus --extra spark --extra anomaly --extra analyst --extra dashboard --extra report \
	  --extra notify --extra dev \
	  pyproject.toml -o requirements-dev.lock
	$(COMPILE) --constraint requirements-dev.lock --no-emit-package systemd-python \
	  --extra pi --extra modbus --extra spark --extra analyst --extra dashboard pyproject.toml -o requirements.lock
	$(COMPILE) tests/support/moto.in -o tests/support/moto.lock

clean:
	rm -rf $(VENV) .jars .moto .wheels dist
