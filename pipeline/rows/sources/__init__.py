"""Sources of rows, one file a format: `open` chooses by the name, `blocks` is what each gives.

`streams` finds the bytes, and `libsvm_parser` is compiled.
"""
