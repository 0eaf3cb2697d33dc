"""Bytes that stay: `files`, owned folders (`leases`), what a folder holds (`manifest`), `sealed` arrays, the `cache`.

`runs` opens a store, in a folder or on `s3`; `base` is what both can do, `bucket` speaks to an object store, `mirror`
brings finished parts of the cache from there and back. `private` is what belongs to one user of a host.
"""
