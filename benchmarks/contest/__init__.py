"""Several solvers on one table: their processes, their clocks, and the judge of their answers."""
