# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: a ``Cache`` that loads from the daemon and stores what is new.

Example::

    from kvcache_client.transformers import PrefixCache

    prefixes = PrefixCache(model)
    cache = prefixes.load(input_ids)  # the longest prefix that any process of this node computed
    output = model.generate(input_ids, past_key_values=cache, max_new_tokens=100)
    cache.save(output)  # prompt and answer, for the next turn
"""

from kvcache_client.transformers.cache import DaemonCache, PrefixCache
from kvcache_client.transformers.facts import Facts, Layer, facts_of, layers_of

__all__ = ["DaemonCache", "Facts", "Layer", "PrefixCache", "facts_of", "layers_of"]
