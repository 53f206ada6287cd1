# SPDX-License-Identifier: Apache-2.0
"""SGLang: a linker of its unified cache, and a storage backend of HiCache.

Both are loaded by SGLang's own flags; see ``docs/sglang.md`` beside the package's README.

SGLang names pages by hashes over all tokens before them, and passes the hashes of a tail alone:
where the tail begins is not told. So the pages are a group of rule "window" whose window covers
everything: such blocks need no parent, and a hit still needs each of them.

The classes are tested against those of SGLang 0.5.23 with memory of the tests' own. No engine ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcache_client.sglang.linker import KVCacheDaemonLinker as KVCacheDaemonLinker
    from kvcache_client.sglang.storage import KVCacheDaemonStorage as KVCacheDaemonStorage

__all__ = ["KVCacheDaemonLinker", "KVCacheDaemonStorage"]


def __getattr__(name: str) -> Any:
    # SGLang is imported by whoever asks for a class of it.
    if name == "KVCacheDaemonLinker":
        from kvcache_client.sglang.linker import KVCacheDaemonLinker

        return KVCacheDaemonLinker
    if name == "KVCacheDaemonStorage":
        from kvcache_client.sglang.storage import KVCacheDaemonStorage

        return KVCacheDaemonStorage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
