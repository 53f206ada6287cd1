# SPDX-License-Identifier: Apache-2.0
"""Sessions, namespaces and holds: libkvcache's calls, with the GIL released while they last."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, cast

from kvcache_client import _kvc
from kvcache_client._device import Device, Pool, raw_of
from kvcache_client._errors import BadArgument, Error, Stale
from kvcache_client._memory import PageLayout, as_bytes, as_numbers
from kvcache_client._types import (
    Group,
    Hint,
    NameInfo,
    NameKind,
    PinInfo,
    Prefix,
    Put,
    PutGroup,
    Retain,
)

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer, CapsuleType

    from kvcache_client._memory import Memory, Numbers

    Keys = bytes | bytearray | memoryview | Sequence[Buffer]

__all__ = ["BlockView", "Hold", "Namespace", "Session", "hash_chain"]

_KEEP_TTL = 2**64 - 1


def hash_chain(parent: Buffer, tokens: Numbers, block_tokens: int, extra: Buffer = b"") -> bytes:
    """Keys of consecutive blocks of token ids.

    Args:
        parent: 32 bytes: the namespace's seed, or the key of the block before the first token.
        tokens: ids, shape [n]: a buffer of 32- or 64-bit integers or a sequence of int.
        block_tokens: tokens in a block.
        extra: what the tokens do not say (hashes of images, a cache salt); the same for the chain.

    Returns:
        ceil(n / block_tokens) keys of 32 bytes, one after the other.
    """
    return _kvc.hash_chain(parent, as_numbers(tokens), block_tokens, extra)


def group_of(groups: Sequence[Group], number: int) -> Group:
    """A namespace's group by its number, which does not count from the end."""
    if not 0 <= number < len(groups):
        text = f"group is {number}: the namespace has groups 0 to {len(groups) - 1}"
        raise BadArgument(-errno.EINVAL, "EINVAL", text)
    return groups[number]


def flags_of(**wanted: bool) -> int:
    """Flags of a request by name."""
    bits = {
        "touch": _kvc.F_TOUCH,
        "prefetch": _kvc.F_PREFETCH,
        "everything": _kvc.F_ALL,
        "wait": _kvc.F_WAIT,
        "no_load": _kvc.F_NO_LOAD,
        "read_only": _kvc.F_READ_ONLY,
        "durable": _kvc.F_DURABLE,
        "decoded": _kvc.F_DECODED,
        "admit": _kvc.F_ADMIT,
        "no_store": _kvc.F_NO_STORE,
        "pinned": _kvc.F_PINNED,
    }
    return sum(bits[name] for name, is_set in wanted.items() if is_set)


class BlockView:
    """A block in place, for ``numpy.from_dlpack`` and ``torch.from_dlpack``.

    Shape [block_bytes], uint8, read-only (to consumers of DLPack 1.0; older ones must not write
    either: writing faults). The hold is not released while the view or a tensor made of it lives.
    """

    def __init__(self, raw: _kvc.DLPack) -> None:
        self._raw = raw

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        """The capsule; ``dl_device`` must be the block's. Its bytes are there: no stream waits."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the block is on {self.__dlpack_device__()}, and not on {dl_device}")
        if copy:
            raise BufferError("a block is read in place: copy the tensor made of it")
        return self._raw.capsule(max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCPU, 0); of a block on a CUDA device (kDLCUDA, its number)."""
        return self._raw.device()


class Hold:
    """Blocks of a cached prefix, readable in place until they are released.

    ``bool(hold)``: whether anything is held. A context manager: leaving it releases the hold. What
    was read is true only if :meth:`check` says so afterwards (:meth:`load_pages` and
    :meth:`read_into` check by themselves).

    Attributes:
        lease: 0 = nothing is held.
        ticket: 16 bytes: other ranks redeem it while the hold lasts.
        epoch: of the connection.
        prefix: the cached prefix.
        groups: for each group (first, n): blocks first .. first + n - 1 of its chain are held.
    """

    def __init__(self, raw: _kvc.Hold) -> None:
        self._raw = raw
        self.lease, self.ticket, self.epoch, prefix, self.groups = raw.info()
        self.prefix = Prefix.of(prefix)

    @property
    def tokens(self) -> int:
        """Tokens of the prefix; 0 when nothing is held."""
        return self.prefix.tokens if self.lease else 0

    def __bool__(self) -> bool:
        return self.lease != 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except BufferError:
            if error is None:
                raise

    def block(self, group: int, i: int) -> memoryview:
        """Block ``i`` of those held, in place: shape [block_bytes], uint8, read-only.

        BufferError when it is on a device alone (``acquire`` with ``on``).
        """
        return self._raw.block(group, i)

    def device(self, group: int, i: int) -> int:
        """The block's address on the device of ``acquire``'s ``on``; 0: it is in host memory.

        For kernels that read it in place until the hold is released. Nobody may write there.
        """
        return self._raw.device(group, i)

    def dlpack(self, group: int, i: int) -> BlockView:
        """The same for DLPack."""
        return BlockView(self._raw.dlpack(group, i))

    def check(self) -> bool:
        """Whether all that was read until now is what was stored. No traffic."""
        return self._raw.check()

    def load_pages(
        self,
        layout: PageLayout,
        pages: Sequence[Numbers | None],
        *,
        on: Device | None = None,
        stream: int = 0,
    ) -> None:
        """Copies the held blocks into an engine's pages, all layers in one call.

        Args:
            layout: where the pages lie.
            pages: for each group pages_per_block numbers for each held block (``groups[g][1]`` of
                them), shape [n * pages_per_block]; None: the group is left out.
            on: the device on which the pages lie: the copies are put on its ``stream``. Keep the
                hold until the stream has come by, and ask :meth:`check` then.
            stream: as of :mod:`torch.cuda`; see ``Device``.

        Raises:
            Stale: the pages have bytes that may not be what was stored; compute them.
        """
        numbers = [None if p is None else as_numbers(p) for p in pages]
        self._raw.load(layout.raw, numbers, raw_of(on), stream)

    def read_into(self, group: int, to: Memory) -> None:
        """Copies the held blocks of a group into one array, one after the other.

        Args:
            group: number of the group.
            to: memory of n * block_bytes bytes without gaps, of any shape and type.

        Raises:
            Stale: as for :meth:`load_pages`.
        """
        self._raw.read_into(group, as_bytes(to, writable=True))

    def release(self) -> None:
        """Ends the lease. BufferError while views of blocks are in use. Again: nothing happens."""
        self._raw.release()


class Namespace:
    """All that must be equal for a block to be usable: model, layout, position scheme, groups."""

    def __init__(self, raw: _kvc.Namespace, groups: tuple[Group, ...]) -> None:
        self._raw = raw
        self.groups = groups

    @property
    def id(self) -> int:
        """Number of the namespace in this connection."""
        return self._raw.id()

    @property
    def seed(self) -> bytes:
        """32 bytes: parent of every first block. Given by the daemon; may change at a reconnect.

        Raises:
            Down: no daemon has answered yet.
        """
        return self._raw.seed()

    def hash_chain(self, tokens: Numbers, group: int = 0, extra: Buffer = b"") -> bytes:
        """Keys of the blocks of a sequence from its first token: shape [n * 32] bytes."""
        return hash_chain(self.seed, tokens, group_of(self.groups, group).block_tokens, extra)

    def lookup(
        self,
        keys: Keys,
        tokens: int,
        *,
        touch: bool = False,
        prefetch: bool = False,
        everything: bool = False,
        sub_tenant: str | None = None,
    ) -> Prefix:
        """How much of a sequence is cached. A daemon that is not there: nothing.

        Args:
            keys: one bytes object per group with n keys of 32 bytes (of one group: just that).
            tokens: length of the sequence that the keys cover.
            touch: counts as a use of the blocks.
            prefetch: what is on disk begins to be loaded into memory.
            everything: also what is quicker computed than loaded.
            sub_tenant: gateway sessions: whose data.
        """
        flags = flags_of(touch=touch, prefetch=prefetch, everything=everything)
        return Prefix.of(self._raw.lookup(keys, tokens, flags, sub_tenant))

    def acquire(
        self,
        keys: Keys,
        tokens: int,
        *,
        from_tokens: int = 0,
        wait: bool = False,
        no_load: bool = False,
        read_only: bool = False,
        everything: bool = False,
        wait_tokens: int = 0,
        timeout_ms: int = 0,
        sub_tenant: str | None = None,
        on: Device | None = None,
    ) -> Hold:
        """Holds the blocks that the longest cached prefix needs. No hit: a hold that is false.

        Args:
            keys, tokens, everything, sub_tenant: as of :meth:`lookup`.
            from_tokens: hold only blocks that end after this token.
            wait: wait for blocks that another session is storing.
            no_load: do not wait for blocks that are on disk.
            read_only: leaves no trace in what eviction learns.
            wait_tokens: enough to return at once; 0 = all.
            timeout_ms: 0 = the session's. What has come by then is held.
            on: a device: blocks come onto it, as far as there is room (:meth:`Hold.device`).
        """
        flags = flags_of(wait=wait, no_load=no_load, read_only=read_only, everything=everything)
        raw = self._raw.acquire(
            keys,
            tokens,
            flags,
            from_tokens,
            wait_tokens,
            timeout_ms,
            sub_tenant,
            raw_of(on),
        )
        return Hold(raw)

    def redeem(self, ticket: bytes) -> Hold:
        """The same blocks of this session's shard, from another rank's ticket (16 bytes)."""
        return Hold(self._raw.redeem(ticket))

    def store(
        self,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        blocks: Sequence[Memory] | None,
        *,
        offsets: Sequence[int] | None = None,
        first_token: int = 0,
        last_tokens: int = 0,
        durable: bool = False,
        decoded: bool = False,
        admit: bool = False,
        no_store: bool = False,
        tokens: Numbers | None = None,
        retain: Sequence[Retain] = (),
        sub_tenant: str | None = None,
    ) -> bytes:
        """Stores consecutive blocks of one group.

        Args:
            group: number of the group.
            parent: 32 bytes: key before the first; None: the sequence starts here.
            keys: n keys of 32 bytes.
            blocks: n arrays of block_bytes bytes without gaps each, copied to staging in as many
                pieces as its room needs; None: they lie in ``Session.staging`` at ``offsets``.
            offsets: n offsets in staging, bytes, multiples of 64.
            first_token: position of the first key's first token.
            last_tokens: tokens in the last block; 0 = full.
            durable: returns when the blocks are on stable storage.
            decoded: they are of decoded tokens.
            admit: they are taken whatever they are worth (to be named or pinned).
            no_store: nothing is sent; every status is NO_STORE.
            tokens: ids of the blocks' tokens, for a namespace with_tokens.
            retain: wishes how long they stay, at most 16.
            sub_tenant: gateway sessions: whose data.

        Returns:
            n statuses, one byte each (:class:`Status`): OK and EXISTS are good. Behind a block
            that could not be stored they are NO_PARENT.

        Raises:
            Down: no daemon is there; the blocks are dropped and counted.
        """
        flags = flags_of(durable=durable, decoded=decoded, admit=admit, no_store=no_store)
        memory = None if blocks is None else [as_bytes(b) for b in blocks]
        ids = None if tokens is None else as_numbers(tokens)
        return self._raw.store(
            group,
            parent,
            keys,
            offsets,
            memory,
            None,
            None,
            first_token,
            last_tokens,
            flags,
            ids,
            retain,
            sub_tenant,
            None,
        )

    def store_pages(
        self,
        layout: PageLayout | Pool,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        pages: Numbers,
        *,
        first_token: int = 0,
        last_tokens: int = 0,
        durable: bool = False,
        decoded: bool = False,
        admit: bool = False,
        no_store: bool = False,
        tokens: Numbers | None = None,
        retain: Sequence[Retain] = (),
        sub_tenant: str | None = None,
        after: tuple[int, int] | None = None,
    ) -> bytes:
        """Stores blocks from an engine's pages, all layers in one call; else as :meth:`store`.

        Args:
            layout: where the pages lie; a pool: the daemon copies, and staging is not used.
            pages: pages_per_block numbers for each key: shape [n * pages_per_block].
            after: of a pool: (word, value): nothing is read before the word has that value
                (:meth:`Device.signal` behind the kernels that write the pages).

        Raises:
            BadArgument: ``after`` with pages of host memory, which have no words.
            Error: ``TIER``: the pool's device is out.
        """
        flags = flags_of(durable=durable, decoded=decoded, admit=admit, no_store=no_store)
        ids = None if tokens is None else as_numbers(tokens)
        return self._raw.store(
            group,
            parent,
            keys,
            None,
            None,
            layout.raw,
            as_numbers(pages),
            first_token,
            last_tokens,
            flags,
            ids,
            retain,
            sub_tenant,
            after,
        )

    def stage_pages(
        self,
        layout: PageLayout,
        group: int,
        pages: Numbers,
        offsets: Sequence[int],
        *,
        on: Device | None = None,
        stream: int = 0,
    ) -> None:
        """Copies blocks from their pages into staging; :meth:`store` with ``offsets`` follows.

        For memory on a device that cannot be given to the daemon.

        Args:
            layout: where the pages lie.
            pages: pages_per_block numbers for each block: shape [n * pages_per_block].
            offsets: n offsets in staging, bytes, multiples of 64.
            on: the device on which the pages lie: the copies are put on its ``stream``. Store, and
                let go of the pages, when the stream has come by.
            stream: see ``Device``.
        """
        raw = self._raw
        raw.stage(layout.raw, group, as_numbers(pages), offsets, raw_of(on), stream)

    def put(
        self,
        layout: PageLayout | Pool,
        keys: Keys,
        tokens: int,
        pages: Sequence[Numbers],
        *,
        from_tokens: int = 0,
        durable: bool = False,
        decoded: bool = False,
        admit: bool = False,
        token_ids: Numbers | None = None,
        retain: Sequence[Retain] = (),
        sub_tenant: str | None = None,
        after: tuple[int, int] | None = None,
    ) -> Put:
        """Stores what is missing of a whole sequence from an engine's pages: all groups, one call.

        The daemon is asked what it has, and only the rest is copied. Uses all of staging, but for
        pages of a pool, which the daemon reads itself.

        Args:
            layout: where the pages lie.
            keys: of the whole sequence: one bytes object per group (of one group: just that).
            tokens: length of the sequence that the keys cover.
            pages: for each group pages_per_block numbers for each of its keys; a block of
                :data:`NO_PAGE` alone is not stored (what a window has left).
            from_tokens: blocks that end at or before this token are taken for stored, without
                asking, for instance by the put before. What the daemon has lost meanwhile is stored
                again.
            durable, decoded, admit, retain, sub_tenant: as of :meth:`store`.
            after: as of :meth:`store_pages`.
            token_ids: of the whole sequence, for a namespace with_tokens.

        Raises:
            BadArgument: ``after`` with pages of host memory, which have no words.
            Down, Timeout: pieces before it may be stored.
        """
        flags = flags_of(durable=durable, decoded=decoded, admit=admit)
        ids = None if token_ids is None else as_numbers(token_ids)
        numbers = [as_numbers(p) for p in pages]
        done, size, groups = self._raw.put(
            layout.raw, keys, tokens, ids, numbers, from_tokens, flags, retain, sub_tenant, after
        )
        return Put(done, size, tuple(PutGroup(*g) for g in groups))

    def get(
        self,
        layout: PageLayout | Pool,
        keys: Keys,
        tokens: int,
        pages: Sequence[Numbers],
        *,
        from_tokens: int = 0,
        wait: bool = False,
        no_load: bool = False,
        everything: bool = False,
        timeout_ms: int = 0,
        sub_tenant: str | None = None,
        after: tuple[int, int] | None = None,
        ready: tuple[int, int] | None = None,
    ) -> int:
        """Loads the longest cached prefix of a sequence into an engine's pages.

        Args:
            layout, keys, tokens: as of :meth:`put`.
            pages: for each group pages_per_block numbers for each of its keys.
            from_tokens: what is there already: only blocks that end after this token are loaded.
            wait, no_load, everything, timeout_ms, sub_tenant: as of :meth:`acquire`.
            after: of a pool: (word, value): nothing is written before the word has that value.
            ready: of a pool: (word, value): the word becomes value + layers that are complete, and
                value + all of them at the end whatever came of it (:meth:`Device.wait`).

        Returns:
            Tokens of the prefix whose blocks (behind from_tokens) are in the pages now; 0: nothing.
            A pool whose device is out: nothing.
        """
        if isinstance(layout, Pool):
            numbers = [as_numbers(p) for p in pages]
            flags = flags_of(wait=wait, no_load=no_load, everything=everything)
            return self._raw.get(
                layout.raw,
                keys,
                tokens,
                numbers,
                from_tokens,
                flags,
                timeout_ms,
                sub_tenant,
                after,
                ready,
            )
        if after or ready:
            raise ValueError("after and ready are a pool's: pages in host memory have no words")
        if len(pages) != len(self.groups):
            text = f"pages of {len(pages)} groups: the namespace has {len(self.groups)}"
            raise BadArgument(-errno.EINVAL, "EINVAL", text)
        with self.acquire(
            keys,
            tokens,
            from_tokens=from_tokens,
            wait=wait,
            no_load=no_load,
            everything=everything,
            timeout_ms=timeout_ms,
            sub_tenant=sub_tenant,
        ) as hold:
            if not hold:
                return 0
            held: list[Numbers | None] = []
            for group, (page, (first, n)) in enumerate(zip(pages, hold.groups, strict=True)):
                per_block, given = layout.per_block(group), as_numbers(page)
                if not hasattr(given, "__getitem__"):  # what can be read once, as in put
                    given = list(cast("Sequence[int]", given))
                held.append(given[first * per_block : (first + n) * per_block])
            try:
                hold.load_pages(layout, held)
            except Stale:
                return 0
            return hold.tokens

    def hint(
        self,
        keys: Keys,
        tokens: int,
        kind: Hint,
        *,
        within_ms: int = 0,
        sub_tenant: str | None = None,
    ) -> None:
        """Says what will become of a sequence; ``within_ms`` for :attr:`Hint.SOON`. No answer."""
        self._raw.hint(keys, tokens, kind, within_ms, sub_tenant)

    def name_put(
        self,
        kind: NameKind,
        name: str,
        keys: Keys,
        tokens: int,
        *,
        pinned: bool = False,
        durable: bool = False,
        priority: int = 0,
        ttl_ms: int = 0,
        token_ids: Numbers | None = None,
        sub_tenant: str | None = None,
    ) -> tuple[int, int]:
        """Names a sequence, or moves the name to it.

        Args:
            kind: conversation or document.
            pinned: nothing of it goes while the name lasts.
            durable: returns when it is on stable storage.
            priority: 0 = the default, 35.
            ttl_ms: the name goes when it was not used for so long; 0 = never.
            token_ids: of a document: ids of all tokens, kept for export.

        Returns:
            (tokens, bytes) that the name covers: what is cached of the sequence now.
        """
        flags = flags_of(pinned=pinned, durable=durable)
        ids = None if token_ids is None else as_numbers(token_ids)
        return self._raw.name_put(
            kind, name, keys, tokens, flags, priority, ttl_ms, ids, sub_tenant
        )

    def pin(
        self,
        keys: Keys,
        tokens: int,
        *,
        in_memory: bool = False,
        ttl_ms: int = 0,
        sub_tenant: str | None = None,
    ) -> int:
        """Pins what is cached of a sequence; ``ttl_ms`` 0: until :meth:`Session.unpin`."""
        return self._raw.pin(keys, tokens, in_memory, ttl_ms, sub_tenant)


class Session:
    """One session with the daemon of this node.

    The daemon may be absent at any time: lookups and acquires are then misses within their
    deadline, stores raise :class:`Down`, and the session reconnects by itself at a later call.

    Threads may share a session: calls wait for each other. Calls of different sessions do not.
    A child of fork() opens a session of its own; its parent's raises :class:`Error` (EPERM).

    Args:
        socket: the daemon's attach socket; None: ``$KVCACHE_SOCKET``, else
            ``/run/kvcache/attach.sock``.
        name: for statistics and logs; None: the program's name.
        staging_bytes: room for blocks on their way into the cache, at most 1 TiB; 0: a reader. The
            daemon may grant less.
        shard: this rank's shard of every block.
        timeout_ms: deadline of every call; 0 = 5,000.
        must_connect: raise :class:`Down` when no daemon answers, instead of starting down.
        no_wait: do not wait for the daemon at all.
    """

    def __init__(
        self,
        *,
        socket: str | None = None,
        name: str | None = None,
        staging_bytes: int = 0,
        shard: int = 0,
        timeout_ms: int = 0,
        must_connect: bool = False,
        no_wait: bool = False,
    ) -> None:
        self._raw = _kvc.Session(
            socket, name, staging_bytes, shard, timeout_ms, must_connect, no_wait
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BufferError:
            if error is None:
                raise

    def close(self) -> None:
        """Ends the session and all its holds. BufferError while views of its memory are in use."""
        self._raw.close()

    @property
    def up(self) -> bool:
        """Whether the daemon is there, as far as the session knows. No traffic."""
        return self._raw.up()

    @property
    def epoch(self) -> int:
        """Grows by one at each connection; 0 = never connected."""
        return self._raw.epoch()

    @property
    def last_error(self) -> str:
        """Text of the last error; empty if none."""
        return self._raw.last_error()

    @property
    def staging(self) -> memoryview | None:
        """The staging area: shape [bytes], uint8, writable; None when down or none.

        Ask for it before it is filled, and do not keep the view: what was in it is void after a
        reconnect, and its memory may be gone once the area is asked for again.
        Stores with ``blocks`` and of pages use the same area from its beginning.
        """
        return self._raw.staging()

    def ping(self) -> int:
        """One round trip. Returns the daemon's uptime in milliseconds."""
        return self._raw.ping()

    def counters(self) -> dict[str, int]:
        """This session's own: lookups_down, stores_dropped_blocks, reconnects, stale, ..."""
        return self._raw.counters()

    def stats(self, prefix: str = "") -> dict[str, int]:
        """The daemon's statistics whose names begin with ``prefix``."""
        return {k: v for k, v in self._raw.stats().items() if k.startswith(prefix)}

    def fileno(self) -> int:
        """The descriptor that an event loop watches for reading (:mod:`kvcache_client.aio`)."""
        return self._raw.fileno()

    def namespace(
        self,
        *,
        model: str,
        groups: Iterable[Group],
        revision: str = "",
        dtype: str = "",
        quant: str = "",
        layout: str = "",
        position: str = "",
        position_params: str = "",
        attention: str = "causal",
        lora: str = "",
        extra: str = "",
        sub_tenant: str | None = None,
        layers: int = 0,
        kv_heads: int = 0,
        head_size: int = 0,
        shards: int = 1,
        with_tokens: bool = False,
        prefill_ns_per_token: int = 0,
        prefill_ns_per_token_pair: int = 0,
    ) -> Namespace:
        """Opens a namespace; equal arguments are the same one. See ``PROTOCOL.md``, Namespaces.

        Args:
            model, revision, dtype, quant, layout, lora, extra: texts, compared byte by byte.
            groups: 1 to 16 groups of layers.
            position: ``"rope"``, ``"yarn"``, ``"alibi"``, ``"learned"``, ``"none"``, ...
            shards: ranks that each hold a part of every block.
            with_tokens: stores carry token ids.
            prefill_ns_per_token: what computing a token costs, nanoseconds; 0 = unknown.
            prefill_ns_per_token_pair: its quadratic part, in 1e-6 ns.

        Raises:
            Unsound: KV of such a model cannot be reused; the text says why.
        """
        groups = tuple(groups)
        raw = self._raw.namespace(
            *spec_of(
                model=model,
                groups=groups,
                revision=revision,
                dtype=dtype,
                quant=quant,
                layout=layout,
                position=position,
                position_params=position_params,
                attention=attention,
                lora=lora,
                extra=extra,
                sub_tenant=sub_tenant,
                layers=layers,
                kv_heads=kv_heads,
                head_size=head_size,
                shards=shards,
                with_tokens=with_tokens,
                prefill_ns_per_token=prefill_ns_per_token,
                prefill_ns_per_token_pair=prefill_ns_per_token_pair,
            )
        )
        return Namespace(raw, groups)

    def device(self, name: str) -> Device:
        """The worker's side of a device: ``"cuda:<ordinal>"``, ``"GPU-<uuid>"``, ``"emu:0"``.

        CUDA: uses the primary context of that device, as PyTorch does. Once in a session.

        Raises:
            Error: ``ENODEV``: no such device, or no driver; the text names the next step.
        """
        return Device(self._raw.device(name))

    # ---- conversations, documents, pins

    def name_put(
        self, ns: Namespace, kind: NameKind, name: str, keys: Keys, tokens: int, **options: object
    ) -> tuple[int, int]:
        """:meth:`Namespace.name_put` of ``ns``."""
        return ns.name_put(kind, name, keys, tokens, **options)  # type: ignore[arg-type]

    def name_get(
        self, kind: NameKind, name: str, *, sub_tenant: str | None = None
    ) -> NameInfo | None:
        """What the daemon knows of a name; None: there is no such name."""
        try:
            return _name_info(self._raw.name_show(kind, name, sub_tenant))
        except Error as error:
            if error.name == "NO_NAME":
                return None
            raise

    def name_list(
        self, kind: NameKind | None = None, *, prefix: str = "", sub_tenant: str | None = None
    ) -> list[NameInfo]:
        """Names that begin with ``prefix``, in order; kind None: of both kinds."""
        return [_name_info(i) for i in self._raw.name_list(kind or 0, prefix, sub_tenant)]

    def name_forget(
        self, kind: NameKind, name: str, *, evict: bool = False, sub_tenant: str | None = None
    ) -> None:
        """The name goes; ``evict``: its blocks too, but for what others share or use."""
        self._raw.name_forget(kind, name, sub_tenant, evict)

    def name_load(
        self,
        kind: NameKind,
        name: str,
        *,
        ttl_ms: int | None = None,
        wait: bool = False,
        timeout_ms: int = 0,
        sub_tenant: str | None = None,
    ) -> int:
        """A use of the name: begins to load it into memory. Returns bytes that are there now.

        Args:
            ttl_ms: another time to live; None: as it was.
            wait: until all is there, no more will come, or ``timeout_ms`` have passed.
        """
        ttl = _KEEP_TTL if ttl_ms is None else ttl_ms
        return self._raw.name_load(kind, name, sub_tenant, ttl, wait, timeout_ms)

    def name_tokens(
        self, kind: NameKind, name: str, *, sub_tenant: str | None = None
    ) -> array[int]:
        """The token ids that came with the name: shape [tokens], uint32."""
        ids: array[int] = array("I")
        while True:
            more = self._raw.name_tokens(kind, name, sub_tenant, len(ids), 1 << 16)
            if not more:
                return ids
            ids.frombytes(more)

    def unpin(self, pin: int) -> None:
        """Ends a pin of :meth:`Namespace.pin`."""
        self._raw.unpin(pin)

    def pins(self) -> list[PinInfo]:
        """Pins that this session may see."""
        return [PinInfo(id=i.pop("pin"), **i) for i in self._raw.pin_list()]  # type: ignore[arg-type]


def _name_info(raw: dict[str, object]) -> NameInfo:
    kind = raw.pop("kind")
    assert isinstance(kind, int)
    return NameInfo(kind=NameKind(kind), **raw)  # type: ignore[arg-type]


def spec_of(
    *,
    model: str,
    groups: Sequence[Group],
    revision: str = "",
    dtype: str = "",
    quant: str = "",
    layout: str = "",
    position: str = "",
    position_params: str = "",
    attention: str = "causal",
    lora: str = "",
    extra: str = "",
    sub_tenant: str | None = None,
    layers: int = 0,
    kv_heads: int = 0,
    head_size: int = 0,
    shards: int = 1,
    with_tokens: bool = False,
    prefill_ns_per_token: int = 0,
    prefill_ns_per_token_pair: int = 0,
) -> tuple[object, ...]:
    """The arguments of :meth:`Session.namespace` as the extension takes them."""
    return (
        model,
        revision,
        dtype,
        quant,
        layout,
        position,
        position_params,
        attention,
        lora,
        extra,
        sub_tenant,
        (layers, kv_heads, head_size, shards),
        with_tokens,
        prefill_ns_per_token,
        prefill_ns_per_token_pair,
        [g.spec() for g in groups],
    )
