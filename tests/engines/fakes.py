# SPDX-License-Identifier: Apache-2.0
"""vLLM's part in a test of the two sides: requests, pages, steps; no model."""

from __future__ import annotations

import hashlib
import time
from types import SimpleNamespace
from typing import Any

import torch
from kvcache_client import Error, Group
from kvcache_client.vllm.messages import StepOrders
from kvcache_client.vllm.options import Options
from kvcache_client.vllm.plan import GroupPlan, Plan
from kvcache_client.vllm.scheduler import SchedulerSide
from kvcache_client.vllm.worker import WorkerSide
from rig import NEVER_MS

BLOCK = 16
PAGE = 96  # bytes that a layer has of a block
PAGES = 512


def plan(*groups: Group, ranks: int = 1) -> Plan:
    """A plan of two layers a group."""
    groups = groups or (Group(BLOCK, 2 * PAGE),)
    made = tuple(
        GroupPlan(
            (f"{i}.0", f"{i}.1"),
            g.block_tokens,
            (g.block_bytes // 2,) * 2,
            g.block_tokens // BLOCK,
            g,
        )
        for i, g in enumerate(groups)
    )
    align = max(g.block_tokens for g in groups)
    return Plan(made, align, BLOCK, {"model": "fake", "position": "rope", "shards": ranks}, ranks)


class Request(SimpleNamespace):
    """As much of vLLM's request as the connector looks at."""

    def __init__(self, name: str, ids: list[int], **more: Any) -> None:
        super().__init__(
            request_id=name,
            ids=list(ids),
            num_prompt_tokens=len(ids),
            skip_reading_prefix_cache=False,
            kv_transfer_params=more.pop("params", None),
            lora_request=more.pop("lora", None),
            block_hashes=[],
        )
        self.hash()

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    def hash(self) -> None:
        """Hashes of the full blocks that have none."""
        for i in range(len(self.block_hashes), len(self.ids) // BLOCK):
            before = self.block_hashes[-1] if i else b"none"
            block = repr(self.ids[i * BLOCK : (i + 1) * BLOCK]).encode()
            self.block_hashes.append(hashlib.sha256(before + block).digest())


class Mini:
    """One engine: a scheduler's side, its workers' sides, and pages."""

    def __init__(
        self, socket: str, made: Plan | None = None, *, wait: bool = True, **options: Any
    ) -> None:
        self.plan = made or plan()
        never = dict.fromkeys(("start_ms", "timeout_ms", "load_ms", "store_ms"), NEVER_MS)
        chosen = Options(**({"socket": socket, "staging": 1 << 20} | never | options))
        self.scheduler = SchedulerSide(self.plan, chosen, "mini")
        self.workers = [
            WorkerSide(self.plan, chosen, f"mini-{r}", r) for r in range(self.plan.ranks)
        ]
        self.register()
        self._next_page = 1
        if wait:
            self.connect()
        self._unhashed: dict[str, int] = {}
        self.tables: dict[str, list[list[int]]] = {}
        self.stored: list[tuple[int, int, int]] = []  # (group, first, n) of each order

    def register(self) -> None:
        """Gives the workers pages; again: other ones."""
        self.caches = [
            {
                layer: torch.zeros(PAGES, size, dtype=torch.uint8)
                for g in self.plan.groups
                for layer, size in zip(g.layers, g.page_bytes, strict=True)
            }
            for _ in self.workers
        ]
        for worker, caches in zip(self.workers, self.caches, strict=True):
            worker.register({k: self.tensor(t) for k, t in caches.items()}, PAGES)

    @staticmethod
    def tensor(of: torch.Tensor) -> Any:
        """As the engine gives it to the connector."""
        return of

    def connect(self) -> None:
        """Waits for all sessions to be up (again)."""
        for side in (self.scheduler, *self.workers):
            end = time.monotonic() + NEVER_MS / 1000
            while True:
                try:
                    side.link.session.ping()
                    break
                except Error:
                    assert time.monotonic() < end
                    time.sleep(0.02)

    def close(self) -> None:
        self.scheduler.close()
        for worker in self.workers:
            worker.close()

    # ---- pages

    def content(
        self, request: Request, group: int, block: int, layer: int, rank: int
    ) -> torch.Tensor:
        """What a block of this sequence holds."""
        g = self.plan.groups[group]
        key = g.keys(request.block_hashes, block, block + 1)
        seed = hashlib.sha256(key + bytes([group, layer, rank])).digest()
        size = g.page_bytes[layer]
        return torch.frombuffer(bytearray((seed * (size // 32 + 1))[:size]), dtype=torch.uint8)

    def allocate(self, request: Request, tokens: int) -> list[list[int]]:
        """Pages up to so many tokens."""
        table = self.tables.setdefault(request.request_id, [[] for _ in self.plan.groups])
        for g, pages in zip(self.plan.groups, table, strict=True):
            while len(pages) * g.block_tokens < tokens:
                pages.append(self._next_page)
                self._next_page = self._next_page % (PAGES - 1) + 1
        return table

    def compute(self, request: Request, start: int, end: int) -> None:
        """The model's part: KV of tokens start .. end - 1; of a block once it has a hash."""
        late = self._unhashed.pop(request.request_id, start)
        hashed = len(request.block_hashes) * BLOCK
        if end > hashed:
            self._unhashed[request.request_id] = min(late, hashed)
        for i, g in enumerate(self.plan.groups):
            first = min(start, late) // g.block_tokens
            for block in range(first, min(end, hashed) // g.block_tokens):
                page = self.tables[request.request_id][i][block]
                for rank, caches in enumerate(self.caches):
                    for layer, name in enumerate(g.layers):
                        caches[name][page] = self.content(request, i, block, layer, rank)

    def check(self, request: Request, start: int, end: int) -> None:
        """The pages of tokens start .. end - 1 hold what was computed for this sequence once."""
        for i, g in enumerate(self.plan.groups):
            for block in range(start // g.block_tokens, end // g.block_tokens):
                page = self.tables[request.request_id][i][block]
                if page == 0:
                    continue
                for rank, caches in enumerate(self.caches):
                    for layer, name in enumerate(g.layers):
                        wanted = self.content(request, i, block, layer, rank)
                        assert torch.equal(caches[name][page], wanted), (i, block, layer, rank)

    # ---- steps

    def match(self, request: Request, local: int = 0) -> int:
        """Asks until there is an answer. Returns tokens beyond the local ones."""
        end = time.monotonic() + NEVER_MS / 1000
        while time.monotonic() < end:
            found, later = self.scheduler.matched(request, local)
            if found is not None:
                assert later == (found > 0)
                return found
        raise AssertionError("no answer")

    def load(self, request: Request, local: int = 0) -> tuple[int, bool]:
        """match, allocate, and the steps until the load has ended. Returns (tokens, failed)."""
        found = self.match(request, local)
        table = self.allocate(request, local + found)
        blocks = SimpleNamespace(get_block_ids=lambda: tuple(table))
        self.scheduler.allocated(request, blocks, found)
        if not found:
            return 0, False
        left, failed = len(self.workers), False
        end = time.monotonic() + NEVER_MS / 1000
        while time.monotonic() < end:
            output = self.step({})
            left -= output.count.get(request.request_id, 0)
            failed |= request.request_id in output.failed
            if left == 0:
                self.finish_load(request, failed)
                return found, failed
            time.sleep(0.001)
        raise AssertionError("the load does not end")

    def finish_load(self, request: Request, failed: bool) -> None:
        """The scheduler hears that all ranks have ended."""
        name = {request.request_id}
        self.answer(None, recving=name, failed=name if failed else set())

    def step(self, work: dict[str, tuple[Request, int, int]]) -> SimpleNamespace:
        """One step: request id -> (request, computed before, tokens). Stores are answered in it."""
        output = self.begin(work)
        for request, computed, n in work.values():
            self.compute(request, computed, computed + n)
        return self.end(output)

    def begin(self, work: dict[str, tuple[Request, int, int]]) -> StepOrders:
        for request, computed, n in work.values():
            self.allocate(request, computed + n)
        new = [SimpleNamespace(req_id=k, num_computed_tokens=c) for k, (_, c, _) in work.items()]
        orders = self.scheduler.orders(
            SimpleNamespace(
                num_scheduled_tokens={k: n for k, (_, _, n) in work.items()},
                total_num_scheduled_tokens=sum(n for _, _, n in work.values()),
                scheduled_new_reqs=new,
                scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[]),
                kv_connector_block_state=SimpleNamespace(get_block_ids=self.tables.get),
            )
        )
        self.stored += [(s.group, s.first, len(s.pages)) for s in orders.stores]
        return orders

    def end(self, orders: StepOrders) -> SimpleNamespace:
        count: dict[str, int] = {}
        bad: set[str] = set()
        for worker in self.workers:
            worker.load(orders)
            worker.store(orders)
            for sent in worker._sent:
                worker.link.wait(sent.op, NEVER_MS / 1000)
            loaded, failed = worker.loaded()
            bad |= failed
            for name in loaded:
                count[name] = count.get(name, 0) + 1
            self.answer(worker.report())
        return SimpleNamespace(count=count, failed=bad)

    def answer(self, report: Any, recving: Any = (), failed: Any = ()) -> None:
        self.scheduler.answered(
            SimpleNamespace(
                finished_recving=recving, failed_recving=failed, kv_connector_worker_meta=report
            )
        )

    def run(self, request: Request, chunk: int = 10**9) -> None:
        """Computes a request's prompt, in chunks, and ends it."""
        done, _ = self.load(request)
        while done < request.num_tokens:
            n = min(chunk, request.num_tokens - done)
            self.step({request.request_id: (request, done, n)})
            done += n
        self.scheduler.finished(request)
