# SPDX-License-Identifier: Apache-2.0
"""vLLM is imported once, before any engine forks; tests of minutes run with --long."""

from __future__ import annotations

import pytest
from rig import Engine, preload

preload()
# 131,072 tokens are enough: vLLM would write a gigabyte before an engine serves.
Engine.blocks = 4096


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes; runs with --long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="--long"))
