# Two commands matter: `make demo` and `make test`. PYTHON chooses the interpreter: make demo PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip --disable-pip-version-check -qq install
# Two processes read the tests, and many tests start a Python: none of them should compile the same modules again.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q
START := $(shell date +%s)
TOOK = s=$$(( $$(date +%s) - $(START) )); printf 'make %s took %d min %02d s\n' $@ $$((s / 60)) $$((s % 60))

.NOTPARALLEL:
.PHONY: help demo test check page browser slow zoo bench docs lock clean

help:
	@echo 'make demo    bare machine to a working translator: install, data, train, score, translate, picture'
	@echo 'make test    bare machine to a green suite: make check, then the tests'
	@echo 'make check   format, lint, types, import order, dependencies, spelling'
	@echo 'make page    the page of regard studio, into the package; needs Node 20 or newer'
	@echo 'make slow    the tests that take minutes        make zoo    planted bugs the suite must notice'
	@echo 'make bench   the numbers we quote               make docs   the figures of docs/'
	@echo 'make lock    constraints.txt from a clean venv  make clean  remove what can be made again; runs/ stays'

# ---- set-up: a stamp per set of packages, older than what it was made from means stale -------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "regard needs Python 3.11 or newer, and '$(PYTHON)' is not one; name another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { \
		echo "'$(PYTHON) -m venv .venv' failed; on Debian or Ubuntu install the package python3-venv, then try again"; exit 1; }

.venv/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing regard and its packages into .venv (about a minute, mostly torch) ...'
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[plot]'
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing regard with its developer tools into .venv (two or three minutes) ...'
	@$(BIN)/python $(PIP) -c constraints.txt -e '.[dev]'
	@touch .venv/.core $@

# ---- demo ------------------------------------------------------------------------------------------------------------

RUN := runs/demo
SAY := She has a beautiful red dress.
# learns more in four minutes than the post-norm and sinusoids of the paper, the preset, which transformers can open
QUICK := --set model.norm=pre --set model.positions=learned --set optim.lr=0.015 --set optim.adam_lr=0.012

demo: .venv/.core
	@$(BIN)/regard data get tatoeba-en-fr
	@if [ -e $(RUN)/.finished ] || { [ -e $(RUN)/model.safetensors ] && [ ! -e $(RUN)/state.safetensors ]; }; then \
		echo '$(RUN) is trained already, so training is skipped; to train again: rm -r $(RUN)'; \
	elif [ -e $(RUN)/state.safetensors ]; then \
		echo '$(RUN) was left half-way; going on from there'; $(BIN)/regard train --resume $(RUN); \
	else \
		$(BIN)/regard train translate --data tatoeba-en-fr --set data.max_words=10 --set data.repeat_short=6 $(QUICK) \
			--minutes 4 --name demo --force; \
	fi
	@touch $(RUN)/.finished
	@echo; echo 'Score on 1,000 sentences it has never seen:'
	@$(BIN)/regard evaluate $(RUN)
	@echo; echo 'A few translations:'
	@$(BIN)/regard translate $(RUN) 'I am very tired.' 'He lives in a small house.' "I don't know what to say." 'Can you help me?'
	@echo; echo 'Which source word each target word looked at:'
	@$(BIN)/regard translate $(RUN) '$(SAY)' --alignment --picture $(RUN)/alignment.png
	@echo; $(TOOK)
	@echo; echo 'Next, try:'
	@echo '  source .venv/bin/activate'
	@echo '  regard translate $(RUN)                              # a prompt: type English, read French'
	@echo '  regard translate $(RUN) "$(SAY)" --n-best 3 --scores'
	@echo '  regard tokens $(RUN) "$(SAY)"   # the pieces it reads'
	@echo '  regard info $(RUN)                                   # what it is and how it was trained'
	@echo '  regard train translate --arch lstm --data tatoeba-en-fr --minutes 4'
	@echo '  regard train translate --source mine.en --target mine.de --valid-source dev.en --valid-target dev.de'
	@echo 'and look at $(RUN)/alignment.png'

# ---- the page of the studio: built when its source changed, never committed --------------------------------------------

PAGE := src/regard/serve/page/figure.html
NO_NODE := 'npm is not here, so the page of regard studio is not built; install Node 20 or newer, then: make page'

page: $(PAGE)
	@:

$(PAGE): studio/node_modules/.ready $(wildcard studio/*.*) $(wildcard studio/src/* studio/src/*/*)
	@if command -v npm > /dev/null; then cd studio && npm run -s build > /dev/null; else echo $(NO_NODE); fi

studio/node_modules/.ready: studio/package.json studio/package-lock.json
	@if command -v npm > /dev/null; then echo 'Installing the tools of the page into studio/node_modules ...' && \
		cd studio && npm ci --silent && touch node_modules/.ready; fi

browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
		echo 'Installing chromium for the tests of the page ...' && \
		{ apt-get install -qq -y chromium || { apt-get update -qq && apt-get install -qq -y chromium; }; } > /dev/null; } || \
		echo 'chromium is not here, so the tests of the page will be skipped'

# ---- tests -----------------------------------------------------------------------------------------------------------

check: .venv/.dev
	@$(BIN)/ruff format --check --quiet . || { echo 'to format: .venv/bin/ruff format .'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/pyrefly check --summary=none
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/deptry src
	@$(BIN)/codespell

test: check page browser
	@if command -v npm > /dev/null; then cd studio && npm run -s check && npm run -s test; fi
	@$(PYTEST) -n 2 --dist worksteal
	@$(TOOK)

slow: .venv/.dev
	@$(PYTEST) -n 2 -m slow --timeout 3600 tests/slow
	@$(TOOK)

zoo: .venv/.dev
	@$(PYTEST) -n 2 -m zoo --timeout 3600 tests/zoo
	@$(TOOK)

# ---- numbers, figures, versions --------------------------------------------------------------------------------------

bench: .venv/.dev
	@set -e; for file in $(wildcard bench/[a-z]*.py); do echo "== $$file"; $(BIN)/python $$file; done

docs: .venv/.dev
	@set -e; for file in $(wildcard docs/[a-z]*.py); do echo "== $$file"; $(BIN)/python $$file; done

# torch stays where it is until its pin is moved by hand: the figures in recipes/ and bench/ belong to a version.
lock: $(BIN)/python
	@set -e; new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
		grep '^torch==' constraints.txt > $$new/torch.txt; \
		$(BIN)/python -m venv $$new/venv; \
		$$new/venv/bin/python $(PIP) -c $$new/torch.txt -e '.[dev]'; \
		$$new/venv/bin/python -m pip freeze --exclude-editable | sed -E '/ @ |^#/d; s/\+cpu$$//' > $$new/lock.txt; \
		cp $$new/lock.txt constraints.txt
	@git --no-pager diff --stat constraints.txt

clean:
	rm -rf studio/node_modules src/regard/serve/page
	rm -rf .venv build dist .coverage .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	find src tests recipes bench docs -name __pycache__ -type d -prune -exec rm -rf {} +
