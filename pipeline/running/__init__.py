"""From a config to a published run: read -> lay out -> forecast -> kernels -> answers -> score -> publish.

`run` is the way in. `batch` lays out and solves, `score` makes a model of one point, `sweep` ranks many, `publish`
writes the record. `steps` runs each and tells who watches, `session` is what they share, `clock` what they cost,
`plan` what they would take.
"""
