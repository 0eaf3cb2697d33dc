"""The interior-point method for K = G G': its program, its linear systems, its steps and its last digits."""
