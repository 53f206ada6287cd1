# SPDX-License-Identifier: Apache-2.0
"""The guides of docs/: their Python runs as written, their manifest is checked."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon
from test_llamacpp import real, smollm2

DOCS = Path(__file__).parents[1] / "docs"
# What each guide has shown when its last line has run.
SHOWS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "cag": lambda names: names["cache"].loaded_tokens > 0,
    "conversations": lambda names: names["loaded"] > 0,
    "prefill-decode": lambda names: names["cache"].loaded_tokens > 0,
    "transformers": lambda names: names["exact"].load(names["input_ids"]).loaded_tokens > 0,
}
LLAMA_CPP = DOCS / "llamacpp.md"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


class Bytes:
    """A tokenizer: a token is a byte."""

    def __call__(self, text: str, return_tensors: str) -> Any:
        import torch

        assert return_tensors == "pt"
        self.input_ids = torch.tensor([list(text.encode())])
        return self


@pytest.mark.parametrize(
    "guide", [DOCS / f"{stem}.md" for stem in sorted(SHOWS)], ids=lambda p: p.stem
)
def test_python_runs_as_written(
    guide: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5.0")
    from test_transformers import tiny_llama, torch

    from kvcache_client.transformers import PrefixCache

    monkeypatch.setenv("KVCACHE_SOCKET", daemon.socket)
    names = {"model": tiny_llama(torch.float32, seed=len(guide.stem)), "tokenizer": Bytes()}
    for code in PYTHON.findall(guide.read_text()):
        exec(compile(code, str(guide), "exec"), names)
    assert SHOWS[guide.stem](names)
    for prefixes in [n for n in names.values() if isinstance(n, PrefixCache)]:
        prefixes.close()


@real
def test_llama_cpp_runs_as_written(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: the second time what the first one saved is there."""
    monkeypatch.setenv("KVCACHE_SOCKET", daemon.socket)
    loaded = []
    for _ in range(2):
        names: dict[str, Any] = {"model_path": str(smollm2())}
        for code in PYTHON.findall(LLAMA_CPP.read_text()):
            exec(compile(code, str(LLAMA_CPP), "exec"), names)
        loaded.append(names["loaded"])
        names["session"].close()
    assert loaded == [0, len(names["tokens"]) - 1]


def test_every_guide_with_python_is_run() -> None:
    run = {*SHOWS, LLAMA_CPP.stem}
    assert {p.stem for p in DOCS.glob("*.md") if PYTHON.search(p.read_text())} == run


def test_links_lead_somewhere() -> None:
    for guide in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for link in re.findall(r"\]\(([^)#:]+)\)", guide.read_text()):
            assert (guide.parent / link).exists(), f"{guide.name}: {link}"


@pytest.fixture
def manifest() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DOCS / "kubernetes.yaml").read_text())


def containers(manifest: Any) -> Iterator[Any]:
    pod = manifest["spec"]["template"]["spec"]
    yield from pod["initContainers"]
    yield from pod["containers"]


def test_the_manifest_is_of_kubernetes_schema(manifest: Any) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(manifest, "1.31", strict=True)
    broken = {**manifest, "spec": {**manifest["spec"], "replicas": "one"}}
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.31", strict=True)


def test_the_manifest_asks_for_no_privilege(manifest: Any) -> None:
    pod = manifest["spec"]["template"]["spec"]
    assert not {"hostIPC", "hostPID", "hostNetwork"} & set(pod)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all(set(v) & {"emptyDir"} for v in pod["volumes"])
    for one in containers(manifest):
        security = one["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in security
        assert "socket" in [m["name"] for m in one["volumeMounts"]]


def test_the_manifest_is_what_the_programs_take(
    manifest: Any, program: str, tmp_path: Path
) -> None:
    daemon, engine = containers(manifest)
    mounted = [a.replace("/var/lib/kvcache", str(tmp_path)) for a in daemon["args"]]
    # It looks at the disk too, and the one of a test may be small.
    checked = [program, "--check-config", *mounted, "--set", "nvme.limit=64MiB"]
    said = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    wrong = [*checked, "--set", "host.limt=1GiB"]
    assert subprocess.run(wrong, capture_output=True, check=False).returncode != 0
    flag = engine["args"][engine["args"].index("--kv-transfer-config") + 1]
    assert json.loads(flag)["kv_load_failure_policy"] == "recompute"
    sockets = {e["value"] for e in engine["env"] if e["name"] == "KVCACHE_SOCKET"}
    assert sockets == {daemon["startupProbe"]["exec"]["command"][2]}
