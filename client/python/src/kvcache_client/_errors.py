# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one for each kind of outcome that a caller treats differently."""

from __future__ import annotations

import errno

__all__ = [
    "BadArgument",
    "Denied",
    "Down",
    "Error",
    "Limit",
    "Stale",
    "Timeout",
    "Unsound",
    "from_code",
]


class Error(Exception):
    """A call failed. A miss is never an error.

    Attributes:
        code: what libkvcache returned: a negative errno, or a code of ``<kvcache/proto.h>``.
        name: its name, for instance ``"NO_PARENT"`` or ``"ETIMEDOUT"``.
        text: what was wrong, for people.
    """

    code: int
    name: str
    text: str

    def __init__(self, code: int, name: str, text: str) -> None:
        text = text.removeprefix(f"{name}: ")  # a daemon's answer has it already
        super().__init__(f"{name}: {text}" if text else name)
        self.code = code
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[type[Error], tuple[int, str, str]]:
        return (type(self), (self.code, self.name, self.text))


class Down(Error):
    """No daemon answers. Whoever stores goes on without; the session reconnects by itself."""


class Timeout(Error):
    """The daemon is there, and did not answer in time."""


class Stale(Error):
    """What was read may not be what was stored: discard it."""


class Denied(Error):
    """This user has no right to it."""


class Limit(Error):
    """A limit, a quota or the room is exhausted."""


class BadArgument(Error, ValueError):
    """An argument is wrong; the text says which, and what would be right."""


class Unsound(Error):
    """KV of this model cannot be reused (attention or position scheme)."""


_CLASS: dict[str, type[Error]] = {
    "DOWN": Down,
    "SHUTDOWN": Down,
    "TIMEOUT": Timeout,
    "ETIMEDOUT": Timeout,
    "STALE": Stale,
    "DENIED": Denied,
    "EACCES": Denied,
    "EPERM": Denied,
    "LIMIT": Limit,
    "QUOTA": Limit,
    "PIN_LIMIT": Limit,
    "FULL": Limit,
    "NO_ROOM": Limit,
    "BUSY": Limit,
    "TOO_LARGE": Limit,
    "BAD_ARGUMENT": BadArgument,
    "BAD_MESSAGE": BadArgument,
    "EINVAL": BadArgument,
    "UNSOUND": Unsound,
}


def from_code(code: int, name: str, text: str | None, detail: str | None) -> Error | MemoryError:
    """The exception for what a function of libkvcache returned."""
    if code == -errno.ENOMEM:
        return MemoryError(detail or text or name)
    return _CLASS.get(name, Error)(code, name, detail or text or "")
