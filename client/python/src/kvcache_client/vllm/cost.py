# SPDX-License-Identifier: Apache-2.0
"""What computing a token costs this engine: the daemon weighs it against what loading one costs."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PrefillCost"]

_TOKENS_MIN = 128  # of a step that is measured: in smaller ones what all steps cost counts most
_STEPS_UNMEASURED = 2  # the first long steps of a process are many times slower
_CHANGE = 0.25  # what is reported again
_REPORTS_MAX = 8  # each report opens the namespace once more


class PrefillCost:
    """Nanoseconds a token, from steps of many tokens: what a good step takes, not the average one.

    Other requests and other processes only ever make a step longer. So a shorter step counts at
    once, and a longer one by a twentieth.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began: float | None = None
        self._tokens = 0
        self._steps = 0
        self._ns = 0.0
        self._reported = 0
        self._reports = 0

    def begin(self, tokens: int) -> None:
        """A step of so many tokens is handed out; of overlapping ones none is measured."""
        self._tokens = tokens if self._began is None else 0
        self._began = self._clock()

    def end(self) -> int | None:
        """The step has ended. Returns the cost when it is to be reported (again)."""
        began, self._began = self._began, None
        if began is None or self._tokens < _TOKENS_MIN:
            return None
        self._steps += 1
        if self._steps <= _STEPS_UNMEASURED:
            return None
        ns = (self._clock() - began) * 1e9 / self._tokens
        self._ns = ns if self._ns == 0 or ns < self._ns else self._ns + (ns - self._ns) / 20
        if self._reports >= _REPORTS_MAX or abs(self._ns - self._reported) <= _CHANGE * self._ns:
            return None
        self._reported = max(1, round(self._ns))
        self._reports += 1
        return self._reported
