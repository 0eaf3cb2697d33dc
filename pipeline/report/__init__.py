"""What a person sees of runs: `page` is report.html, `index` that of a store, `card` the model's, `compare` two runs.

`batch` arranges the points of a sweep, `figures/` draws, `formats` writes numbers.
"""
