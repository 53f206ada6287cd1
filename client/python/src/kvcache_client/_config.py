# SPDX-License-Identifier: Apache-2.0
"""What a config.json says about rotated positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "ROPE_TYPES",
    "NotUnderstood",
    "RopeType",
    "rope_types",
    "scheme_of",
]


class NotUnderstood(Exception):
    """The configuration has something that decides the result and is not known here."""


class RopeType(NamedTuple):
    """A ``rope_type``.

    Attributes:
        scheme: the daemon's name.
        by_length: "" or what an engine may do by a sequence's length. "scales": transformers turns
            keys otherwise once a sequence is long; vLLM computes it once, for the model's length.
            "chooses": of two sets of factors.
    """

    scheme: str
    by_length: str = ""


ROPE_TYPES = {
    "default": RopeType("rope"),
    "proportional": RopeType("rope"),
    "mrope": RopeType("mrope"),
    "dynamic": RopeType("rope", "scales"),
    "linear": RopeType("rope-linear"),
    "yarn": RopeType("yarn"),
    "deepseek_yarn": RopeType("yarn"),
    "llama3": RopeType("llama3"),
    "longrope": RopeType("longrope", "chooses"),
    "su": RopeType("longrope", "chooses"),
}


def rope_types(parameters: object) -> set[str]:
    """The types that rope_parameters or rope_scaling names: one, or one for each type of layer."""
    if not isinstance(parameters, Mapping) or not parameters:
        return set()
    named = parameters.get("rope_type") or parameters.get("type")
    if "mrope_section" in parameters:
        return {"mrope"} | ({str(named)} - {"None", "default"})
    nested = [v for v in parameters.values() if isinstance(v, Mapping)]
    if named is None and nested:
        return set[str]().union(*(rope_types(v) for v in nested))
    return {str(named or "default")}


def scheme_of(types: set[str]) -> str:
    """The daemon's name for layers of these types, all in :data:`ROPE_TYPES`."""
    schemes = {ROPE_TYPES[t].scheme for t in types}
    return min(schemes - {"rope"}, default="rope")
