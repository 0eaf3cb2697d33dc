# Benchmarks, in an environment of their own with the peers. DATA is the folder of the data files.
#   make bench DATA=PATH [CASES=a9a,letter] [ONLY=marginflow,scikit-learn-intelex] [REPEATS=3] [RESUME=1] [ROWS=2000]
#   make bench-batch DATA=PATH
#   make bench-report            docs/performance.md from the JSON lines
BENCH_PYTHON := .env-bench/bin/python
BENCH_RUN = $(if $(DATA),,$(error DATA is the folder of the data files: make $@ DATA=PATH)) \
	--data "$(DATA)" $(if $(ONLY),--only "$(ONLY)") $(if $(ROWS),--rows $(ROWS)) $(if $(REPEATS),--repeats $(REPEATS))

.PHONY: bench bench-batch bench-report

.env-bench/ready: benchmarks/requirements.txt benchmarks/constraints.txt pyproject.toml
	python3 -m venv .env-bench
	.env-bench/bin/pip install --quiet -r benchmarks/requirements.txt -c benchmarks/constraints.txt -e .
	-.env-bench/bin/pip install --quiet --no-deps -r benchmarks/requirements-optional.txt
	touch $@

bench: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks run $(BENCH_RUN) $(if $(CASES),--cases "$(CASES)") $(if $(RESUME),--resume)
	$(if $(ROWS),,$(BENCH_PYTHON) -m benchmarks report)

bench-batch: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks batch $(BENCH_RUN)
	$(if $(ROWS),,$(BENCH_PYTHON) -m benchmarks report)

bench-report: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks report
