"""Benchmarks of marginflow against the exact SVMs of the field, on equal terms.

`python -m benchmarks --help` lists the commands; docs/performance.md is drawn from results/*.jsonl.
The judge of every answer (`judge.py`) shares no code with the solvers it judges.
"""
