"""The mathematics of one SVM training problem: kernels, solvers, certificates."""
