# SPDX-License-Identifier: Apache-2.0
"""The extension. Positional arguments only, no defaults: kvcache_client wraps all of it."""

from collections.abc import Sequence
from typing import Final, final

from typing_extensions import Buffer, CapsuleType

LIBRARY_VERSION: Final[str]
KEY_BYTES: Final[int]
GROUPS_MAX: Final[int]
STORE_MAX: Final[int]
NO_PAGE: Final[int]
WORDS: Final[int]
BLOCK_TOKENS_MAX: Final[int]
BLOCK_BYTES_MAX: Final[int]
PRIORITY_DEFAULT: Final[int]
F_WAIT: Final[int]
F_TOUCH: Final[int]
F_DURABLE: Final[int]
F_PREFETCH: Final[int]
F_NO_LOAD: Final[int]
F_READ_ONLY: Final[int]
F_ALL: Final[int]
F_ADMIT: Final[int]
F_DECODED: Final[int]
F_NO_STORE: Final[int]
F_PINNED: Final[int]
RULE_FULL: Final[int]
RULE_WINDOW: Final[int]
RULE_STATE: Final[int]
STATUSES: Final[dict[str, int]]
MISSES: Final[dict[str, int]]

type_keys = bytes | bytearray | memoryview | Sequence[Buffer]
type_numbers = Buffer | Sequence[int]
type_prefix = tuple[int, int, int, tuple[tuple[int, int, int], ...]]
type_info = tuple[int, int, bool, tuple[int, ...], tuple[int, ...]]
type_word = tuple[int, int] | None
type_layer = tuple[str, int, int, int, int, int]
type_model = tuple[str, tuple[type_layer, ...], int, int, str, str, str]
type_spec_group = tuple[int, int, int, int, bool]

def hash_chain(
    parent: Buffer, tokens: type_numbers, block_tokens: int, extra: Buffer, /
) -> bytes: ...
def miss_name(reason: int, /) -> tuple[str, str]: ...
def buffer_info(of: Buffer, /) -> type_info: ...
def dlpack_info(capsule: CapsuleType, /) -> type_info: ...
def model_read(text: Buffer, name: str, /) -> type_model: ...
def memory(owner: object, address: int, bytes_: int, read_only: bool, /) -> memoryview: ...

@final
class Layout:
    def __new__(
        cls,
        groups: Sequence[Sequence[tuple[int, int, int, int]]],
        pages_max: int,
        pages_per_block: Sequence[int],
        /,
    ) -> Layout: ...

@final
class DLPack:
    def capsule(self, versioned: bool, /) -> CapsuleType: ...
    def device(self) -> tuple[int, int]: ...

@final
class Memory:
    def close(self) -> None: ...

@final
class Pool:
    def close(self) -> None: ...

@final
class Device:
    def close(self) -> None: ...
    def alloc(self, bytes_: int, /) -> tuple[Memory, int]: ...
    def register(self, address: int, bytes_: int, /) -> Memory: ...
    def pool(self, layout: Layout, memories: tuple[Memory, ...], /) -> Pool: ...
    def signal(self, word: int, value: int, stream: int, /) -> None: ...
    def wait(self, word: int, value: int, stream: int, /) -> None: ...
    def word(self, word: int, /) -> int: ...

@final
class Hold:
    def release(self) -> None: ...
    def info(self) -> tuple[int, bytes, int, type_prefix, tuple[tuple[int, int], ...]]: ...
    def block(self, group: int, i: int, /) -> memoryview: ...
    def check(self) -> bool: ...
    def load(
        self,
        layout: Layout,
        pages: Sequence[type_numbers | None],
        device: Device | None,
        stream: int,
        /,
    ) -> None: ...
    def read_into(self, group: int, to: Buffer, /) -> None: ...
    def dlpack(self, group: int, i: int, /) -> DLPack: ...
    def device(self, group: int, i: int, /) -> int: ...

@final
class Request:
    def finish(self) -> object: ...
    def done(self) -> bool: ...
    def cancel(self) -> None: ...

@final
class Namespace:
    def id(self) -> int: ...
    def seed(self) -> bytes: ...
    def lookup(
        self, keys: type_keys, tokens: int, flags: int, sub: str | None, /
    ) -> type_prefix: ...
    def acquire(
        self,
        keys: type_keys,
        tokens: int,
        flags: int,
        from_tokens: int,
        wait_tokens: int,
        timeout_ms: int,
        sub: str | None,
        device: Device | None,
        /,
    ) -> Hold: ...
    def redeem(self, ticket: bytes, /) -> Hold: ...
    def store(
        self,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        offsets: Sequence[int] | None,
        blocks: Sequence[Buffer] | None,
        layout: Layout | Pool | None,
        pages: type_numbers | None,
        first_token: int,
        last_tokens: int,
        flags: int,
        tokens: type_numbers | None,
        retain: Sequence[tuple[int, int, int, int]],
        sub: str | None,
        after: type_word,
        /,
    ) -> bytes: ...
    def stage(
        self,
        layout: Layout,
        group: int,
        pages: type_numbers,
        offsets: Sequence[int],
        device: Device | None,
        stream: int,
        /,
    ) -> None: ...
    def get(
        self,
        pool: Pool,
        keys: type_keys,
        tokens: int,
        pages: Sequence[type_numbers],
        from_tokens: int,
        flags: int,
        timeout_ms: int,
        sub: str | None,
        after: type_word,
        ready: type_word,
        /,
    ) -> int: ...
    def put(
        self,
        layout: Layout | Pool,
        keys: type_keys,
        tokens: int,
        ids: type_numbers | None,
        pages: Sequence[type_numbers],
        from_tokens: int,
        flags: int,
        retain: Sequence[tuple[int, int, int, int]],
        sub: str | None,
        after: type_word,
        /,
    ) -> tuple[int, int, tuple[tuple[int, int, int, int, bytes], ...]]: ...
    def name_put(
        self,
        kind: int,
        name: str,
        keys: type_keys,
        tokens: int,
        flags: int,
        priority: int,
        ttl_ms: int,
        ids: type_numbers | None,
        sub: str | None,
        /,
    ) -> tuple[int, int]: ...
    def pin(
        self, keys: type_keys, tokens: int, in_memory: bool, ttl_ms: int, sub: str | None, /
    ) -> int: ...
    def hint(
        self, keys: type_keys, tokens: int, kind: int, within_ms: int, sub: str | None, /
    ) -> None: ...
    def lookup_begin(
        self, keys: type_keys, tokens: int, flags: int, sub: str | None, /
    ) -> Request: ...
    def acquire_begin(
        self,
        keys: type_keys,
        tokens: int,
        flags: int,
        from_tokens: int,
        wait_tokens: int,
        timeout_ms: int,
        sub: str | None,
        /,
    ) -> Request: ...
    def redeem_begin(self, ticket: bytes, /) -> Request: ...
    def get_begin(
        self,
        pool: Pool,
        keys: type_keys,
        tokens: int,
        pages: Sequence[type_numbers],
        from_tokens: int,
        flags: int,
        timeout_ms: int,
        sub: str | None,
        after: type_word,
        ready: type_word,
        /,
    ) -> Request: ...
    def store_pages_begin(
        self,
        pool: Pool,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        pages: type_numbers,
        first_token: int,
        last_tokens: int,
        flags: int,
        tokens: type_numbers | None,
        retain: Sequence[tuple[int, int, int, int]],
        sub: str | None,
        after: type_word,
        /,
    ) -> Request: ...
    def store_begin(
        self,
        epoch: int,
        group: int,
        parent: Buffer | None,
        keys: Buffer,
        offsets: Sequence[int],
        first_token: int,
        last_tokens: int,
        flags: int,
        tokens: type_numbers | None,
        retain: Sequence[tuple[int, int, int, int]],
        sub: str | None,
        /,
    ) -> Request: ...

@final
class Session:
    def __new__(
        cls,
        socket: str | None,
        name: str | None,
        staging_bytes: int,
        shard: int,
        timeout_ms: int,
        must_connect: bool,
        no_wait: bool,
        /,
    ) -> Session: ...
    def close(self) -> None: ...
    def up(self) -> bool: ...
    def epoch(self) -> int: ...
    def ping(self) -> int: ...
    def last_error(self) -> str: ...
    def counters(self) -> dict[str, int]: ...
    def fileno(self) -> int: ...
    def staging(self) -> memoryview | None: ...
    def staging_ask(self) -> tuple[int, int] | None: ...
    def staging_fill(self, epoch: int, at: int, block: Buffer, /) -> None: ...
    def stats(self) -> dict[str, int]: ...
    def namespace(self, *spec: object) -> Namespace: ...
    def device(self, name: str, /) -> Device: ...
    def name_list(
        self, kind: int, prefix: str | None, sub: str | None, /
    ) -> list[dict[str, object]]: ...
    def name_show(self, kind: int, name: str, sub: str | None, /) -> dict[str, object]: ...
    def name_forget(self, kind: int, name: str, sub: str | None, evict: bool, /) -> None: ...
    def name_load(
        self, kind: int, name: str, sub: str | None, ttl_ms: int, wait: bool, timeout_ms: int, /
    ) -> int: ...
    def name_tokens(
        self, kind: int, name: str, sub: str | None, first: int, most: int, /
    ) -> bytes: ...
    def unpin(self, pin: int, /) -> None: ...
    def pin_list(self) -> list[dict[str, object]]: ...
    def ping_begin(self) -> Request: ...
    def namespace_begin(self, *spec: object) -> Request: ...
    def progress(self) -> list[Request]: ...
