"""Is what the certificates say true? Thousands of small problems on real tables, each answer judged from its rows.

`python -m benchmarks.truth --help` lists the options. Nothing here but `workers.Ours` and `machines.fitted` imports
svmcore: the judge computes kernels, scores, gap and objectives with NumPy code of its own, in higher precision where
float64 would not do.
"""
