"""What one YAML file declares: `load` reads it (`yaml12`, `keys`), `schema` checks it (`values`, `errors`).

`quantities` writes sizes and seconds as people read them.
"""
