# SPDX-License-Identifier: Apache-2.0
"""LMCache's server and connector, and what vLLM itself tells of any connector's loads.

LMCache is installed from PyPI into a directory of its own: of what it wants only what the engines'
environment lacks, so that vLLM, torch and NumPy stay as they are. What only CUDA or a cloud needs
is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VERSION = "0.5.6"
CONNECTOR = {
    "kv_connector": "LMCacheMPConnector",
    "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
}
_NOT_NEEDED = (
    "cupy-cuda13x",
    "cuda-python",
    "cufile-python",
    "awscrt",
    "nvtx",
    "google-cloud-bigtable",
    "google-api-core",
)


def install(folder: Path) -> None:
    """Installs LMCache and makes it importable, here and in child processes; exits if it cannot."""
    uv = Path(sys.prefix) / "bin" / "uv"
    made = folder / f"lmcache-{VERSION}.dist-info"
    if not made.exists():
        here = subprocess.run(
            [uv, "pip", "freeze", "-q", "--python", sys.executable],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = [line.split("==")[0].split(" @ ")[0] for line in here.split("\n") if line]
        folder.mkdir(parents=True, exist_ok=True)
        left_out = folder / "left-out.txt"
        lines = [f'{name} ; python_version < "3"\n' for name in (*names, *_NOT_NEEDED)]
        left_out.write_text("".join(lines))
        command = [uv, "pip", "install", "-q", "--python", sys.executable, "--target", folder]
        done = subprocess.run([*command, f"lmcache=={VERSION}", "--override", left_out])
        if done.returncode != 0:
            raise SystemExit(f"SKIP: lmcache {VERSION} cannot be installed here (see above)")
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] += f":{folder}"
    os.environ["LMCACHE_TRACK_USAGE"] = "false"


def mend_start() -> None:
    """Lets vLLM 0.32 start on a CPU after LMCache has imported numba: what it scans is hidden.

    It looks for its kernels in the attributes of every module that is loaded, and llvmlite's are of
    a kind that it cannot look into: "'_lib_fn_wrapper' object has no attribute 'get'".
    """
    from vllm.triton_utils import dispatcher

    rebind = dispatcher._rebind_kernels

    def hidden(overrides: Any) -> None:
        names = [n for n in sys.modules if n.split(".")[0] == "llvmlite"]
        taken = {n: sys.modules.pop(n) for n in names}
        try:
            rebind(overrides)
        finally:
            sys.modules.update(taken)

    dispatcher._rebind_kernels = hidden


class Server:
    """LMCache's MP server. way: how blocks come and go, "shm" (one shared memory) or "socket".

    disk: GiB of its file tier in a directory of its own, found again after a restart. Its limit
    holds only with a policy of eviction, says LMCache, and here it has one.
    """

    def __init__(self, *, memory_gb: float, way: str = "shm", disk: float = 0) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="kvc-lmcache."))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        arguments = ["--host", "127.0.0.1", "--port", str(self.port)]
        arguments += ["--supported-transfer-mode", "auto", "--eviction-policy", "LRU"]
        arguments += ["--l1-size-gb", str(memory_gb), "--l1-init-size-gb", "1"]
        arguments += ["--disable-observability"]
        if way == "shm":
            arguments += ["--shm-name", self.dir.name]
        if disk:
            (self.dir / "store").mkdir()
            tier = {
                "type": "fs_native",
                "base_path": f"{self.dir}/store",
                "use_odirect": True,
                "max_capacity_gb": disk,
                "eviction": {"eviction_policy": "LRU"},
            }
            arguments += ["--l2-adapter", json.dumps(tier)]
        self._command = [sys.executable, "-m", "lmcache.v1.multiprocess.server", *arguments]
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> dict[str, Any]:
        """kv_connector_extra_config of an engine."""
        where = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port}
        # Instead of 300 s: how long an engine waits for a server that has ended.
        return where | {"lmcache.mp.mq_timeout": 20.0}

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        log = open(self.dir / "log", "ab")  # noqa: SIM115 (the server's)
        before = self.log().count("cache server is running...")
        self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        end = time.monotonic() + 600  # imports take minutes on a busy machine
        while self.log().count("cache server is running...") == before:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("LMCache's server does not start:\n" + self.log()[-4000:])
            time.sleep(0.02)

    def memory(self) -> dict[str, int]:
        """MiB: its own, and the shared memory with blocks, which only engines touch."""
        pool = sum(f.stat().st_blocks * 512 for f in self._shared()) >> 20
        return memory(self.pid) | {"shmem": pool}

    def _shared(self) -> list[Path]:
        return list(Path("/dev/shm").glob(f"*{self.dir.name}*"))

    def log(self) -> str:
        """What it has said."""
        path = self.dir / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def end(self, number: int) -> None:
        """Sends a signal, and waits for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(60)

    def close(self) -> None:
        """Ends it; its files and its memory go."""
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)
        for left in self._shared():
            left.unlink()
        shutil.rmtree(self.dir, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def memory(pid: int) -> dict[str, int]:
    """MiB of a process: its own, and shared memory that it has touched."""
    text = Path(f"/proc/{pid}/status").read_text()
    values = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Rss"))
    return {k[3:].lower(): int(v.split()[0]) // 1024 for k, v in values.items()}


def stored(folder: Path) -> int:
    """MiB of files in a server's storage; what is deleted meanwhile does not count."""
    found = 0
    for file in (folder / "store").rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found += file.stat().st_blocks * 512
    return found >> 20


_loads: list[float] = []


def watch_loads() -> None:
    """Engines that are forked from now on measure each load from outside of the connector.

    A load begins when the scheduler first asks the connector for a request's prefix, and ends when
    it hears that the blocks are there. ``LLM.take_loads`` returns seconds, and forgets them.
    """
    from vllm import LLM
    from vllm.v1.core.sched.scheduler import Scheduler

    init = Scheduler.__init__

    def watched(self: Any, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        if self.connector is not None:
            _watch(self.connector)

    def take_loads(_: Any) -> list[float]:
        taken = list(_loads)
        _loads.clear()
        return taken

    Scheduler.__init__ = watched
    LLM.take_loads = take_loads


def _watch(connector: Any) -> None:
    asked: dict[str, float] = {}
    matched, told = connector.get_num_new_matched_tokens, connector.update_connector_output

    def ask(request: Any, computed: int) -> Any:
        asked.setdefault(request.request_id, time.perf_counter())
        return matched(request, computed)

    def hear(output: Any) -> Any:
        now = time.perf_counter()
        _loads.extend(now - asked.pop(r) for r in output.finished_recving or ())
        return told(output)

    connector.get_num_new_matched_tokens = ask
    connector.update_connector_output = hear
