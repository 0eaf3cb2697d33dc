# Benchmarks, in an environment of their own with the peers. DATA is the folder of the data files.
#   make bench DATA=PATH [CASES=a9a,letter] [ONLY=marginflow,scikit-learn-intelex] [REPEATS=3] [RESUME=1] [ROWS=2000]
#   make bench-batch DATA=PATH
#   make bench-search DATA=PATH [ONLY=marginflow,scikit-learn] [ROWS=2000]
#   make bench-classes DATA=PATH [ONLY=marginflow,scikit-learn] [ROWS=2000]
#   make bench-predict DATA=PATH [ONLY=marginflow,scikit-learn-intelex] [ROWS=10000]
#   make bench-machines DATA=PATH [ONLY=marginflow,scikit-learn] [ROWS=5000]
#   make bench-probabilities DATA=PATH [ONLY=marginflow] [ROWS=3000]
#   make bench-scale DATA=PATH [ONLY=mnist-60000-shards,generated-500000-shards,kernel-stage] [ROWS=8000]
#   make bench-plans DATA=PATH [ONLY=letter,a9a] [ROWS=8000]
#   make bench-end-to-end DATA=PATH [ROWS=8000]
#   make bench-avx2 DATA=PATH [ONLY=a9a,ijcnn1] [ROWS=8000]
#   make bench-cores DATA=PATH [ONLY=a9a,ijcnn1] [ROWS=8000]
#   make bench-low-rank DATA=PATH [ONLY=generated-1m-rank-500] [ROWS=8000]
#   make bench-truth [MINUTES=60] [ONLY=linear,phoneme] [JOBS=2] [RESUME=1] [REUSE_PEER=1] [BASELINE=1]
#   make bench-truth-libsvm [MINUTES=60] [JOBS=2]    LIBSVM's answers alone, in advance, for REUSE_PEER=1
#   make bench-truth-machines [MINUTES=10] [JOBS=2]    certificates of the other machines
#   make bench-linear [CASES=dense-1m-C1,sparse-1m] [ROWS=20000]    against LIBLINEAR, generated rows
#   make bench-report            docs/performance.md from the JSON lines
BENCH_PYTHON := .env-bench/bin/python
BENCH_RUN = $(if $(DATA),,$(error DATA is the folder of the data files: make $@ DATA=PATH)) \
	--data "$(DATA)" $(if $(ONLY),--only "$(ONLY)") $(if $(ROWS),--rows $(ROWS)) $(if $(REPEATS),--repeats $(REPEATS))

.PHONY: bench bench-classes bench-truth-machines bench-linear bench-batch bench-search bench-predict bench-machines bench-probabilities bench-low-rank bench-plans bench-end-to-end bench-avx2 bench-cores bench-scale bench-truth bench-truth-libsvm bench-report

.env-bench/ready: benchmarks/requirements.txt benchmarks/requirements-tables.txt benchmarks/constraints.txt pyproject.toml
	python3 -m venv .env-bench
	.env-bench/bin/pip install --quiet -r benchmarks/requirements.txt -c benchmarks/constraints.txt -e .
	-.env-bench/bin/pip install --quiet --no-deps -r benchmarks/requirements-optional.txt
	.env-bench/bin/pip install --quiet --no-deps -r benchmarks/requirements-tables.txt -c benchmarks/constraints.txt
	touch $@

bench: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks run $(BENCH_RUN) $(if $(CASES),--cases "$(CASES)") $(if $(RESUME),--resume)
	$(if $(ROWS),,$(BENCH_PYTHON) -m benchmarks report)

bench-batch: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks batch $(BENCH_RUN)
	$(if $(ROWS),,$(BENCH_PYTHON) -m benchmarks report)

bench-search: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks search $(BENCH_RUN)

bench-classes: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks classes $(BENCH_RUN)

bench-predict: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks predict $(BENCH_RUN)

bench-machines: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks machines $(BENCH_RUN)

bench-probabilities: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks probabilities $(BENCH_RUN)

bench-scale: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks scale $(BENCH_RUN)

bench-low-rank: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks low_rank $(BENCH_RUN)

bench-plans: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks plans $(BENCH_RUN)

bench-end-to-end: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks end_to_end $(BENCH_RUN)

bench-avx2: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks avx2 $(BENCH_RUN)
	$(if $(ROWS),,$(BENCH_PYTHON) -m benchmarks report)

bench-cores: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks cores $(BENCH_RUN)
	$(if $(ROWS),,$(BENCH_PYTHON) -m benchmarks report)

bench-linear: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks linear $(if $(CASES),--only "$(CASES)") $(if $(ROWS),--rows $(ROWS))

# Exit 1 for any false certificate; the page is written in any case.
bench-truth: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks.truth $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ONLY),--only "$(ONLY)") \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(RESUME),--resume) $(if $(REUSE_PEER),--reuse-peer) \
		$(if $(BASELINE),--baseline); \
	status=$$?; $(if $(ONLY),,$(BENCH_PYTHON) -m benchmarks report &&) exit $$status

bench-truth-libsvm: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks.truth --libsvm-only $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOBS),--jobs $(JOBS))

bench-report: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks report

# Exit 1 for any false certificate.
bench-truth-machines: .env-bench/ready
	$(BENCH_PYTHON) -m benchmarks.truth.machines $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JOBS),--jobs $(JOBS))
