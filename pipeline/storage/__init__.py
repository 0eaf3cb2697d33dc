"""Bytes that stay: `files`, owned folders (`leases`), `sealed` arrays, the `cache`, runs in a `local` store or on `s3`.

`runs` opens a store, `base` is what every store can do, `bucket` speaks to an object store, `mirror` and `copies` bring
its objects here.
"""
