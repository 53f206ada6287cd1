# SPDX-License-Identifier: Apache-2.0
"""The two sides against a real daemon, without an engine: every byte is compared."""

from __future__ import annotations

import concurrent.futures
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import BLOCK, PAGE, Mini, Request, plan
from kvcache_client import Group, Hold, NameKind, PageLayout
from kvcache_client.vllm.device import Copies
from kvcache_client.vllm.link import Seldom, logger
from kvcache_client.vllm.options import Options
from kvcache_client.vllm.scheduler import SchedulerSide
from kvcache_client.vllm.worker import WorkerSide
from rig import NEVER_MS, Daemon, tokens

Make = Callable[..., Mini]


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


@pytest.fixture
def own() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.close()


@pytest.fixture
def mini() -> Iterator[Make]:
    made: list[Mini] = []

    def make(daemon: Daemon, *arguments: object, **options: object) -> Mini:
        made.append(Mini(daemon.socket, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for m in made:
        m.close()


def ask(name: str, n: int, *seed: object, **more: object) -> Request:
    return Request(name, tokens(n, *seed), **more)


def test_second_engine_loads(shared: Daemon, mini: Make) -> None:
    mini(shared).run(ask("a", 100, "second"))
    second, again = mini(shared), ask("b", 100, "second")
    assert second.load(again) == (96, False)
    second.check(again, 0, 96)


def test_one_token_is_left(shared: Daemon, mini: Make) -> None:
    mini(shared).run(ask("a", 96, "left"))
    assert mini(shared).load(ask("b", 96, "left")) == (80, False)


def test_local_blocks_are_not_loaded(shared: Daemon, mini: Make) -> None:
    """Pages that vLLM shares already are not written; a hit that shrank is asked again."""
    mini(shared).run(ask("a", 100, "local"))
    second, again = mini(shared), ask("b", 100, "local")
    assert second.match(again, 64) == 32
    assert second.match(again, 32) == 64
    second.allocate(again, 96)
    assert second.load(again, 32) == (64, False)
    second.check(again, 32, 96)
    first = second.tables["b"][0][0]
    assert not second.caches[0]["0.0"][first].any()


def test_chunks_are_stored_once(shared: Daemon, mini: Make) -> None:
    first = mini(shared)
    first.run(ask("a", 100, "chunks"), chunk=40)
    assert first.stored == [(0, 0, 2), (0, 2, 3), (0, 5, 1)]
    again = mini(shared)
    again.run(ask("b", 100, "chunks"))
    assert again.stored == []


def test_only_final_tokens_are_stored(shared: Daemon, mini: Make) -> None:
    """Speculative decoding: drafts have KV, and no hash. Async scheduling: the hash comes later."""
    first, r = mini(shared), ask("a", 30, "spec")
    first.match(r)
    first.step({"a": (r, 0, 30)})
    first.step({"a": (r, 30, 4)})  # of them 3 are drafts; block 1 would be full
    assert first.stored == [(0, 0, 1)]
    r.ids += [1, 2, 3]
    r.hash()
    first.step({"a": (r, 33, 1)})
    assert first.stored == [(0, 0, 1), (0, 1, 1)]
    second, again = mini(shared), Request("b", r.ids)
    assert second.load(again)[0] == 32
    second.check(again, 0, 32)


def test_preempted_request_goes_on(shared: Daemon, mini: Make) -> None:
    first, r = mini(shared), ask("a", 100, "preempted")
    assert first.load(r) == (0, False)
    first.step({"a": (r, 0, 64)})
    del first.tables["a"]
    assert first.load(r) == (64, False)
    first.check(r, 0, 64)
    first.step({"a": (r, 64, 36)})
    assert first.stored == [(0, 0, 4), (0, 4, 2)]


def test_aborted_while_asking_and_loading(shared: Daemon, mini: Make) -> None:
    mini(shared).run(ask("a", 100, "abort"))
    second = mini(shared)
    asking, held = ask("b", 100, "abort"), ask("c", 100, "abort")
    second.scheduler.matched(asking, 0)
    second.scheduler.finished(asking)
    second.match(held)
    second.scheduler.finished(held)
    assert second.load(ask("d", 100, "abort")) == (96, False)
    second.scheduler.link.session.ping()
    assert shared.stat("core.leases") == 0


def test_staging_smaller_than_a_step(shared: Daemon, mini: Make) -> None:
    mini(shared, staging=4096).run(ask("a", 1600, "staging"))
    second, again = mini(shared), ask("b", 1600, "staging")
    assert second.load(again) == (1584, False)
    second.check(again, 0, 1584)


def test_large_load_in_a_thread(shared: Daemon, mini: Make) -> None:
    mini(shared).run(ask("a", 400, "thread"))
    second, again = mini(shared, inline_bytes=0), ask("b", 400, "thread")
    assert second.load(again) == (384, False)
    second.check(again, 0, 384)


@pytest.mark.parametrize("busy", [False, True])
def test_idle_step_waits_for_the_copy(
    shared: Daemon, mini: Make, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """A step that computes leaves at once; one that does not gives its processor to the copy."""
    mini(shared).run(ask("a", 400, "idle"))
    second, again, other = mini(shared, inline_bytes=0), ask("b", 400, "idle"), ask("c", 64, busy)
    worker, may_copy, waits = second.workers[0], threading.Event(), []
    copy = worker._load_one
    monkeypatch.setattr(worker, "_load_one", lambda *a: may_copy.wait(30) and copy(*a))

    def wait(futures: object, seconds: float, when: str) -> None:
        waits.append(seconds)
        may_copy.set()
        concurrent.futures.wait(list(futures), 30, when)  # type: ignore[call-overload]

    monkeypatch.setattr("kvcache_client.vllm.worker.wait", wait)
    found = second.match(again)
    table = second.allocate(again, found)
    second.scheduler.allocated(again, SimpleNamespace(get_block_ids=lambda: tuple(table)), found)
    output = second.step({"c": (other, 0, 64)} if busy else {})
    assert (output.count, waits) == (({}, []) if busy else ({"b": 1}, [0.002]))
    may_copy.set()


def test_ranks_hold_parts(shared: Daemon, mini: Make) -> None:
    two = plan(ranks=2)
    mini(shared, two).run(ask("a", 100, "ranks"))
    second, again = mini(shared, two), ask("b", 100, "ranks")
    assert second.load(again) == (96, False)
    second.check(again, 0, 96)


def test_groups(shared: Daemon, mini: Make) -> None:
    """Full attention, a sliding window and larger blocks: a hit ends where all end."""
    three = plan(Group(BLOCK, 2 * PAGE), Group(BLOCK, PAGE, "window", 31), Group(32, PAGE))
    mini(shared, three).run(ask("a", 120, "groups"))
    second, again = mini(shared, three), ask("b", 120, "groups")
    assert second.match(again) == 96
    table = second.allocate(again, 96)
    table[1][:4] = [0] * 4  # outside of the window: vLLM has its null page there
    assert second.load(again) == (96, False)
    second.check(again, 0, 96)


def test_null_pages_are_not_stored(shared: Daemon, mini: Make) -> None:
    two = plan(Group(BLOCK, PAGE), Group(BLOCK, PAGE, "window", 31))
    first, r = mini(shared, two), ask("a", 64, "null")
    first.match(r)
    first.allocate(r, 64)[1][1] = 0
    first.step({"a": (r, 0, 64)})
    assert first.stored == [(0, 0, 4), (1, 0, 1), (1, 2, 2)]


def test_pages_are_registered_again(
    shared: Daemon, mini: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that runs ends before that in the pages that it began with; later ones use these."""
    mini(shared).run(ask("a", 100, "again"))
    second, r = mini(shared, inline_bytes=0), ask("b", 100, "again")
    found = second.match(r)
    table = second.allocate(r, found)
    second.scheduler.allocated(r, SimpleNamespace(get_block_ids=lambda: tuple(table)), found)
    goes, ended, copy = threading.Event(), threading.Event(), Copies.load

    def late(self: Copies, hold: Hold, layout: PageLayout, pages: list[list[int]]) -> None:
        goes.wait()
        copy(self, hold, layout, pages)
        ended.set()

    monkeypatch.setattr(Copies, "load", late)
    second.step({})
    before = second.caches
    threading.Timer(0.2, goes.set).start()
    second.register()
    assert ended.is_set()
    second.caches, others = before, second.caches
    second.check(r, 0, 96)
    second.caches = others
    monkeypatch.undo()
    third = ask("c", 100, "again")
    assert second.load(third) == (96, False)
    second.check(third, 0, 96)


def test_daemon_lost_the_beginning(own: Daemon, mini: Make) -> None:
    """Restarted between two steps: the sequence is stored again from its beginning."""
    first, r = mini(own), ask("a", 100, "lost")
    first.match(r)
    first.step({"a": (r, 0, 64)})
    own.kill()
    own.start()
    first.connect()
    first.step({"a": (r, 64, 30)})
    r.ids += tokens(20, "lost", "more")
    r.hash()
    first.step({"a": (r, 94, 20)})
    assert first.stored[-1] == (0, 0, 7)
    second, again = mini(own), Request("b", [*r.ids, 1])
    assert second.load(again) == (112, False)
    second.check(again, 0, 112)


def test_daemon_ends_before_the_load(own: Daemon, mini: Make) -> None:
    """The load fails, is not tried again, and what is computed instead is stored."""
    mini(own).run(ask("a", 100, "ends"))
    second, r = mini(own), ask("b", 100, "ends")
    assert second.match(r) == 96
    own.kill()
    assert second.load(r) == (96, True)
    assert second.match(r) == 0
    own.start()
    second.connect()
    time.sleep(0.6)  # nothing is stored for half a second after the daemon could not be reached
    second.step({"b": (r, 0, 100)})
    assert second.stored == [(0, 0, 6)]
    third, again = mini(own), ask("c", 100, "ends")
    assert third.load(again) == (96, False)


def test_frozen_daemon_costs_one_deadline(own: Daemon, mini: Make) -> None:
    mini(own).run(ask("a", 100, "frozen"))
    second = mini(own, timeout_ms=100, load_ms=200, lookup_ms=5)
    own.signal(signal.SIGSTOP)
    try:
        r = ask("b", 100, "frozen")
        assert second.scheduler.matched(r, 0) == (None, False)
        assert second.match(r) == 0
        second.step({"b": (r, 0, 100)})
        assert second.match(ask("c", 100, "frozen")) == 0
    finally:
        own.signal(signal.SIGCONT)


def test_all_sessions_hear_of_a_restart(own: Daemon, mini: Make) -> None:
    """Steps alone connect them again, so that the first request after a restart can load."""
    one = mini(own, inline_bytes=0)
    one.run(ask("a", 400, "restart"))
    two = mini(own, inline_bytes=0)
    assert two.load(ask("b", 400, "restart")) == (384, False)
    own.kill()
    own.start()
    loader = two.workers[0]._loader
    assert loader is not None
    links = (two.scheduler.link, two.workers[0].link, loader)
    before = [x.session.epoch for x in links]
    end = time.monotonic() + 30
    while any(x.session.epoch == n for x, n in zip(links, before, strict=True)):
        assert time.monotonic() < end, [x.session.up for x in links]
        two.step({})
        time.sleep(0.01)


def test_absent_daemon(own: Daemon, mini: Make) -> None:
    own.kill()
    first, r = mini(own, wait=False, start_ms=0), ask("a", 100, "absent")
    assert first.load(r) == (0, False)
    first.step({"a": (r, 0, 100)})
    own.start()
    first.connect()
    time.sleep(0.6)
    first.run(ask("b", 100, "absent", 2))
    assert mini(own).load(ask("c", 100, "absent", 2)) == (96, False)


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_start_waits_for_the_daemon(own: Daemon, role: str) -> None:
    """Engine and daemon are started together: the engine is connected before its first request."""
    own.kill()
    options = Options(socket=own.socket, staging=1 << 20, start_ms=NEVER_MS)
    later = threading.Timer(0.2, own.start)
    later.start()
    side: SchedulerSide | WorkerSide
    if role == "scheduler":
        side = SchedulerSide(plan(), options, "together")
    else:
        side = WorkerSide(plan(), options, "together", 0)
    connected, namespace = side.link.session.up, side.link.ns.id
    later.join()
    side.close()
    assert connected
    assert namespace != 0


def test_start_goes_on_without_a_daemon(own: Daemon) -> None:
    own.kill()
    side = SchedulerSide(plan(), Options(socket=own.socket, start_ms=50), "alone")
    assert not side.link.session.up
    side.close()


def test_wishes(shared: Daemon, mini: Make, caplog: pytest.LogCaptureFixture) -> None:
    """no_store, no_load; a wrong wish is named and left out."""
    first = mini(shared)
    first.run(ask("a", 100, "wishes", params={"kvcache": {"no_store": True}}))
    assert first.stored == []
    first.run(ask("b", 100, "wishes", params={"kvcache": {"priority": 101, "no_store": False}}))
    assert first.stored == [(0, 0, 6)]
    assert mini(shared).load(ask("c", 100, "wishes", params={"kvcache": {"no_load": True}}))[0] == 0


ODD = [
    {"params": [1]},
    {"params": {"kvcache": {"conversation": "\ud800", "priority": "\0"}}},
    {"lora": SimpleNamespace(lora_path="~nobody of this name/a", load_inplace=False)},
    {"hashes": b"no key of 32 bytes"},
    {"hashes": 5},
    {"hashes": "\ud800" * 32},
]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings of the connector."""
    lines: list[str] = []
    monkeypatch.setattr(logger, "warning", lambda text, *rest: lines.append(text % rest))
    return lines


def odd(i: int, more: dict[str, Any]) -> Request:
    hashes = more.get("hashes")
    seed = ("odd", ODD.index(more), i)
    r = ask(f"odd {i}", 100, *seed, **{k: v for k, v in more.items() if k != "hashes"})
    if hashes is not None:
        r.block_hashes = [hashes] * len(r.block_hashes)
    return r


@pytest.mark.parametrize("more", ODD)
def test_an_odd_request_goes_on_alone(
    shared: Daemon, mini: Make, said: list[str], more: dict[str, Any]
) -> None:
    """Those beside it are loaded and stored, and one line is said of all that are odd."""
    name = f"beside {ODD.index(more)}"
    mini(shared).run(ask("a", 100, name))
    second = mini(shared)
    for i in range(20):
        r = odd(i, more)
        assert second.load(r) == (0, False)
        second.tables[r.request_id] = [[1, 2, 3, 4, 5, 6, 7]]
        second.end(second.begin({r.request_id: (r, 0, 100)}))
        second.scheduler.finished(r)
    assert len(said) == 1
    assert "request odd 0" in said[0]
    good = ask("b", 100, name)
    assert second.load(good) == (96, False)
    second.check(good, 0, 96)
    second.run(ask("c", 100, name, 2))
    assert second.stored[-1] == (0, 0, 6)


def test_a_hit_without_pages_is_computed(
    shared: Daemon, mini: Make, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong behind a promised hit fails the load: the engine waits for its end."""
    mini(shared).run(ask("a", 100, "pages"))
    second, r = mini(shared), ask("b", 100, "pages")
    assert second.match(r) == 96
    monkeypatch.setattr(SchedulerSide, "_load_of", lambda *_: int("odd"))
    assert second.load(r) == (96, True)
    assert second.match(r) == 0
    assert "request b goes on without the daemon: ValueError" in said[0]
    monkeypatch.undo()
    assert second.load(ask("c", 100, "pages")) == (96, False)
    second.scheduler.finished(r)
    second.scheduler.link.session.ping()


@pytest.mark.parametrize("inline", [0, 1 << 30])
def test_a_worker_goes_on_behind_an_odd_load(shared: Daemon, mini: Make, inline: int) -> None:
    mini(shared).run(ask("a", 100, "worker"))
    second, r = mini(shared, inline_bytes=inline), ask("b", 100, "worker")
    found = second.match(r)
    table = second.allocate(r, found)
    second.scheduler.allocated(r, SimpleNamespace(get_block_ids=lambda: tuple(table)), found)
    second.scheduler._orders[0].pages[0][3] = "odd"  # type: ignore[call-overload]
    output = second.step({})
    while not output.count:
        output = second.step({})
    assert output.failed == {"b"}
    second.finish_load(r, failed=True)
    assert second.load(ask("c", 100, "worker")) == (96, False)


def test_a_worker_goes_on_behind_an_odd_store(
    shared: Daemon, mini: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request stores no more; others are not kept from it."""
    first, r = mini(shared), ask("a", 100, "store")
    good = ask("b", 100, "store", 2)
    first.match(r)
    monkeypatch.setattr(first.workers[0], "stage", lambda *_: int("odd"))
    first.step({"a": (r, 0, 64)})
    monkeypatch.undo()
    first.match(good)
    first.step({"a": (r, 64, 32), "b": (good, 0, 100)})
    assert first.stored == [(0, 0, 4), (0, 0, 6)]


def test_seldom() -> None:
    now, lines = [0.0], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logger, "warning", lambda text, *rest: lines.append(text % rest))
        seldom = Seldom(10, lambda: now[0])
        for now[0] in (0.0, 1.0, 9.0, 10.0, 11.0):
            seldom.warning("at %d", now[0])
    assert lines == ["at 0", "at 10 (2 lines like it were left out before)"]


def test_adapter_was_replaced(shared: Daemon, mini: Make, tmp_path: Path) -> None:
    """Other weights at an adapter's path: an engine that has read them does not load the old KV."""
    files = tmp_path / "adapter_model.safetensors"
    lora = SimpleNamespace(lora_path=str(tmp_path), load_inplace=False)
    files.write_bytes(b"old")
    first = mini(shared)
    first.run(ask("a", 100, "adapter", lora=lora))
    assert mini(shared).load(ask("b", 100, "adapter", lora=lora))[0] == 96
    assert mini(shared).load(ask("c", 100, "adapter"))[0] == 0
    files.write_bytes(b"newer")
    assert mini(shared).load(ask("d", 100, "adapter", lora=lora))[0] == 0
    assert first.load(ask("e", 100, "adapter", lora=lora))[0] == 96  # has the old weights still
    again = SimpleNamespace(lora_path=str(tmp_path), load_inplace=True)
    assert first.load(ask("f", 100, "adapter", lora=again))[0] == 0


def test_names(shared: Daemon, mini: Make) -> None:
    first = mini(shared)
    wishes = {"conversation": "talk", "document": "book", "priority": 60}
    first.run(ask("a", 100, "names", params={"kvcache": wishes}))
    assert first.scheduler.has_names()
    first.step({})
    assert not first.scheduler.has_names()
    session = first.scheduler.link.session
    for kind, name in ((NameKind.CONVERSATION, "talk"), (NameKind.DOCUMENT, "book")):
        info = session.name_get(kind, name)
        assert info is not None
        assert (info.tokens, info.tokens_cached, info.priority) == (96, 96, 60)


def test_statistics(shared: Daemon, mini: Make) -> None:
    mini(shared).run(ask("a", 100, "statistics"))
    second = mini(shared)
    second.load(ask("b", 100, "statistics"))
    counted = second.scheduler.stats.take()
    loaded = second.workers[0].stats.take()
    assert counted is not None
    assert loaded is not None
    line = counted.aggregate(loaded).reduce()
    assert line["hit_tokens"] == 96
    assert line["load_bytes"] == 6 * 2 * PAGE
    assert second.scheduler.stats.take() is None
