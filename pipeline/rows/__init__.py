"""From a source to a dataset: `sources` read, `labels`, `split`, `folds` and `scaling` prepare, `ingest` stores.

`dataset` is what everybody else opens; `row_files` is where an ingest keeps rows on the way.
"""
