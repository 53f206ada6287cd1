# SPDX-License-Identifier: Apache-2.0
"""llama.cpp: the state of a sequence, saved under its tokens and restored in any process.

Example::

    from kvcache_client.llamacpp import SequenceStates, StateFacts

    facts = StateFacts.of(context.params, context.n_ctx, ["model.gguf"], build="llama.cpp b9190")
    states = SequenceStates.of(session, facts, context)
    n = states.restore(tokens)  # the longest prefix that was saved; go on behind it
    ...
    states.save(tokens)  # all that the sequence has been computed for

What llama.cpp gives for a sequence (``llama_state_seq_get_data``) is opaque here: bytes that hold
for all of its tokens and are of use only together. It lies in two namespaces. In the first one each
token is a block of rule "state": the block of a saved sequence's last token says how large the
state is, and where. The daemon finds the longest saved prefix by that rule. The second one has the
bytes, in parts of one size, as a chain whose keys belong to this one save: parts of two saves never
mix. Parts can go before the block that leads to them; the sequence is then saved once more, under
the next key (see ``_SAVES``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_client._errors import Down, Limit, Stale, Timeout
from kvcache_client._memory import as_bytes
from kvcache_client._session import Session, hash_chain
from kvcache_client._types import Group, Status

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kvcache_client._memory import Numbers

__all__ = ["SequenceStates", "StateFacts"]

_log = logging.getLogger("kvcache_client.llamacpp")
_KEY = 32
_KEYS_MAX = 131072  # of a lookup
_GOOD = (int(Status.OK), int(Status.EXISTS))
_FORMAT = "sequence state 1"  # of pointers and parts
_POINTER = struct.Struct("<Q16s")
_POINTER_BYTES = 64
# A block cannot be stored again while it is there. So one that leads nowhere any more stays, and
# the state is saved under the next of so many keys.
_SAVES = 8

# Fields of llama_context_params that decide what a state is, and whether another context takes it.
_POSITION = (
    "rope_scaling_type",
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "yarn_orig_ctx",
)
_CACHE = ("flash_attn_type", "flash_attn", "swa_full", "kv_unified", "n_seq_max")
_NON_CAUSAL = 1  # LLAMA_ATTENTION_TYPE_NON_CAUSAL


class _Pointer(NamedTuple):
    size: int
    nonce: bytes

    def parts(self, part_bytes: int) -> int:
        return -(-self.size // part_bytes)


@dataclass(frozen=True)
class StateFacts:
    """All that must be equal for one context to take another's state.

    Attributes:
        model: its name.
        weights: what tells them from others, for instance SHA-256 of the file.
        build: of llama.cpp, and its backend: a state's bytes may change with either.
        kv_types: types of K and V.
        context: other parameters of the context, as text.
        position, position_params: as of a namespace; ``position`` is "none" for recurrent models.
        attention: "causal", or the daemon refuses.
        changes: adapters with their scales, control vectors, metadata that is overridden.
    """

    model: str
    weights: str
    build: str
    kv_types: str
    context: str
    position: str = "rope"
    position_params: str = ""
    attention: str = "causal"
    changes: str = ""

    @classmethod
    def of(
        cls,
        params: Any,
        n_ctx: int,
        files: Sequence[str | Path],
        *,
        build: str,
        weights: str | None = None,
        position: str = "rope",
        changes: str = "",
    ) -> StateFacts:
        """From what a context was made of.

        Args:
            params: an object with the fields of ``llama_context_params``.
            n_ctx: tokens that the context has room for; it decides about longrope's factors.
            files: the GGUF files of the model. They are read whole unless ``weights`` is given.
            build, weights, position, changes: see the attributes.
        """
        if not files:
            raise ValueError("no GGUF file of the model was named")
        attention = _fields(params, ("attention_type",)).get("attention_type")
        kv_types = _fields(params, ("type_k", "type_v"))
        if len(kv_types) != 2:
            raise ValueError(
                f"{type(params).__name__} has no type_k and type_v: the fields of "
                "llama_context_params were expected"
            )
        return cls(
            model=Path(files[0]).name[-127:],
            weights=_digest(files) if weights is None else weights,
            build=build,
            kv_types=_text(kv_types),
            context=_text({"n_ctx": n_ctx, **_fields(params, _CACHE)}),
            position=position,
            position_params=_text(_fields(params, _POSITION)),
            attention="bidirectional" if attention == _NON_CAUSAL else "causal",
            changes=changes,
        )


def _fields(params: Any, names: Iterable[str]) -> dict[str, float]:
    """Those that this release of llama.cpp has; enumerations as their numbers."""
    values = {name: getattr(params, name) for name in names if hasattr(params, name)}
    return {n: v if isinstance(v, float) else int(v) for n, v in values.items()}


def _text(values: dict[str, float]) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def _digest(files: Sequence[str | Path]) -> str:
    """SHA-256 of the files' own, in their order: 64 hexadecimal digits."""
    whole = hashlib.sha256()
    for path in files:
        with Path(path).open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


class SequenceStates:
    """The states of a context's sequences.

    Args:
        session: with staging for some parts.
        facts: of the context.
        get_state: sequence -> its state, any buffer; ``llama_state_seq_get_data``.
        set_state: (state, sequence) -> bytes that were read; 0 or ValueError: refused. None counts
            as taken. ``llama_state_seq_set_data``.
        clear: empties a sequence, ``llama_memory_seq_rm``: llama.cpp may have put a part of what it
            refuses into it.
        positions: sequence -> its last position, ``llama_memory_seq_pos_max``; with it, ``save``
            refuses tokens that are not as many as the sequence has.
        part_bytes: of a part. The last part of a state is filled up with zeros.
        sub_tenant: of a gateway's session.

    Raises:
        Unsound: states of such a context cannot be reused; the text says why.
    """

    def __init__(
        self,
        session: Session,
        facts: StateFacts,
        get_state: Callable[[int], Buffer],
        set_state: Callable[[memoryview, int], object],
        clear: Callable[[int], object],
        *,
        positions: Callable[[int], int] | None = None,
        part_bytes: int = 256 << 10,
        sub_tenant: str | None = None,
    ) -> None:
        def namespace(what: str, group: Group) -> Any:
            return session.namespace(
                model=facts.model,
                groups=[group],
                revision=facts.weights,
                dtype=facts.kv_types,
                layout=f"{_FORMAT}, {what}; {facts.build}",
                position=facts.position,
                position_params=facts.position_params,
                attention=facts.attention,
                lora=facts.changes,
                extra=facts.context,
                sub_tenant=sub_tenant,
            )

        self._get, self._set, self._clear = get_state, set_state, clear
        self._positions = positions
        self._part_bytes = part_bytes
        self._refused: set[bytes] = set()
        self._index = namespace("where", Group(1, _POINTER_BYTES, "state"))
        self._parts = namespace("parts", Group(1, part_bytes))

    @classmethod
    def of(cls, session: Session, facts: StateFacts, context: Any, **more: Any) -> SequenceStates:
        """Of a ``LlamaContext`` of cyllama, or an object with the same methods."""

        def clear(sequence: int) -> None:
            context.memory_seq_rm(sequence, -1, -1)

        get_state, set_state = context.get_state_seq_data, context.set_state_seq_data
        more.setdefault("positions", context.memory_seq_pos_max)
        return cls(session, facts, get_state, set_state, clear, **more)

    def save(
        self, tokens: Numbers, sequence: int = 0, *, extra: bytes = b"", durable: bool = False
    ) -> bool:
        """Saves a sequence's state. Again: nothing is copied while it is there.

        Args:
            tokens: ids of all tokens that the sequence has been computed for, shape [n].
            sequence: its number in the context.
            extra: what the ids do not say: hashes of images, a salt.
            durable: returns when the state is on stable storage.

        Returns:
            Whether the daemon has the state now. False as well when no daemon is there, or it has
            no room; a line of log then says which.

        Raises:
            ValueError: the sequence has another number of tokens, or its state is too large.
        """
        n = len(tokens)  # type: ignore[arg-type]
        if self._positions is not None and self._positions(sequence) + 1 != n:
            raise ValueError(
                f"{n} tokens were given, and sequence {sequence} has "
                f"{self._positions(sequence) + 1}: those were expected that it was computed for"
            )
        if n == 0:
            return False
        try:
            key = self._index.hash_chain(tokens, 0, extra)[-_KEY:]
            there = list(self._pointers(key))
            if any(p.nonce not in self._refused and self._is_whole(p) for p in there):
                return True
            why: object = (
                f"all {_SAVES} keys of these tokens lead to states that are gone or refused"
            )
            if len(there) < _SAVES:
                why = self._store(_key_of(key, len(there)), n, self._get(sequence), durable)
        except (Down, Timeout, Limit, Stale) as error:
            why = error
        if why is not None:
            _log.warning("no state was saved: %s", why)
        return why is None

    def restore(self, tokens: Numbers, sequence: int = 0, *, extra: bytes = b"") -> int:
        """Gives a sequence the state of the longest prefix of ``tokens`` that was saved.

        One token at least is left to compute: a state has no logits.

        Args:
            tokens, sequence, extra: as of :meth:`save`.

        Returns:
            Tokens that the sequence has now. 0: nothing was found, or llama.cpp refused it; the
            sequence is then as it was, or empty.
        """
        try:
            keys = self._index.hash_chain(tokens, 0, extra)
            end = len(keys) // _KEY - 1
            while (end := self._longest(keys, end)) > 0:
                if self._take(keys[(end - 1) * _KEY : end * _KEY], sequence):
                    return end
                end -= 1
        except (Down, Timeout, Limit, Stale) as error:
            _log.warning("no state was restored: %s", error)
        return 0

    def _longest(self, keys: bytes, end: int) -> int:
        """The longest saved prefix of at most ``end`` tokens; whether it is whole, nobody knows."""
        while end > 0:
            first = max(0, end - _KEYS_MAX)
            found: int = self._index.lookup(keys[first * _KEY : end * _KEY], end - first).tokens
            if found:
                return first + found
            end = first
        return 0

    def _take(self, key: bytes, sequence: int) -> bool:
        """Reads what was saved under a key, and gives it to llama.cpp."""
        for pointer in self._pointers(key):
            state = self._read(pointer)
            if state is None:
                continue
            try:
                if self._set(state, sequence) != 0:
                    return True
            except ValueError as error:
                _log.debug("llama.cpp: %s", error)
            self._refused.add(pointer.nonce)
            self._clear(sequence)
            _log.warning("llama.cpp refused a state of %d bytes", len(state))
        return False

    def _pointers(self, key: bytes) -> Iterator[_Pointer]:
        """Those of all saves under a key."""
        for save in range(_SAVES):
            raw = bytearray(_POINTER_BYTES)
            with self._index.acquire(_key_of(key, save), 1) as hold:
                if not hold:
                    return
                hold.read_into(0, raw)
            yield _Pointer(*_POINTER.unpack_from(raw))

    def _chain(self, pointer: _Pointer) -> tuple[bytes, int]:
        n = pointer.parts(self._part_bytes)
        return self._parts.hash_chain(range(n), 0, pointer.nonce), n

    def _is_whole(self, pointer: _Pointer) -> bool:
        keys, n = self._chain(pointer)
        return bool(self._parts.lookup(keys, n, touch=True).tokens == n)

    def _read(self, pointer: _Pointer) -> memoryview | None:
        """The state, all of it or nothing."""
        keys, n = self._chain(pointer)
        try:
            with self._parts.acquire(keys, n) as hold:
                if hold.tokens < n:
                    return None
                state = bytearray(n * self._part_bytes)
                hold.read_into(0, state)
        except (Stale, Limit) as error:
            _log.warning("a state of %d bytes is not read: %s", pointer.size, error)
            return None
        return memoryview(state)[: pointer.size]

    def _store(self, key: bytes, tokens: int, state: Buffer, durable: bool) -> str | None:
        """The parts, and then what leads to them. Returns why the daemon does not have it."""
        view = as_bytes(state)
        pointer = _Pointer(len(view), os.urandom(16))
        size, parts = self._part_bytes, pointer.parts(self._part_bytes)
        if parts > _KEYS_MAX:
            raise ValueError(
                f"a state of {len(view)} bytes has {parts} parts of {size} bytes: at most "
                f"{_KEYS_MAX} are possible; choose a larger part_bytes"
            )
        blocks: list[Buffer] = [view[i * size : (i + 1) * size] for i in range(parts)]
        if not blocks:
            return "llama.cpp gave a state of 0 bytes"
        blocks[-1] = bytes(blocks[-1]).ljust(size, b"\0")
        keys, _ = self._chain(pointer)
        stored = self._parts.store(0, None, keys, blocks, durable=durable)
        if any(s not in _GOOD for s in stored):
            return _not_stored(stored, f"parts of {size} bytes")
        block = _POINTER.pack(*pointer).ljust(_POINTER_BYTES, b"\0")
        stored = self._index.store(0, None, key, [block], first_token=tokens - 1, durable=durable)
        return None if stored[0] in _GOOD else _not_stored(stored, "blocks that lead to the parts")


def _not_stored(statuses: bytes, what: str) -> str:
    """Of blocks that were not all stored: how many, and why the first of them."""
    bad = [s for s in statuses if s not in _GOOD]
    return f"{len(bad)} of {len(statuses)} {what} were not stored: {Status(bad[0]).name}"


def _key_of(key: bytes, save: int) -> bytes:
    """The key of a sequence's save number ``save``."""
    return key if save == 0 else hash_chain(key, [save], 1)
