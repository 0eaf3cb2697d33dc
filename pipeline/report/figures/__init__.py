"""The figures of reports: of a model, of a sweep, of regressions and novelty; `svg` draws them all."""
