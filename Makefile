# The verbs. Each one first sees to it that the checkout is ready (well under a second when it
# is); .ci/bootstrap tells what it installs and why.

SHELL := /bin/bash
READY := .ci/bootstrap --

.PHONY: help run test check fuzz bench deb chroot vm second-broker clean

help:
	@echo 'make run              start everything and watch a real model answer over D-Bus'
	@echo 'make run ASK="…"      the same, asking that'
	@echo 'make test             all tests, on real parts (ARGS="-k frames -x" goes to pytest)'
	@echo 'make check            style, types, floors: what is judged without running'
	@echo 'make fuzz SECONDS=60  broken input for every decoder of updates'
	@echo 'make bench NAME=…     one benchmark; without a name, the list'
	@echo 'make deb              the Debian packages, in build/deb'
	@echo 'make chroot           the packages in a clean Debian, in a chroot (ARCH=arm64 DEBIAN=13)'
	@echo 'make vm               the packages in an emulated Debian (DEBIAN=13 STEPS=a,b ARGS="--list")'
	@echo 'make second-broker    the fleet and its hostile list against aedes (needs node and npm)'
	@echo 'make clean            removes .venv and what tools left here; the cache stays'

run:
	@$(READY) python -m stoker.tour $(if $(value ASK),--ask "$$STOKER_ASK")

test:
	@.ci/bootstrap --tests -- python -m pytest $(ARGS)

check:
	@$(READY) .ci/check

fuzz:
	@$(READY) .ci/steps/fuzz.sh --seconds $(or $(SECONDS),60) $(ARGS)

bench:
ifdef NAME
	@$(READY) python -m bench.$(NAME) $(ARGS)
else
	@echo 'Benchmarks, to be run as make bench NAME=… (ARGS="--help" tells what one takes):'
	@grep -l __main__ bench/*.py | sed -e 's,^bench/,  ,' -e 's,\.py$$,,'
endif

deb:
	@$(READY) .ci/steps/deb.sh $(ARGS)

chroot:
	@$(READY) .ci/steps/chroot.sh $(or $(ARCH),$$(dpkg --print-architecture)) $(if $(DEBIAN),--debian $(DEBIAN)) $(ARGS)

vm:
	@$(READY) .ci/steps/vm.sh $(if $(DEBIAN),--debian $(DEBIAN)) $(if $(STEPS),--steps $(STEPS)) $(ARGS)

# What no broker may change; tests/second_broker/aedes_broker.py tells what aedes cannot show.
ANY_BROKER := test_fleet_hostile test_fleet_full test_fleet_rights test_fleet_commands test_campaign

second-broker:
	@$(READY) python -m pytest -rs --broker aedes tests/second_broker/aedes.py \
		$(addprefix tests/integration/,$(addsuffix .py,$(ANY_BROKER))) $(ARGS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find daemon ota tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "The cache (compiled llama.cpp, the model) stays in $${STOKER_CACHE:-$$HOME/.cache/stoker}"

# Through the environment: a question with quotes or dollars must not meet a shell.
run: export STOKER_ASK = $(value ASK)
