"""What was learnt, and whether it is true: `assemble` it from answers, keep it (`stored`), `predict`, score, `verify`.

`decisions` computes decision values, `evaluation` and `metrics` what follows from them, `leaderboard` ranks points, and
`claims` says when a recomputation agrees.
"""
