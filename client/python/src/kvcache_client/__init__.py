# SPDX-License-Identifier: Apache-2.0
"""Client of kvcache-daemon: KV cache of LLM inference, shared by the processes of a node.

    import kvcache_client as kv

    with kv.Session(staging_bytes=64 << 20) as session:
        ns = session.namespace(model="m", position="rope", groups=[kv.Group(16, block_bytes)])
        keys = ns.hash_chain(tokens)
        ns.store(0, None, keys, blocks)
        with ns.acquire(keys, len(tokens)) as hold:
            hold.read_into(0, array)

Sizes are bytes, positions and counts of tokens are tokens, times say their unit. Blocks are bytes:
what they hold is the engine's affair, and named by the namespace.
"""

from kvcache_client._device import WORDS, Device, DeviceMemory, Pool
from kvcache_client._errors import (
    BadArgument,
    Denied,
    Down,
    Error,
    Limit,
    Stale,
    Timeout,
    Unsound,
)
from kvcache_client._memory import NO_PAGE, PageLayout, Region
from kvcache_client._session import BlockView, Hold, Namespace, Session, hash_chain
from kvcache_client._types import (
    Group,
    GroupPrefix,
    Hint,
    Miss,
    NameInfo,
    NameKind,
    PinInfo,
    Prefix,
    Put,
    PutGroup,
    Retain,
    Status,
)

__version__ = "0.8.0"

__all__ = [
    "NO_PAGE",
    "WORDS",
    "BadArgument",
    "BlockView",
    "Denied",
    "Device",
    "DeviceMemory",
    "Down",
    "Error",
    "Group",
    "GroupPrefix",
    "Hint",
    "Hold",
    "Limit",
    "Miss",
    "NameInfo",
    "NameKind",
    "Namespace",
    "PageLayout",
    "PinInfo",
    "Pool",
    "Prefix",
    "Put",
    "PutGroup",
    "Region",
    "Retain",
    "Session",
    "Stale",
    "Status",
    "Timeout",
    "Unsound",
    "hash_chain",
]
