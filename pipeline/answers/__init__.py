"""The one way a problem is solved and kept: `problem` says what it is, `result` keeps its answer as an `array_file`.

`solve` solves many along C, on workers or threads, `live` tells how far they are, `warm` loads what they need.
"""
