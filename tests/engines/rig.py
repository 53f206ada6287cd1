# SPDX-License-Identifier: Apache-2.0
"""A daemon, engines and prompts of a test's own.

Importing vLLM takes 15 s and an engine 3 s: this process imports, and each engine is a child of
it by fork(). Children share nothing but the daemon.

No result depends on how fast the machine is. Deadlines of the connector are out of reach where a
test counts what is loaded (``patient``), and an engine ends when its stores have been answered.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

BIN = Path(os.environ["KVC_BIN_DIR"])
CONNECTOR = {
    "kv_connector": "KVCacheDaemonConnector",
    "kv_connector_module_path": "kvcache_client.vllm",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}
# A deadline that only what hangs reaches.
NEVER_MS = 600_000
_fork = multiprocessing.get_context("fork")


def preload() -> None:
    """Imports what engines need, the models' classes included: a child finds all of it.

    vLLM would start a process for each architecture that it has not seen on this machine. What is
    there is frozen: a child's collector need not look through it again, which it does five times.
    """
    from model import CLASSES
    from vllm import ModelRegistry

    for module in (
        "v1.engine.core",
        "v1.engine.llm_engine",
        "v1.worker.cpu_worker",
        "entrypoints.llm",
    ):
        importlib.import_module(f"vllm.{module}")
    for name, module in CLASSES.items():
        made = importlib.import_module(f"vllm.model_executor.models.{module}")
        ModelRegistry.register_model(name, getattr(made, name))
    gc.collect()
    gc.freeze()


class Daemon:
    """One daemon; storage=True: with a storage tier, found again after a restart.

    more: settings by their names, in place of these or beside them.
    """

    def __init__(
        self,
        *,
        storage: bool = False,
        memory: str = "256MiB",
        more: dict[str, str] | None = None,
    ) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="kvc-engines."))
        self.socket = str(self.dir / "run" / "attach.sock")
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "runtime_dir": self.dir / "run",
            "socket_mode": "0600",
            "host.limit": memory,
            "memory.budget": "3GiB",
            "secret_file": self.dir / "secret",
        }
        if storage:
            (self.dir / "store").mkdir()
            settings |= {"nvme.paths": self.dir / "store", "nvme.limit": "1GiB"}
        settings |= more or {}
        self._arguments = [f"--set={k}={v}" for k, v in settings.items()]
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        log = open(self.dir / "log", "ab")  # noqa: SIM115 (the daemon's)
        self._process = subprocess.Popen(
            [BIN / "kvcache-daemon", *self._arguments], stdout=log, stderr=log
        )
        end = time.monotonic() + 120
        ready = (self.dir / "log").read_text().count("ready: ")
        while (self.dir / "log").read_text().count("ready: ") == ready:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the daemon does not start:\n" + (self.dir / "log").read_text())
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Of the daemon."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        """Sends a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and waits for its end."""
        self.end(signal.SIGKILL)

    def end(self, number: int) -> None:
        """Sends a signal, and waits for its end."""
        self.signal(number)
        assert self._process is not None
        self._process.wait()

    def stat(self, name: str) -> int:
        """One of its statistics."""
        env = os.environ | {"KVCACHE_SOCKET": self.socket}
        out = subprocess.run(
            [BIN / "kvcachectl", "stats", "--json"], env=env, capture_output=True, check=True
        )
        return int(json.loads(out.stdout)[name])

    def close(self) -> None:
        """Ends it; its files go."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def patient(daemon: Daemon, **more: Any) -> dict[str, Any]:
    """Options of a connector whose results do not depend on the load of the machine.

    The daemon is not told what prefill costs: it would weigh that against a disk's measured speed.
    """
    never = dict.fromkeys(("start_ms", "timeout_ms", "load_ms", "store_ms"), NEVER_MS)
    return {"socket": daemon.socket, "report_prefill_cost": False} | never | more


class Answer:
    """Of one prompt: tokens, log-probabilities, cached prompt tokens, seconds to the first."""

    def __init__(self, output: Any) -> None:
        choice = output.outputs[0]
        self.tokens = tuple(choice.token_ids)
        self.logprobs = [next(iter(d.values())).logprob for d in choice.logprobs or []]
        self.cached = output.num_cached_tokens or 0
        metrics = output.metrics
        self.ttft = metrics.first_token_latency if metrics else None
        self.finish = choice.finish_reason


class Engine:
    """vLLM in a child process. connector: kv_connector_extra_config, or None: without one."""

    blocks: int | None = None  # of an engine's own memory; None: as many as vLLM takes by itself

    def __init__(
        self,
        model: str,
        *,
        connector: dict[str, Any] | None = None,
        transfer: Any = None,
        **more: Any,
    ) -> None:
        options: dict[str, Any] = {
            "model": model,
            "dtype": "float32",
            "max_model_len": 4096,
            "enforce_eager": True,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 4096,
            "disable_log_stats": False,
            "seed": 0,
            "block_size": 32,
        }
        if more.get("block_size", 32):
            options["num_gpu_blocks_override"] = self.blocks
        if connector is not None:
            options["kv_transfer_config"] = {
                **CONNECTOR,
                **(transfer or {}),
                "kv_connector_extra_config": connector,
            }
        self._is_ours = connector is not None and transfer is None
        options.update(more)
        options = {k: v for k, v in options.items() if v is not None}
        fd, self.log = tempfile.mkstemp(prefix="kvc-engine.", suffix=".log")
        os.close(fd)
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_serve, args=(theirs, options, self.log))
        self._process.start()
        theirs.close()
        try:
            self._get()
        except BaseException:
            self.close()
            raise

    def _get(self) -> Any:
        try:
            good, value = self._pipe.recv()
        except EOFError:
            self._process.join()
            text = Path(self.log).read_text(errors="replace")[-6000:]
            raise RuntimeError(f"the engine ended with {self._process.exitcode}:\n{text}") from None
        if not good:
            raise EngineError(value)
        return value

    def begin(self, prompts: list[list[int]], params: Any = None, **sampling: Any) -> None:
        """generate() without waiting."""
        self._pipe.send(("generate", prompts, params, sampling))

    def end(self) -> list[Answer]:
        """What begin() made."""
        answers: list[Answer] = self._get()
        return answers

    def generate(
        self, prompts: list[list[int]], params: Any = None, **sampling: Any
    ) -> list[Answer]:
        """Answers to prompts of token ids; params: kv_transfer_params of each.

        lora: (name, number, folder) of an adapter for all of them.
        """
        self.begin(prompts, params, **sampling)
        return self.end()

    def call(self, name: str, *arguments: Any) -> Any:
        """A method of LLM."""
        self._pipe.send(("call", name, arguments))
        return self._get()

    def lines(self) -> list[str]:
        """What the connector has logged."""
        text = Path(self.log).read_text(errors="replace")
        return [line for line in text.splitlines() if "kvcache-daemon" in line]

    def settle(self) -> None:
        """Waits until all that was to be stored has been answered."""
        self.call("collective_rpc", _settle)

    def changes(self) -> dict[str, list[str]]:
        """For each side of the connector what it logged of the daemon: "not there", "back", ..."""
        sides: dict[str, list[str]] = {}
        for line in self.lines():
            for said, where in re.findall(r"is (not there|back) for ([\w-]+)", line):
                sides.setdefault(where, []).append(said)
        return sides

    def close(self) -> None:
        """Ends the child. It is told: children that were forked later hold its pipe open."""
        with contextlib.suppress(OSError):
            self._pipe.send(("end",))
        self._pipe.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
        os.unlink(self.log)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._is_ours:
            self.settle()
        self.close()


class EngineError(Exception):
    """An exception in the engine's process, as text."""


def _serve(pipe: Connection, options: dict[str, Any], log: str) -> None:
    """The child: makes the engine, and does what comes."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    # vLLM's handlers have the stream that was there at the import: pytest's.
    sys.stdout = sys.stderr = open(fd, "w", buffering=1)  # noqa: SIM115 (the process's)
    for handler in logging.getLogger("vllm").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stdout)
    from vllm import LLM, SamplingParams

    try:
        llm = LLM(**options)
    except BaseException as error:
        pipe.send((False, repr(error)))
        os._exit(1)
    pipe.send((True, None))
    while True:
        try:
            what, *rest = pipe.recv()
        except EOFError:
            what = "end"
        if what == "end":
            llm.llm_engine.engine_core.shutdown()
            os._exit(0)
        try:
            if what == "generate":
                pipe.send((True, _generate(llm, SamplingParams, *rest)))
            else:
                pipe.send((True, getattr(llm, rest[0])(*rest[1])))
        except BaseException as error:
            pipe.send((False, repr(error)))


def _settle(_worker: Any) -> None:
    """In each worker: orders to store that are under way end."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    worker = get_kv_transfer_group().worker
    while worker._sent:
        if not worker.link.wait(worker._sent[-1].op, NEVER_MS / 1000):
            raise TimeoutError("a store is not answered")
        worker._collect()


def _generate(
    llm: Any, make: Any, prompts: list[list[int]], params: Any, sampling: Any
) -> list[Answer]:
    lora = sampling.pop("lora", None)
    if lora is not None:
        from vllm.lora.request import LoRARequest

        lora = LoRARequest(*lora)
    wanted = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "logprobs": 1} | sampling
    wishes = params or [None] * len(prompts)
    each = [
        make(**wanted, extra_args={"kv_transfer_params": {"kvcache": w}} if w is not None else None)
        for w in wishes
    ]
    inputs = [{"prompt_token_ids": p} for p in prompts]
    outputs = llm.generate(inputs, each, use_tqdm=False, lora_request=lora)
    return [Answer(o) for o in outputs]


def tokens(n: int, *seed: object) -> list[int]:
    """Ids that depend on the seed alone."""
    source = random.Random(repr(seed))
    return [source.randrange(256) for _ in range(n)]


def conversations(
    people: int, turns: int, *, system: int = 160, said: int = 48
) -> list[list[tuple[int, list[int]]]]:
    """For each turn what each of the people says: (person, ids); four share a system prompt."""
    return [
        [
            (p, (tokens(system, "system", p // 4) if t == 0 else []) + tokens(said, p, t))
            for p in range(people)
        ]
        for t in range(turns)
    ]


def report(line: str) -> None:
    """A figure, for whoever reads the log."""
    sys.stderr.write(f"\n  {line}\n")
