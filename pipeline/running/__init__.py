"""From a config to a published run: read -> lay out -> forecast -> kernels -> answers -> score -> publish.

`run` is the way in, `session` what the stages share, `stages` a run without a sweep, `batch` one with a sweep, `plan`
what either would take, `publish` the last step, `clock` what it cost.
"""
