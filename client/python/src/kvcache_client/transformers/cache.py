# SPDX-License-Identifier: Apache-2.0
"""A transformers ``Cache`` whose prefix comes from the daemon."""

from __future__ import annotations

import inspect
import logging
import operator
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from kvcache_client._errors import Down, Stale, Timeout
from kvcache_client._memory import PageLayout
from kvcache_client._session import Session
from kvcache_client._types import NameKind, Status
from kvcache_client.transformers.facts import (
    Facts,
    config_digest,
    facts_of,
    layers_of,
    weights_digest,
    weights_version,
)

if TYPE_CHECKING:
    from typing import Self

    from kvcache_client._session import Namespace

__all__ = ["DaemonCache", "PrefixCache"]

_log = logging.getLogger("kvcache_client.transformers")
_KEY = 32
_GOOD = (int(Status.OK), int(Status.EXISTS))


class DaemonCache(DynamicCache):  # type: ignore[misc]
    """The KV of one sequence: ``past_key_values`` of a forward pass or of ``generate``.

    Layers with a sliding window keep all tokens here (the mask hides the old ones), so that each of
    their blocks can be stored. After a hit they hold the window alone.

    A forward pass with this cache raises ValueError for what token ids alone do not say: several
    sequences, an attention mask with zeros (padding), other positions than those behind the cache.

    Attributes:
        loaded_tokens: that came from the daemon.
    """

    def __init__(self, prefixes: PrefixCache, tokens: list[int], extra: bytes) -> None:
        super().__init__()
        self._prefixes = prefixes
        # Whose KV is here; None: computed from embeddings, whose ids nobody saw.
        self._tokens: list[int | None] = list(tokens)
        self._extra = extra
        # (tokens that were not loaded, window) of each group with a window: zeros lie there.
        self._holes: list[tuple[int, int]] = []
        self._exact = len(tokens)  # tokens whose KV is bit for bit what anybody computes
        self.loaded_tokens = len(tokens)

    def crop(self, tokens_to_remove: int) -> None:
        """As of every cache; in addition it knows what a hit did not load.

        Raises:
            RuntimeError: tokens before a sliding window would be seen again, which are not here.
        """
        length = self.get_seq_length()
        end = tokens_to_remove if tokens_to_remove > 0 else max(0, length + tokens_to_remove)
        least = max((first + window for first, window in self._holes), default=0)
        if 0 < end < min(least, length):
            raise RuntimeError(
                f"crop to {end} tokens: the tokens before a sliding window were not loaded, and "
                f"{least} tokens are the fewest that can be kept; load the shorter text instead"
            )
        super().crop(tokens_to_remove)
        self._forget(end)

    def reset(self) -> None:
        """Forgets all tokens."""
        super().reset()
        self._forget(0)

    def _forget(self, end: int) -> None:
        """Tokens from end on are no longer here."""
        del self._tokens[end:]
        self._exact = min(self._exact, end)
        if end == 0:
            self._holes = []

    def _see(self, given: dict[str, Any]) -> None:
        """Notes the tokens of a forward pass that begins; refuses what their ids do not say.

        The modules of a model call each other: an outer one is seen first, perhaps with token ids,
        then inner ones, with embeddings and a mask of another form.
        """
        ids, new = given.get("input_ids"), given.get("inputs_embeds")
        new = ids if ids is not None else new
        if new is None:
            return
        if new.shape[0] != 1:
            raise ValueError(
                f"a forward pass of {new.shape[0]} sequences (num_beams or num_return_sequences?): "
                "a DaemonCache holds one"
            )
        past, count = self.get_seq_length(), new.shape[1]
        mask, positions = given.get("attention_mask"), given.get("position_ids")
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            hides = not mask.all()
        else:
            hides = mask is not None and ids is not None
        if hides:
            raise ValueError(
                "attention_mask hides tokens (padding?): a DaemonCache is found by token ids "
                "alone, so give none, or one of ones, of 2 dimensions. generate() hides "
                "pad_token_id in input_ids if no attention_mask is given"
            )
        if isinstance(positions, torch.Tensor) and positions.ndim <= 2:
            expected = torch.arange(past, past + count, device=positions.device)
            if not torch.equal(positions.reshape(-1).long(), expected):
                raise ValueError(
                    f"position_ids: {past} to {past + count - 1} were expected, which are those "
                    "behind the tokens of this DaemonCache (crop a cache that is used again; "
                    "with prompt_lookup_num_tokens transformers computes what is loaded again)"
                )
        if ids is not None and len(self._tokens) >= past:
            self._tokens[past:] = ids[0].tolist()
        elif len(self._tokens) == past:
            self._tokens += [None] * count

    def save(
        self,
        input_ids: Any,
        *,
        conversation: str | None = None,
        document: str | None = None,
        durable: bool = False,
    ) -> int:
        """Stores what the daemon does not have of this sequence; whole blocks only.

        Where KV was computed from embeddings, the caller answers for their ``input_ids``.

        Args:
            input_ids: the tokens of the sequence, shape [n] or [1, n]; those behind the end of
                the cache (the last one that ``generate`` gave) are left out.
            conversation: a name for the sequence: on storage its KV is kept while the name lasts.
            document: the same for a document; its token ids are kept with it.
            durable: returns when the blocks are on stable storage.

        Returns:
            Tokens from the beginning that the daemon has now; 0 as well when no daemon is there
            or the cache is empty.

        Raises:
            ValueError: input_ids are others than those that were loaded and computed, or the
                weights have changed.
        """
        ids = _ids(input_ids)
        length = self.get_seq_length()
        if length > len(self._tokens):
            raise ValueError(
                f"this cache holds {length} tokens, and {len(self._tokens)} came from the daemon "
                "or by calls of the model: call model(...) or generate(), not model.forward(...)"
            )
        for at, (has, wanted) in enumerate(zip(self._tokens[:length], ids, strict=False)):
            if has is not None and has != wanted:
                raise ValueError(
                    "input_ids do not begin with the tokens of this cache: "
                    f"token {at} is {wanted}, and KV of {has} is here"
                )
        self._prefixes._check_weights()
        if length == 0:
            return 0
        try:
            return self._prefixes._save(self, ids, conversation, document, durable)
        except (Down, Timeout) as error:
            _log.warning("nothing was stored: %s", error)
            return 0


class PrefixCache:
    """The prefixes of a model's sequences, shared with all processes of the node.

        prefixes = PrefixCache(model)
        cache = prefixes.load(input_ids)
        output = model.generate(input_ids, past_key_values=cache)
        cache.save(output)

    KV comes back bit for bit, so the logits that follow are those of the process that stored it.
    They are not always those of a model that computes the whole text in one forward pass: kernels
    add in another order for another number of tokens, with or without a cache. With
    ``chunk_tokens`` they are: see :meth:`prefill`.

    Args:
        model: a causal model of transformers. It runs on one token, for the shapes of its KV.
        session: with staging; None: one of its own.
        block_tokens: tokens of a block.
        chunk_tokens: prefill in steps of so many tokens, which are the blocks too.
        name, revision: of the model; by default what its configuration says, and a digest of the
            weights. Who gives a revision answers for the weights: no change of them is noticed.
        lora: the adapter that is active; empty = none.
        position: the scheme, where the configuration does not say it: nothing is refused then.
        sub_tenant: of a gateway's session.
    """

    def __init__(
        self,
        model: Any,
        session: Session | None = None,
        *,
        block_tokens: int = 16,
        chunk_tokens: int | None = None,
        name: str = "",
        revision: str | None = None,
        lora: str = "",
        position: str | None = None,
        sub_tenant: str | None = None,
    ) -> None:
        if chunk_tokens is not None and chunk_tokens < 1:
            raise ValueError(f"chunk_tokens is {chunk_tokens}: 1 or more, or None, were expected")
        self.model = model
        self.chunk_tokens = chunk_tokens
        self.block_tokens = block_tokens if chunk_tokens is None else chunk_tokens
        layers, dtype = layers_of(model)
        self.facts: Facts = facts_of(model.config, layers, dtype, name)
        if self.facts.refused and not position:
            raise ValueError("KV of this model cannot be reused: " + "; ".join(self.facts.refused))
        self._groups = self.facts.layer_groups()
        groups = self.facts.groups(self.block_tokens)
        staging = max(16 << 20, 2 * sum(g.block_bytes for g in groups))
        self._owned = Session(name="transformers", staging_bytes=staging) if not session else None
        self.session: Session = session or self._owned  # type: ignore[assignment]
        heads = self.facts.layers[0].keys
        self._version = weights_version(model)
        self._digest = weights_digest(model) if revision is None else ""
        self.ns: Namespace = self.session.namespace(
            model=self.facts.model[-127:],
            revision=self._digest if revision is None else revision,
            dtype=dtype,
            layout="transformers: layer, k/v, head, token",
            position=position or self.facts.position,
            position_params=self.facts.position_params,
            lora=lora,
            extra=self._extra(),
            sub_tenant=sub_tenant,
            layers=len(layers),
            kv_heads=heads[0],
            head_size=heads[1],
            groups=groups,
        )
        for module in model.modules():
            hooks = module._forward_pre_hooks.values()
            if isinstance(module, PreTrainedModel) and _watch not in hooks:
                module.register_forward_pre_hook(_watch, with_kwargs=True)

    def _extra(self) -> str:
        """What else changes KV: the configuration; and its bits, where they are promised."""
        config = f"config={config_digest(self.model.config)}"
        if self.chunk_tokens is None:
            return config
        kernels = getattr(self.model.config, "_attn_implementation", "")
        return (
            f"{config} chunk={self.chunk_tokens} attn={kernels} device={self.model.device.type} "
            f"torch={torch.__version__} threads={torch.get_num_threads()}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session, if it is this object's own."""
        if self._owned is not None:
            self._owned.close()

    def _check_weights(self) -> None:
        """Reads the weights again when they may have changed.

        Raises:
            ValueError: they have.
        """
        version = weights_version(self.model)
        if not self._digest or version == self._version:
            return
        if weights_digest(self.model) != self._digest:
            raise ValueError(
                "the weights of the model have changed since this PrefixCache was made: KV of "
                "before is not theirs; make another PrefixCache"
            )
        self._version = version

    def load(self, input_ids: Any, *, extra: bytes = b"") -> DaemonCache:
        """The longest cached prefix; one token at least is left to compute.

        Without a daemon the cache is empty. Padding is refused: see :class:`DaemonCache`.

        Args:
            input_ids: shape [n] or [1, n].
            extra: what the token ids do not say: hashes of images, a salt.
        """
        ids = _ids(input_ids)
        self._check_weights()
        tokens = self._whole(len(ids) - 1) if self._within_limit(ids) else 0
        if tokens == 0:
            return DaemonCache(self, [], extra)
        try:
            with self.ns.acquire(self._keys(ids[:tokens], extra), tokens) as hold:
                if not hold:
                    return DaemonCache(self, [], extra)
                cache = DaemonCache(self, ids[: hold.tokens], extra)
                made = self._allocate(hold.tokens)
                layout = self._layout(made, hold.tokens // self.block_tokens)
                hold.load_pages(layout, [range(first, first + n) for first, n in hold.groups])
                cache._holes = [
                    (first * self.block_tokens, layers[0].window)
                    for (first, _), layers in zip(hold.groups, self._groups, strict=True)
                    if first > 0
                ]
        except (Down, Timeout, Stale):
            return DaemonCache(self, [], extra)
        for keys, values in made:
            layer = DynamicLayer()
            layer.lazy_initialization(keys.to(self.model.device), values.to(self.model.device))
            layer.keys, layer.values = keys.to(layer.device), values.to(layer.device)
            cache.layers.append(layer)
        return cache

    def prefill(self, input_ids: Any, *, extra: bytes = b"") -> DaemonCache:
        """Loads what is cached of all tokens but the last, computes the rest and stores it.

        With ``chunk_tokens`` each token is computed in a chunk that begins at a multiple of it,
        with or without a hit, and only whole chunks of this method are stored. So what follows is
        bit for bit the same whether it was loaded or computed (on one machine, with one number of
        threads).
        """
        ids = _ids(input_ids)
        cache = self.load(ids, extra=extra)
        end = len(ids) - 1
        step = self.chunk_tokens or max(1, end)
        tensor = torch.tensor([ids], device=self.model.device)
        with torch.no_grad():
            for at in range(cache.loaded_tokens, end, step):
                part = tensor[:, at : min(at + step, end)]
                self.model.base_model(input_ids=part, past_key_values=cache, use_cache=True)
        cache._exact = end
        cache.save(ids)
        return cache

    def _within_limit(self, ids: list[int]) -> bool:
        return not self.facts.limit_tokens or len(ids) <= self.facts.limit_tokens

    def _whole(self, tokens: int) -> int:
        return max(0, tokens) // self.block_tokens * self.block_tokens

    def _keys(self, ids: list[int], extra: bytes) -> list[bytes]:
        return [self.ns.hash_chain(ids, 0, extra)] * len(self._groups)

    def _allocate(self, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values of each layer, shape [1, heads, tokens, head size], in host memory."""
        dtype = getattr(torch, self.facts.dtype)
        made = []
        for layer in self.facts.layers:
            # What is not loaded lies before a window: masked, but it must be numbers.
            new = torch.zeros if layer.rule == "window" else torch.empty
            made.append(
                (
                    new((1, layer.keys[0], tokens, layer.keys[1]), dtype=dtype),
                    new((1, layer.values[0], tokens, layer.values[1]), dtype=dtype),
                )
            )
        return made

    def _layout(self, tensors: list[tuple[torch.Tensor, torch.Tensor]], blocks: int) -> PageLayout:
        """The blocks in place: page p of a head is its tokens p * block_tokens and on."""
        bt = self.block_tokens
        groups = [
            [
                t[0, :, : blocks * bt].unflatten(1, (blocks, bt))
                for layer in group
                for t in tensors[layer.index]
            ]
            for group in self._groups
        ]
        return PageLayout.of_tensors(groups, page_dim=1)

    def _save(
        self,
        cache: DaemonCache,
        ids: list[int],
        conversation: str | None,
        document: str | None,
        durable: bool,
    ) -> int:
        tensors = [(layer.keys, layer.values) for layer in cache.layers]
        lengths = {layer.get_seq_length() for layer in cache.layers}
        if len(tensors) != len(self.facts.layers) or len(lengths) > 1:
            raise ValueError(
                f"the cache has {len(tensors)} layers of {sorted(lengths)} tokens: "
                f"{len(self.facts.layers)} layers of one length were expected"
            )
        end = min(cache.get_seq_length(), len(ids))
        if self.chunk_tokens is not None:
            end = min(end, cache._exact)
        tokens = self._whole(end) if self._within_limit(ids) else 0
        if tokens == 0:
            return 0
        keys = self._keys(ids[:tokens], cache._extra)
        there = self.ns.lookup(keys, tokens, everything=True).cached_tokens
        wanted = conversation or document
        if max((first for first, _ in cache._holes), default=0) <= there < tokens:
            there = self._store(tensors, keys, there, tokens, bool(wanted), durable)
        for kind, name in (
            (NameKind.CONVERSATION, conversation),
            (NameKind.DOCUMENT, document),
        ):
            if name and there:
                cut = [k[: there // self.block_tokens * _KEY] for k in keys]
                token_ids = ids[:there] if kind == NameKind.DOCUMENT else None
                self.ns.name_put(kind, name, cut, there, durable=durable, token_ids=token_ids)
        return there

    def _store(
        self,
        tensors: list[tuple[torch.Tensor, torch.Tensor]],
        keys: list[bytes],
        first: int,
        end: int,
        admit: bool,
        durable: bool,
    ) -> int:
        """Stores tokens first to end; returns where what all groups have ends."""
        bt = self.block_tokens
        a, b = first // bt, end // bt
        host = [(k.detach().cpu(), v.detach().cpu()) for k, v in tensors]
        layout = self._layout(host, b)
        for group, chain in enumerate(keys):
            parent = chain[(a - 1) * _KEY : a * _KEY] if a else None
            statuses = self.ns.store_pages(
                layout,
                group,
                parent,
                chain[a * _KEY : b * _KEY],
                range(a, b),
                first_token=a * bt,
                durable=durable,
                admit=admit,
            )
            bad = next((i for i, s in enumerate(statuses) if s not in _GOOD), len(statuses))
            b = min(b, a + bad)
        return b * bt


def _watch(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before each forward pass of a model: a DaemonCache sees what it is computed from."""
    names = inspect.signature(module.forward).parameters if args else ()
    given = dict(zip(names, args, strict=False)) | kwargs
    cache = given.get("past_key_values")
    if isinstance(cache, DaemonCache):
        cache._see(given)


def _ids(input_ids: Any) -> list[int]:
    """Token ids of one sequence."""
    ids = input_ids.tolist() if hasattr(input_ids, "tolist") else input_ids
    try:
        ids = list(ids)
        if ids and isinstance(ids[0], list | tuple):
            if len(ids) != 1:
                raise ValueError(f"input_ids of {len(ids)} sequences: one was expected")
            ids = ids[0]
        ids = [operator.index(one) for one in ids]
    except TypeError as error:
        raise TypeError(
            f"input_ids: token ids of shape [n] or [1, n] were expected ({error})"
        ) from error
    if not ids:
        raise ValueError("input_ids are empty: one token at least was expected")
    return ids
