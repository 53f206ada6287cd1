# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side: what is loaded for a request, what is stored of it, and its names."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from kvcache_client import Error, Hold, NameKind, Retain, Status
from kvcache_client._session import flags_of
from kvcache_client.vllm.cost import PrefillCost
from kvcache_client.vllm.link import ODD, Link, Seldom, logger
from kvcache_client.vllm.messages import Load, Report, StepOrders, Store
from kvcache_client.vllm.options import Options, Wishes, is_name
from kvcache_client.vllm.plan import adapter_files
from kvcache_client.vllm.stats import Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

    from kvcache_client import _kvc
    from kvcache_client.vllm.plan import Plan

__all__ = ["SchedulerSide"]

# A status that tells only of this moment: what was not stored is tried again with the next block.
_PASSING = {Status.TIMEOUT, Status.BUSY, Status.SHUTDOWN, Status.CANCELLED, Status.NO_PARENT}
# How long nothing is stored after the daemon could not be reached.
_PAUSE_S = 0.5
# Names that wait for the last stores of their request: how long.
_NAME_S = 5.0
# Of a request that goes on without the daemon.
_WITHOUT = Wishes(no_store=True, no_load=True)
# Nobody's: a load with it fails in the workers, which is how vLLM hears that its pages are empty.
_NO_TICKET = bytes(16)
_WRONG_MAX = 5  # wrong wishes of a request that are named

_Made = TypeVar("_Made")


@dataclass
class _Ask:
    """An acquire that is under way."""

    op: _kvc.Request
    from_tokens: int
    began: float


@dataclass
class _State:
    """A request, as long as vLLM knows it.

    Attributes:
        ask: the acquire that is under way.
        hold: what was acquired and is not loaded yet, from_tokens of which were local then.
        asked_at: tokens that were local when the daemon was asked last, and had nothing more.
        loading: the workers copy.
        given_up: a load failed: the rest is computed.
        sent: for each group the number of leading blocks that are stored, being stored or there.
        stopped: groups of which nothing more is stored: the daemon has no room for them.
        jobs: orders to store that have not been answered.
        edges: for each group of states the number of blocks before the last state that was written.
        salt: of an adapter, see :func:`adapter_files`; empty: there is none.
    """

    request: Request
    wishes: Wishes
    sent: list[int]
    ask: _Ask | None = None
    hold: Hold | None = None
    from_tokens: int = 0
    asked_at: int = -1
    loading: bool = False
    given_up: bool = False
    stopped: set[int] = field(default_factory=set)
    jobs: int = 0
    edges: dict[int, int] = field(default_factory=dict)
    salt: bytes = b""
    _salted: list[bytes] = field(default_factory=list)

    @property
    def hashes(self) -> Sequence[bytes]:
        """Of its full blocks: vLLM's, and with an adapter also over the adapter's files."""
        own: list[bytes] = self.request.block_hashes
        if not self.salt:
            return own
        del self._salted[len(own) :]
        new = own[len(self._salted) :]
        self._salted += [sha256(self.salt + h).digest() for h in new]
        return self._salted


@dataclass
class _Job:
    """An order to store."""

    state: _State
    group: int
    first: int
    n: int


@dataclass
class _Name:
    """A name for a sequence whose request has ended, and whose last blocks may be on their way."""

    state: _State
    kind: NameKind
    name: str
    keys: list[bytes]
    tokens: int
    until: float


class SchedulerSide:
    """Decisions. No call waits longer than ``lookup_ms`` (its start: ``start_ms``), or raises."""

    def __init__(
        self, plan: Plan, options: Options, name: str, *, loads: bool = True, stores: bool = True
    ) -> None:
        self.plan = plan
        self.options = options
        self.link = Link(plan, options, name, wait_ms=options.start_ms)
        self.stats = Stats()
        self._loads, self._stores = loads, stores
        self._states: dict[str, _State] = {}
        self._orders: list[Load] = []
        self._jobs: dict[int, _Job] = {}
        self._answers: dict[int, Any] = {}
        self._next_job = 0
        self._cost = PrefillCost()
        self._pause_until = 0.0
        self._names: list[_Name] = []
        self._adapters: dict[str, bytes] = {}
        self._seldom = Seldom()

    def _for(
        self, state: _State, otherwise: _Made, part: Callable[..., _Made], *arguments: Any
    ) -> _Made:
        """A request's part of a call: each entry comes through here, and none raises.

        Where a value of the request is odd, it goes on without the daemon: nothing more is loaded,
        stored or named for it.
        """
        try:
            return part(*arguments)
        except ODD as error:
            kind, name = type(error).__name__, state.request.request_id
            self._seldom.warning("request %s goes on without the daemon: %s: %s", name, kind, error)
            state.wishes = _WITHOUT
            return otherwise

    # ---- loads

    def matched(self, request: Request, computed: int) -> tuple[int | None, bool]:
        """get_num_new_matched_tokens: (tokens beyond ``computed``, whether they come later)."""
        state = self._state(request)
        nothing: tuple[int | None, bool] = (0, False)
        return self._for(state, nothing, self._matched, state, computed)

    def _matched(self, state: _State, computed: int) -> tuple[int | None, bool]:
        request = state.request
        if not self._wants_load(state):
            return 0, False
        limit = self._limit(request)
        if state.hold is not None and state.from_tokens != computed:
            self._let_go(state)
        if state.hold is None:
            if limit <= computed or state.asked_at == computed:
                return 0, False
            if not self._ask(state, computed, limit):
                return None, False
        if state.hold is None or state.hold.tokens <= computed:
            self._let_go(state)
            return 0, False
        return state.hold.tokens - computed, True

    def _wants_load(self, state: _State) -> bool:
        return (
            self._loads
            and self.link.refused is None
            and not state.given_up
            and not state.wishes.no_load
            and not state.request.skip_reading_prefix_cache
        )

    def _limit(self, request: Request) -> int:
        """Tokens that may be loaded: whole blocks of every group, and one token is left."""
        hashed = len(request.block_hashes) * self.plan.hash_tokens
        return int(min(hashed, request.num_tokens - 1) // self.plan.align * self.plan.align)

    def _ask(self, state: _State, computed: int, limit: int) -> bool:
        """Begins an acquire, or goes on with it. False: ask again later."""
        began = time.perf_counter()
        try:
            if state.ask is None:
                state.ask = _Ask(self._begin(state, computed, limit), computed, began)
            if not self.link.wait(state.ask.op, self.options.lookup_ms / 1000):
                return False
            self._take(state, computed)
        except Error as error:
            state.ask = None
            state.asked_at = computed
            self.link.failed("acquire", error)
        self.stats.lookup(time.perf_counter() - began)
        self.link.watch()
        return True

    def _begin(self, state: _State, computed: int, limit: int) -> _kvc.Request:
        keys = self.plan.all_keys(state.hashes, limit)
        return self.link.ns._raw.acquire_begin(
            keys, limit, flags_of(), computed, 0, self.options.load_ms, self._sub_tenant(state)
        )

    def _take(self, state: _State, computed: int) -> None:
        """The outcome of the acquire."""
        ask, state.ask = state.ask, None
        assert ask is not None
        hold = ask.op.finish()
        held = Hold(hold)  # type: ignore[arg-type]
        if ask.from_tokens != computed:
            held.release()
            return
        for i, group in enumerate(held.prefix.groups):
            state.sent[i] = max(state.sent[i], group.blocks)
        tokens = held.tokens // self.plan.align * self.plan.align
        if tokens == held.tokens and tokens > computed:
            state.hold, state.from_tokens = held, computed
            return
        held.release()
        state.asked_at = computed
        if computed < tokens < held.tokens:
            self._again(state, computed, tokens)

    def _again(self, state: _State, computed: int, tokens: int) -> None:
        """The hit ended inside a block of some group: the shorter one needs other blocks."""
        keys = self.plan.all_keys(state.hashes, tokens)
        held = self.link.ns.acquire(
            keys, tokens, from_tokens=computed, no_load=True, sub_tenant=self._sub_tenant(state)
        )
        if held.tokens == tokens:
            state.hold, state.from_tokens = held, computed
        else:
            held.release()

    def _let_go(self, state: _State) -> None:
        if state.hold is not None:
            state.hold.release()
            state.hold = None

    def allocated(self, request: Request, blocks: KVCacheBlocks, external: int) -> None:
        """update_state_after_alloc: vLLM has pages for the hit, or does not want it."""
        state = self._state(request)
        if state.loading:
            return
        state.asked_at = -1  # it runs now: if it is preempted, the daemon has more
        if external == 0 or state.hold is None:
            self._for(state, None, self._let_go, state)
            return
        none = Load(request.request_id, _NO_TICKET, [], [], 0)
        self._orders.append(self._for(state, none, self._load_of, state, blocks, external))
        state.loading = True
        self.stats.hit(external)

    def _load_of(self, state: _State, blocks: KVCacheBlocks, external: int) -> Load:
        """What the workers copy for a hit."""
        hold, tables = state.hold, blocks.get_block_ids()
        assert hold is not None
        assert external == hold.tokens - state.from_tokens, (external, hold.groups)
        load = Load(state.request.request_id, hold.ticket, [], [], 0)
        for group, table, (first, n) in zip(self.plan.groups, tables, hold.groups, strict=True):
            load.firsts.append(first)
            load.pages.append(table[first : first + n])
            load.bytes += n * group.block_bytes
        return load

    # ---- stores

    def orders(self, output: SchedulerOutput) -> StepOrders:
        """build_connector_meta: what the workers do in this step."""
        self.link.tend()
        orders = StepOrders(output.total_num_scheduled_tokens == 0, self._orders)
        self._cost.begin(output.total_num_scheduled_tokens if not self._orders else 0)
        self._orders = []
        if not self._stores or self.link.refused is not None:
            return orders
        if time.monotonic() >= self._pause_until:
            for request_id, tokens in self._computed(output):
                state = self._states.get(request_id)
                if state is not None and not state.wishes.no_store:
                    self._for(state, None, self._order_stores, orders, state, tokens, output)
        return orders

    @staticmethod
    def _computed(output: SchedulerOutput) -> list[tuple[str, int]]:
        """For each request of the step the tokens that have KV when the step ends."""
        counts = output.num_scheduled_tokens
        done = [
            (r.req_id, r.num_computed_tokens + counts[r.req_id]) for r in output.scheduled_new_reqs
        ]
        cached = output.scheduled_cached_reqs
        for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            done.append((request_id, computed + counts[request_id]))
        return done

    def _order_stores(
        self, orders: StepOrders, state: _State, computed: int, output: SchedulerOutput
    ) -> None:
        """Blocks that are full when the step ends, of final tokens: vLLM has hashed them."""
        request = state.request
        final = min(computed, len(request.block_hashes) * self.plan.hash_tokens)
        if not self.options.store_decoded:
            final = min(final, request.num_prompt_tokens)
        tables: Sequence[Sequence[int]] | None = None
        for i, group in enumerate(self.plan.groups):
            end = final // group.block_tokens
            if group.group.rule == "state":
                end = self._state_end(state, i, computed, end)
            if end <= state.sent[i] or i in state.stopped:
                continue
            if tables is None:
                tables = output.kv_connector_block_state.get_block_ids(request.request_id)
            self._order_group(orders, state, i, end, tables[i])

    def _state_end(self, state: _State, i: int, computed: int, end: int) -> int:
        """Blocks up to the last state that was written: vLLM writes one where a step ends."""
        if computed % self.plan.groups[i].block_tokens == 0:
            state.edges[i] = computed // self.plan.groups[i].block_tokens
        edge = state.edges.get(i, 0)
        return edge if edge <= end else 0

    def _order_group(
        self, orders: StepOrders, state: _State, i: int, end: int, table: Sequence[int]
    ) -> None:
        group, first = self.plan.groups[i], state.sent[i]
        if group.group.rule == "state":
            first = end - 1  # a state replaces those before it
        for start, stop in _runs(table, first, min(end, len(table))):
            self._next_job += 1
            hashes = state.hashes
            parent = group.keys(hashes, start - 1, start) if start else None
            decoded = stop * group.block_tokens > state.request.num_prompt_tokens
            orders.stores.append(
                Store(
                    self._next_job,
                    i,
                    parent,
                    group.keys(hashes, start, stop),
                    start,
                    list(table[start:stop]),
                    decoded,
                    state.wishes.durable,
                    self._retain(state),
                    self._sub_tenant(state),
                )
            )
            self._jobs[self._next_job] = _Job(state, i, start, stop - start)
            state.jobs += 1
        state.sent[i] = end

    @staticmethod
    def _retain(state: _State) -> tuple[Retain, ...]:
        wishes = state.wishes
        if wishes.priority is None:
            return ()
        return (Retain(0, 0, wishes.priority, wishes.ttl_ms),)

    def _sub_tenant(self, state: _State) -> str | None:
        if not self.options.salt_is_sub_tenant:
            return None
        salt = str(getattr(state.request, "cache_salt", None) or "")
        if salt and not is_name(salt):
            salt = sha256(salt.encode(errors="surrogatepass")).hexdigest()
        return salt or None

    # ---- answers

    def answered(self, output: KVConnectorOutput) -> None:
        """update_connector_output: what the workers did."""
        for request_id in output.finished_recving or ():
            state = self._states.get(request_id)
            if state is not None and state.loading:
                failed = request_id in (output.failed_recving or ())
                self._for(state, None, self._loaded, state, failed)
        cost = self._cost.end()
        if cost is not None and self.options.report_prefill_cost:
            self.link.cost(cost)
        report = output.kv_connector_worker_meta
        if isinstance(report, Report):
            for job, outcome in report.stores.items():
                known = self._answers.pop(job, None)
                joined = outcome if known is None else known.join(outcome)
                if joined.ranks < self.plan.ranks:
                    self._answers[job] = joined
                elif job in self._jobs:
                    done = self._jobs.pop(job)
                    self._for(done.state, None, self._stored, done, joined.good, joined.status)
        self._put_names()

    def _loaded(self, state: _State, failed: bool) -> None:
        state.loading = False
        self._let_go(state)
        if failed:
            # What was there may be gone: all is computed, and offered again.
            state.given_up = True
            state.sent = [0] * len(state.sent)
            self.stats.load_failed()
            self.link.watch()

    def _stored(self, job: _Job, good: int, status: int) -> None:
        state = job.state
        state.jobs -= 1
        if good == job.n:
            return
        self.stats.not_stored(job.n - good)
        back = job.first + good
        if status == Status.NO_PARENT and good == 0:
            back = self._first_missing(state, job.group, job.first)
        elif status not in _PASSING:
            state.stopped.add(job.group)
        if status in (Status.TIMEOUT, Status.SHUTDOWN):
            self._pause_until = time.monotonic() + _PAUSE_S
            self.link.watch()
        state.sent[job.group] = min(state.sent[job.group], back)

    def _first_missing(self, state: _State, group: int, most: int) -> int:
        """Blocks of the sequence that the daemon still has, when it lost the parent of one."""
        tokens = self._limit(state.request)
        if tokens == 0:
            return 0
        try:
            keys = self.plan.all_keys(state.hashes, tokens)
            prefix = self.link.ns.lookup(
                keys, tokens, everything=True, sub_tenant=self._sub_tenant(state)
            )
            return min(prefix.groups[group].blocks, most)
        except Error as error:
            self.link.failed("lookup", error)
            return 0

    # ---- begin and end of a request

    def _state(self, request: Request) -> _State:
        state = self._states.get(request.request_id)
        if state is None or state.request is not request:
            state = _State(request, Wishes(), [0] * len(self.plan.groups))
            self._states[request.request_id] = state
            self._for(state, None, self._meet, state)
        return state

    def _meet(self, state: _State) -> None:
        """What is to be known of a request when it comes."""
        request = state.request
        state.wishes, wrong = Wishes.of(request.kv_transfer_params)
        if wrong:
            text = "; ".join(wrong[:_WRONG_MAX])
            self._seldom.warning("request %s: left out: %s", request.request_id, text)
        state.salt = self._adapter(request)

    def _adapter(self, request: Request) -> bytes:
        """The engine computes with the files that it has read: later ones are another adapter's."""
        lora = request.lora_request
        if lora is None:
            return b""
        if lora.lora_path not in self._adapters or lora.load_inplace:
            self._adapters[lora.lora_path] = adapter_files(lora.lora_path)
        return self._adapters[lora.lora_path]

    def finished(self, request: Request) -> None:
        """The request has ended, however; its pages are freed behind this."""
        state = self._states.pop(request.request_id, None)
        if state is None:
            return
        for part in (self._forget, self._name, self._hint):
            self._for(state, None, part, state)

    def _forget(self, state: _State) -> None:
        """What the daemon does or holds for it ends."""
        if state.ask is not None:
            self._cancel(state.ask)
            state.ask = None
        self._let_go(state)

    def _cancel(self, ask: _Ask) -> None:
        try:
            ask.op.cancel()
            Hold(ask.op.finish()).release()  # type: ignore[arg-type]
        except Error as error:
            logger.debug("acquire was cancelled: %s", error)

    def _covered(self, state: _State, tokens: int) -> int:
        hashed = len(state.request.block_hashes) * self.plan.hash_tokens
        return int(min(hashed, tokens) // self.plan.align * self.plan.align)

    def _name(self, state: _State) -> None:
        request, wishes = state.request, state.wishes
        until = time.monotonic() + _NAME_S
        for kind, name, tokens in (
            (NameKind.DOCUMENT, wishes.document, request.num_prompt_tokens),
            (NameKind.CONVERSATION, wishes.conversation, request.num_tokens - 1),
        ):
            covered = self._covered(state, tokens)
            if name is not None and covered > 0:
                keys = self.plan.all_keys(state.hashes, covered)
                self._names.append(_Name(state, kind, name, keys, covered, until))

    def has_names(self) -> bool:
        """Whether names wait for stores: the engine then goes on stepping."""
        return bool(self._names)

    def _put_names(self) -> None:
        now = time.monotonic()
        names, self._names = self._names, []  # whatever becomes of a call, it is not made again
        for name in names:
            if name.state.jobs > 0 and now < name.until:
                self._names.append(name)
                continue
            try:
                self.link.ns.name_put(
                    name.kind,
                    name.name,
                    name.keys,
                    name.tokens,
                    priority=name.state.wishes.priority or 0,
                    ttl_ms=name.state.wishes.ttl_ms,
                    sub_tenant=self._sub_tenant(name.state),
                )
            except ODD as error:
                kind = name.kind.name.lower()
                self._seldom.warning("%s %r is not named: %s", kind, name.name, error)

    def _hint(self, state: _State) -> None:
        wishes = state.wishes
        covered = self._covered(state, state.request.num_tokens - 1)
        if wishes.hint is None or covered == 0:
            return
        try:
            self.link.ns.hint(
                self.plan.all_keys(state.hashes, covered),
                covered,
                wishes.hint,
                within_ms=wishes.within_ms,
                sub_tenant=self._sub_tenant(state),
            )
        except Error as error:
            self.link.failed("hint", error)

    def close(self) -> None:
        """The engine ends."""
        for state in self._states.values():
            self._let_go(state)
        self.link.close()


def _runs(table: Sequence[int], first: int, end: int) -> list[tuple[int, int]]:
    """Blocks first .. end - 1 with a page, as runs (start, stop). Page 0 is vLLM's null page."""
    runs: list[tuple[int, int]] = []
    for i in range(first, end):
        if table[i] == 0:
            continue
        if runs and runs[-1][1] == i:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    return runs
