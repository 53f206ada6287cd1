# SPDX-License-Identifier: Apache-2.0
"""Settings and wishes that people write: what each may be, and what is said of one that is wrong.

A kind makes a value of what was written, or says no; it says too what would have been right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = [
    "FLAG",
    "MS_MAX",
    "SOCKET_MAX",
    "Kind",
    "checked",
    "integer",
    "is_text",
    "shown",
    "size",
    "text",
]

# The longest deadline of a session, and the longest path of a socket.
MS_MAX = 600_000
SOCKET_MAX = 107

_UNITS = {
    "": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
_SHOWN = 80


class Kind(NamedTuple):
    """What a value may be.

    Attributes:
        of: the value as it is used; None: it is wrong.
        what: what would be right, for people.
    """

    of: Callable[[Any], Any]
    what: str


def shown(value: object) -> str:
    """A value that somebody wrote, for one line of a log or an error."""
    try:
        whole = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]}..."


def integer(least: int, most: int) -> Kind:
    """A whole number; true and false are none."""

    def of(value: Any) -> int | None:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return value if is_int and least <= value <= most else None

    return Kind(of, f"a whole number from {least} to {most}")


def size(least: int, most: int) -> Kind:
    """Bytes: a number, or a text such as ``"64MiB"`` or ``"1GB"``."""
    within = integer(least, most)

    def of(value: Any) -> int | None:
        if isinstance(value, str):
            match = re.fullmatch(r"([0-9]{1,20}) ?([KMG]i?B)?", value)
            value = int(match[1]) * _UNITS[match[2] or ""] if match else None
        number: int | None = within.of(value)
        return number

    return Kind(of, f"a size such as 67108864 or '64MiB', from {least} to {most} bytes,")


def is_text(value: object, least: int, most: int) -> bool:
    """Whether the daemon takes it: so many bytes of UTF-8 without NUL."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return least <= len(value.encode()) <= most
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON may hold
        return False


def text(least: int, most: int) -> Kind:
    """Texts as of :func:`is_text`."""
    what = f"a text of {least} to {most} bytes of UTF-8, without NUL,"
    return Kind(lambda value: value if is_text(value, least, most) else None, what)


FLAG = Kind(lambda value: value if isinstance(value, bool) else None, "true or false")


def checked(
    where: str, config: Mapping[Any, Any], kinds: Mapping[str, Kind], optional: frozenset[str]
) -> dict[str, Any]:
    """The settings of a dictionary.

    Args:
        where: what people call the dictionary.
        kinds: of all settings that there are.
        optional: those that may be None.

    Raises:
        ValueError: a name is unknown or a value wrong; the text says which, and what is right.
    """
    values: dict[str, Any] = {}
    for name, value in config.items():
        kind = kinds.get(name)
        if kind is None:
            known = ", ".join(sorted(kinds))
            raise ValueError(f"{where} has {shown(name)}: known are {known}")
        made = kind.of(value)
        if made is None and (value is not None or name not in optional):
            raise ValueError(f"{where}: {name} is {shown(value)}: {kind.what} was expected")
        values[name] = made
    return values
