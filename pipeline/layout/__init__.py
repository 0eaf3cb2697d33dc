"""A run laid out before any work: its points (`sweep`), its kernels and problems (`parts`), and their `forecast`.

`rates` measures this machine and `probe` a sample of the data.
"""
