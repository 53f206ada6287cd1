# SPDX-License-Identifier: Apache-2.0
"""vLLM's own offloading does not start on a CPU. Once it does, it is to be compared with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from model import make
from rig import Engine, EngineError

MODELS = Path(os.environ["KVC_MODELS"])
REFUSAL = "CPU Offloading is currently only supported on CUDA-alike and XPU GPUs"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("OffloadingConnector", {}, REFUSAL),
        ("OffloadingConnector", {"spec_name": "TieringOffloadingSpec"}, REFUSAL),
        (
            "SimpleCPUOffloadConnector",
            {},
            "type object '_StreamPlaceholder' has no attribute 'priority_range'",
        ),
    ],
    ids=["offloading", "tiering", "simple"],
)
def test_does_not_start(name: str, more: dict[str, Any], said: str) -> None:
    model = str(make("llama", MODELS / "llama"))
    transfer = {"kv_connector": name, "kv_connector_module_path": None}
    with (
        pytest.raises(EngineError) as refused,
        Engine(model, connector={"cpu_bytes_to_use": 64 << 20} | more, transfer=transfer),
    ):
        pass
    assert said in str(refused.value)
