"""What a person sees of a run: `page` is report.html, `batch` arranges the points of a sweep.

`figures` and `batch_figures` draw (`svg`), `formats` writes numbers.
"""
