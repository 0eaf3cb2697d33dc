"""A program whose rows and n-vectors are in shards, of which any may be in another process or on another host.

`shard` is the side that holds rows, `line` the conversation with it, `source` and `state` what a solver sees. How a
message gets there is a callable that is given: nothing here knows a cluster.
"""

from svmcore.shards.line import Transport
from svmcore.shards.shard import Envelope, Host, Opening, Reply
from svmcore.shards.source import ShardedSource

__all__ = ["Envelope", "Host", "Opening", "Reply", "ShardedSource", "Transport"]
