# SPDX-License-Identifier: Apache-2.0
"""Store, look up, hold, read: the calls that every user makes."""

from __future__ import annotations

import gc
import os
import threading

import pytest
from conftest import BLOCK_BYTES, BLOCK_TOKENS, Daemon, open_ns, payload, wait_until

import kvcache_client as kv
from kvcache_client import _kvc

OK, EXISTS = int(kv.Status.OK), int(kv.Status.EXISTS)


def test_names_of_the_protocol_are_all_here() -> None:
    assert {s.name: s.value for s in kv.Status} == _kvc.STATUSES
    assert {m.name: m.value for m in kv.Miss} == _kvc.MISSES


def test_keys_are_those_of_the_protocol() -> None:
    keys = kv.hash_chain(bytes(range(32)), list(range(1, 41)), 16)
    assert [keys[i : i + 32].hex() for i in (0, 32, 64)] == [
        "444552b582d9d201b3a093d883b9ffbe83ea1de4798a36e3d5046fe4d1f2a1da",
        "2bab4e80de337ec521c7aba112dbacc0674cb7812e96437c5c2128af401c1d1b",
        "32f448c2d84a57aca26bb078f4bee619cefe179f784381b48cfaf08127c74c5a",
    ]


@pytest.mark.parametrize("code", ["i", "I", "q", "Q"])
def test_token_ids_come_as_buffers(code: str) -> None:
    from array import array

    ids = [5, 0, 2**31 - 1, 7]
    assert kv.hash_chain(bytes(32), array(code, ids), 2) == kv.hash_chain(bytes(32), ids, 2)


@pytest.mark.parametrize("bad", [[-1], [2**32], [2**70], [1.5], ["a"]])
def test_token_ids_outside_u32_are_refused(bad: list[object]) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        kv.hash_chain(bytes(32), bad, 16)  # type: ignore[arg-type]


def test_bad_buffers_of_numbers_are_refused() -> None:
    from array import array

    for bad in (
        array("d", [1.0]),
        array("h", [1]),
        array("q", [-1]),
        b"12345678",
        array("i", [-1]),
    ):
        with pytest.raises((TypeError, ValueError)):
            kv.hash_chain(bytes(32), bad, 16)


def test_store_then_read(ns: kv.Namespace) -> None:
    tokens = list(range(100, 100 + 3 * BLOCK_TOKENS))
    keys = ns.hash_chain(tokens)
    assert ns.lookup(keys, len(tokens)).tokens == 0
    blocks = [payload(i) for i in range(3)]
    assert list(ns.store(0, None, keys, blocks)) == [OK] * 3
    assert list(ns.store(0, None, keys, blocks)) == [EXISTS] * 3
    found = ns.lookup(keys, len(tokens))
    assert found.tokens == len(tokens)
    assert found.groups == (kv.GroupPrefix(3, kv.Miss.NONE, 0),)
    with ns.acquire([keys], len(tokens)) as hold:
        assert hold
        assert hold.tokens == len(tokens)
        assert hold.groups == ((0, 3),)
        assert [bytes(hold.block(0, i)) for i in range(3)] == blocks
        assert hold.check()
        assert len(hold.ticket) == 16
        into = bytearray(3 * BLOCK_BYTES)
        hold.read_into(0, into)
        assert into == b"".join(blocks)


def test_a_block_goes_on_from_its_parent(ns: kv.Namespace) -> None:
    tokens = list(range(4 * BLOCK_TOKENS))
    keys = ns.hash_chain(tokens)
    assert list(ns.store(0, None, keys[:64], [payload(0), payload(1)])) == [OK] * 2
    rest = ns.store(
        0, keys[32:64], keys[64:], [payload(2), payload(3)], first_token=2 * BLOCK_TOKENS
    )
    assert list(rest) == [OK] * 2
    with ns.acquire(keys, len(tokens), from_tokens=2 * BLOCK_TOKENS) as hold:
        assert hold.groups == ((2, 2),)
        assert bytes(hold.block(0, 1)) == payload(3)


def test_a_store_larger_than_staging_goes_in_pieces(daemon: Daemon) -> None:
    with kv.Session(socket=daemon.socket, staging_bytes=64 << 10, must_connect=True) as small:
        ns = open_ns(small, "pieces")
        n = 3 * len(small.staging or b"") // BLOCK_BYTES + 1
        keys = ns.hash_chain(list(range(n * BLOCK_TOKENS)))
        assert set(ns.store(0, None, keys, [payload(i) for i in range(n)])) == {OK}
        with ns.acquire(keys, n * BLOCK_TOKENS) as hold:
            assert hold.groups == ((0, n),)
            assert all(bytes(hold.block(0, i)) == payload(i) for i in range(n))


def test_blocks_behind_a_missing_parent_are_not_sent(daemon: Daemon) -> None:
    with kv.Session(socket=daemon.socket, staging_bytes=64 << 10, must_connect=True) as small:
        ns = open_ns(small, "orphans")
        n = 2 * len(small.staging or b"") // BLOCK_BYTES
        keys = ns.hash_chain(list(range(n * BLOCK_TOKENS)))
        statuses = ns.store(0, b"x" * 32, keys, [bytes(BLOCK_BYTES)] * n, first_token=BLOCK_TOKENS)
        assert set(statuses) == {int(kv.Status.NO_PARENT)}


def test_a_partly_filled_last_block(ns: kv.Namespace) -> None:
    tokens = list(range(BLOCK_TOKENS + 3))
    keys = ns.hash_chain(tokens)
    blocks = [payload(0), payload(1)]
    assert list(ns.store(0, None, keys, blocks, last_tokens=3)) == [OK] * 2
    assert ns.lookup(keys, len(tokens)).tokens == len(tokens)


def test_staging_by_hand(session: kv.Session, ns: kv.Namespace) -> None:
    keys = ns.hash_chain(list(range(2 * BLOCK_TOKENS)))
    staging = session.staging
    assert staging is not None
    staging[128 : 128 + BLOCK_BYTES] = payload(0)
    staging[8192 : 8192 + BLOCK_BYTES] = payload(1)
    assert list(ns.store(0, None, keys, None, offsets=[128, 8192])) == [OK] * 2
    with ns.acquire(keys, 2 * BLOCK_TOKENS) as hold:
        assert [bytes(hold.block(0, i)) for i in range(2)] == [payload(0), payload(1)]


def test_no_store_sends_nothing(ns: kv.Namespace) -> None:
    keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
    statuses = ns.store(0, None, keys, [payload(0)], no_store=True)
    assert list(statuses) == [int(kv.Status.NO_STORE)]
    assert ns.lookup(keys, BLOCK_TOKENS).tokens == 0


def test_token_ids_go_with_the_blocks(daemon: Daemon) -> None:
    with kv.Session(socket=daemon.socket, staging_bytes=64 << 10, must_connect=True) as small:
        ns = open_ns(small, "with tokens", with_tokens=True)
        n = len(small.staging or b"") // BLOCK_BYTES + 2  # two pieces, each with its ids
        tokens = list(range(n * BLOCK_TOKENS))
        keys = ns.hash_chain(tokens)
        assert set(ns.store(0, None, keys, [payload(0)] * n, tokens=tokens)) == {OK}


def test_retain_is_taken(ns: kv.Namespace) -> None:
    keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
    wish = kv.Retain(0, 0, 80, 60_000)
    assert list(ns.store(0, None, keys, [payload(0)], retain=[wish])) == [OK]
    with pytest.raises(kv.BadArgument, match="retain"):
        ns.store(0, None, keys, [payload(0)], retain=[wish] * 17)


@pytest.mark.parametrize("wish", [[0, 0, 5, 0], (0, 0), (0, 0, 5), 7, "wish"])
def test_a_wish_of_another_shape_is_named(ns: kv.Namespace, wish: object) -> None:
    keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
    with pytest.raises(TypeError, match=r"retain\[1\] is .*: a Retain, or a tuple"):
        ns.store(0, None, keys, [payload(0)], retain=[kv.Retain(0, 0, 5), wish])  # type: ignore[list-item]


def test_a_ticket_is_redeemed_by_another_session(
    daemon: Daemon, ns: kv.Namespace, request: pytest.FixtureRequest
) -> None:
    keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
    ns.store(0, None, keys, [payload(5)])
    with (
        ns.acquire(keys, BLOCK_TOKENS) as hold,
        kv.Session(socket=daemon.socket, must_connect=True) as other,
        open_ns(other, request.node.name).redeem(hold.ticket) as same,
    ):
        assert bytes(same.block(0, 0)) == payload(5)
    with pytest.raises(kv.Error) as caught:
        ns.redeem(b"\xff" * 16)
    assert caught.value.name == "NO_LEASE"


def test_sequences_of_a_million_tokens_are_one_call(ns: kv.Namespace) -> None:
    n = 1_000_000 // BLOCK_TOKENS
    keys = os.urandom(32 * n)
    assert ns.lookup(keys, n * BLOCK_TOKENS).tokens == 0
    with ns.acquire(keys, n * BLOCK_TOKENS) as hold:
        assert not hold


def test_no_hit_is_a_hold_that_is_false(ns: kv.Namespace) -> None:
    with ns.acquire(ns.hash_chain([1] * BLOCK_TOKENS), BLOCK_TOKENS) as hold:
        assert not hold
        assert hold.tokens == 0
        assert hold.groups == ((0, 0),)
        with pytest.raises(IndexError):
            hold.block(0, 0)


# ---- views and their owners


def stored_hold(ns: kv.Namespace, n: int = 1) -> kv.Hold:
    keys = ns.hash_chain(list(range(n * BLOCK_TOKENS)))
    ns.store(0, None, keys, [payload(i) for i in range(n)])
    return ns.acquire(keys, n * BLOCK_TOKENS)


def test_a_view_is_read_only_and_keeps_its_hold(session: kv.Session, ns: kv.Namespace) -> None:
    hold = stored_hold(ns)
    view = hold.block(0, 0)
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(BufferError):
        hold.release()
    with pytest.raises(BufferError):
        session.close()
    part = view[10:20]
    view.release()
    with pytest.raises(BufferError):
        hold.release()
    assert bytes(part) == payload(0)[10:20]
    part.release()
    hold.release()
    hold.release()
    with pytest.raises(ValueError, match="released"):
        hold.block(0, 0)
    assert session.up


def test_a_view_outlives_all_other_references(daemon: Daemon) -> None:
    session = kv.Session(socket=daemon.socket, staging_bytes=1 << 20, must_connect=True)
    ns = open_ns(session, "outlives")
    view = stored_hold(ns).block(0, 0)
    del session, ns
    gc.collect()
    assert bytes(view) == payload(0)


def test_staging_view_keeps_the_session_open(session: kv.Session) -> None:
    staging = session.staging
    with pytest.raises(BufferError):
        session.close()
    del staging
    session.close()


def test_a_closed_session_says_so(session: kv.Session, ns: kv.Namespace) -> None:
    hold = stored_hold(ns)
    session.close()
    session.close()
    assert not session.up
    for call in (session.ping, session.stats, lambda: ns.lookup(bytes(32), 16), lambda: ns.seed):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(ValueError, match="released"):
        hold.block(0, 0)
    hold.release()


def test_leases_end_with_their_holds(session: kv.Session, ns: kv.Namespace) -> None:
    hold = stored_hold(ns)
    assert session.stats("core.leases") == {"core.leases": 1}
    del hold
    gc.collect()
    assert session.stats("core.leases") == {"core.leases": 0}


# ---- errors


def test_errors_name_what_was_wrong(session: kv.Session, ns: kv.Namespace) -> None:
    keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
    for call, says in (
        (lambda: ns.store(0, None, keys, [b"short"]), "5 bytes"),
        (lambda: ns.store(0, None, keys, []), "0 blocks for 1 keys"),
        (lambda: ns.store(1, None, keys, [payload(0)]), "group 1"),
        (lambda: ns.store(0, b"x", keys, [payload(0)]), "parent"),
        (lambda: ns.store(0, None, b"x", [payload(0)]), "keys"),
        (lambda: ns.lookup(b"x", 16), "multiple of 32"),
        (lambda: ns.redeem(b"x"), "ticket"),
        (lambda: kv.hash_chain(b"x", [1], 16), "parent"),
        (lambda: kv.hash_chain(bytes(32), [1], 0), "block_tokens"),
        (lambda: ns.lookup([keys, keys], 16), "keys of 2 groups: the namespace has 1"),
        (lambda: ns.acquire([keys, keys], 16), "keys of 2 groups"),
        (lambda: ns.hint([keys, keys], 16, kv.Hint.SCAN), "keys of 2 groups"),
        (lambda: ns.pin([keys, keys], 16), "keys of 2 groups"),
        (lambda: ns.lookup([], 16), "keys of 0 groups"),
        (lambda: ns.store(0, None, keys, [payload(0)], offsets=[0]), "blocks and offsets"),
        (lambda: ns.store(0, None, keys, None), "neither blocks nor offsets"),
        (lambda: ns.hash_chain([1], 1), "group is 1"),
        (lambda: ns.hash_chain([1], -1), "group is -1"),
        (lambda: session.namespace(model="m", groups=[]), "groups"),
        (lambda: kv.Group(16, 64, "odd").spec(), "odd"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=says):
            call()


U32, U64 = 2**32 - 1, 2**64 - 1


def test_numbers_out_of_range_are_named(session: kv.Session, ns: kv.Namespace) -> None:
    keys = ns.hash_chain(list(range(16)))
    ns.store(0, None, keys, [payload(0)])
    hold, page = ns.acquire(keys, 16), kv.PageLayout([[kv.Region(4096, 4096, 4096)]], 1)
    group = kv.Group

    def retain(*of: int) -> bytes:
        return ns.store(0, None, keys, [payload(0)], retain=[kv.Retain(*of)])

    for name, most, call in (
        ("group", 15, lambda v: ns.store(v, None, keys, [payload(0)])),
        ("first_token", U32, lambda v: ns.store(0, None, keys, [payload(0)], first_token=v)),
        ("last_tokens", U32, lambda v: ns.store(0, None, keys, [payload(0)], last_tokens=v)),
        (r"tokens\[1\]", U32, lambda v: ns.store(0, None, keys, [payload(0)], tokens=[0, v])),
        (r"offsets\[0\]", U64, lambda v: ns.store(0, None, keys, None, offsets=[v])),
        ("retain's first_token", U32, lambda v: retain(v, 0, 1)),
        ("retain's end_token", U32, lambda v: retain(0, v, 1)),
        ("retain's priority", 100, lambda v: retain(0, 0, v)),
        ("retain's duration_ms", U64, lambda v: retain(0, 0, 1, v)),
        ("tokens", U32, lambda v: ns.lookup(keys, v)),
        ("tokens", U32, lambda v: ns.acquire(keys, v)),
        ("from_tokens", U32, lambda v: ns.acquire(keys, 16, from_tokens=v)),
        ("wait_tokens", U32, lambda v: ns.acquire(keys, 16, wait_tokens=v)),
        ("timeout_ms", 600_000, lambda v: ns.acquire(keys, 16, timeout_ms=v)),
        ("tokens", U32, lambda v: ns.put(page, keys, v, [[0]])),
        ("from_tokens", U32, lambda v: ns.put(page, keys, 16, [[0]], from_tokens=v)),
        (r"pages\[0\]", U32, lambda v: ns.put(page, keys, 16, [[v]])),
        ("within_ms", U32, lambda v: ns.hint(keys, 16, kv.Hint.SOON, within_ms=v)),
        ("ttl_ms", U64, lambda v: ns.pin(keys, 16, ttl_ms=v)),
        ("priority", 100, lambda v: ns.name_put(kv.NameKind.DOCUMENT, "n", keys, 16, priority=v)),
        ("ttl_ms", U64, lambda v: ns.name_put(kv.NameKind.DOCUMENT, "n", keys, 16, ttl_ms=v)),
        (
            "timeout_ms",
            600_000,
            lambda v: session.name_load(kv.NameKind.DOCUMENT, "n", timeout_ms=v),
        ),
        ("kind", 2**31 - 1, lambda v: session.name_get(v, "n")),
        ("pin", U64, session.unpin),
        ("group", 15, lambda v: hold.block(v, 0)),
        ("i", U32, lambda v: hold.block(0, v)),
        ("group", 15, lambda v: hold.read_into(v, bytearray(BLOCK_BYTES))),
        ("stream", U64, lambda v: hold.load_pages(page, [[0]], stream=v)),
        ("block_tokens", 65536, lambda v: open_ns(session, "m", groups=[group(v, 64)])),
        ("block_bytes", 2**30, lambda v: open_ns(session, "m", groups=[group(16, v)])),
        ("window", U32, lambda v: open_ns(session, "m", groups=[group(16, 64, "window", v)])),
        ("layers", U32, lambda v: open_ns(session, "m", groups=[group(16, 64)], layers=v)),
        ("shards", 64, lambda v: open_ns(session, "m", groups=[group(16, 64)], shards=v)),
        ("block_tokens", 65536, lambda v: kv.hash_chain(bytes(32), [1], v)),
        ("staging_bytes", 2**40, lambda v: kv.Session(staging_bytes=v)),
        ("shard", 63, lambda v: kv.Session(shard=v)),
        ("timeout_ms", 600_000, lambda v: kv.Session(timeout_ms=v)),
        ("pages_max", U32, lambda v: kv.PageLayout([[kv.Region(1, 1, 1)]], v)),
        ("address", U64, lambda v: kv.PageLayout([[kv.Region(v, 1, 1)]], 1)),
        ("stride", U64, lambda v: kv.PageLayout([[kv.Region(1, v, 1)]], 1)),
    ):
        for wrong in (-1, -(2**32), most + 1, 2**64, 2**64 + 5):
            with pytest.raises(kv.BadArgument, match=f"EINVAL: {name} is {wrong}: . to {most} "):
                call(wrong)
        with pytest.raises(kv.BadArgument, match=rf"{name} is 1{{40}}\.\.\.: "):
            call(int("1" * 4000))
        with pytest.raises(kv.BadArgument, match=f"{name} is a number of thousands of digits: "):
            call(10**5000)
        with pytest.raises(TypeError, match=f"{name}: an integer was expected, not float"):
            call(1.5)  # type: ignore[arg-type]


def test_a_code_is_said_once(ns: kv.Namespace) -> None:
    with pytest.raises(kv.BadArgument) as caught:
        ns.store(0, None, ns.hash_chain([1]), [payload(0)], last_tokens=17)
    assert str(caught.value) == "BAD_ARGUMENT: last_tokens: more than block_tokens"
    assert caught.value.text == "last_tokens: more than block_tokens"


def test_offsets_before_staging_was_asked_for(session: kv.Session, ns: kv.Namespace) -> None:
    with pytest.raises(kv.Down, match="was not asked for"):
        ns.store(0, None, ns.hash_chain([1]), None, offsets=[0])


def test_one_chain_is_any_bytes(ns: kv.Namespace) -> None:
    keys = ns.hash_chain(list(range(16)))
    ns.store(0, None, keys, [payload(0)])
    for one in (keys, bytearray(keys), memoryview(keys), [memoryview(keys)]):
        assert ns.lookup(one, 16).tokens == 16
    with pytest.raises(TypeError, match="not str"):
        ns.lookup("a" * 32, 16)  # type: ignore[arg-type]


def test_an_unsound_namespace_is_refused(session: kv.Session) -> None:
    with pytest.raises(kv.Unsound) as caught:
        session.namespace(
            model="m", position="rope", attention="bidirectional", groups=[kv.Group(16, 64)]
        )
    assert caught.value.name == "UNSOUND"
    assert "attention" in caught.value.text


def test_groups_are_read_once(session: kv.Session) -> None:
    made = (kv.Group(tokens, BLOCK_BYTES) for tokens in (16, 32))
    assert open_ns(session, "read once", groups=made).groups == (
        kv.Group(16, BLOCK_BYTES),
        kv.Group(32, BLOCK_BYTES),
    )


def test_staging_without_room_is_named(daemon: Daemon) -> None:
    with kv.Session(socket=daemon.socket, must_connect=True) as reader:
        ns = open_ns(reader, "reader")
        with pytest.raises(kv.BadArgument, match="staging_bytes"):
            ns.store(0, None, bytes(32), [payload(0)])


def test_errors_pickle() -> None:
    import pickle

    error = kv.Stale(-1100, "STALE", "why")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kv.Stale
    assert (again.code, again.name, again.text) == (-1100, "STALE", "why")


def test_must_connect_without_a_daemon(tmp_path: os.PathLike[str]) -> None:
    with pytest.raises(kv.Down):
        kv.Session(socket=f"{tmp_path}/none.sock", must_connect=True, timeout_ms=100)
    with kv.Session(socket=f"{tmp_path}/none.sock", timeout_ms=100) as down:
        assert not down.up
        assert down.staging is None
        with pytest.raises(kv.Down):
            down.ping()


# ---- threads


def test_threads_share_a_session(ns: kv.Namespace) -> None:
    wrong: list[str] = []

    def work(mine: int) -> None:
        for turn in range(20):
            tokens = [mine * 1000 + turn] * BLOCK_TOKENS
            keys = ns.hash_chain(tokens)
            if list(ns.store(0, None, keys, [payload(mine + turn)])) != [OK]:
                wrong.append("store")
            with ns.acquire(keys, BLOCK_TOKENS) as hold:
                into = bytearray(BLOCK_BYTES)
                hold.read_into(0, into)
                if into != payload(mine + turn):
                    wrong.append("bytes")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_other_threads_run_while_a_call_waits(own_daemon: Daemon) -> None:
    """A frozen daemon keeps a call waiting; the GIL is free meanwhile."""
    import signal

    own_daemon.start()
    assert own_daemon.process is not None
    with kv.Session(socket=own_daemon.socket, must_connect=True, timeout_ms=500) as session:
        ticks = 0
        stop = threading.Event()

        def tick() -> None:
            nonlocal ticks
            while not stop.wait(0.001):
                ticks += 1

        own_daemon.process.send_signal(signal.SIGSTOP)
        thread = threading.Thread(target=tick)
        thread.start()
        try:
            with pytest.raises((kv.Timeout, kv.Down)):
                session.ping()
        finally:
            stop.set()
            thread.join()
            own_daemon.process.send_signal(signal.SIGCONT)
        assert ticks > 5


# ---- fork, restart


def test_a_child_may_not_use_its_parents_session(daemon: Daemon, ns: kv.Namespace) -> None:
    hold = stored_hold(ns)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(kv.Denied, match="EPERM"):
                ns.lookup(bytes(32), 16)
            with pytest.raises(kv.Denied, match="EPERM"):
                hold.block(0, 0)
            with kv.Session(socket=daemon.socket, must_connect=True) as own:
                own.ping()
            del hold
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bytes(hold.block(0, 0)) == payload(0)
    assert hold.check()


def test_a_restarted_daemon_is_found_again(own_daemon: Daemon) -> None:
    own_daemon.start()
    with kv.Session(
        socket=own_daemon.socket, staging_bytes=1 << 20, must_connect=True, timeout_ms=2000
    ) as session:
        ns = open_ns(session, "restart")
        hold = stored_hold(ns)
        epoch = session.epoch
        own_daemon.kill()
        keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
        wait_until(lambda: not hold.check())
        assert bytes(hold.block(0, 0)) == payload(0)
        with pytest.raises(kv.Stale):
            hold.read_into(0, bytearray(BLOCK_BYTES))
        assert ns.lookup(keys, BLOCK_TOKENS).tokens == 0
        with pytest.raises(kv.Down):
            ns.store(0, None, keys, [payload(0)])
        assert session.counters()["stores_dropped_blocks"] == 1
        own_daemon.start()
        wait_until(lambda: ns.lookup(keys, BLOCK_TOKENS) and session.up)
        assert session.epoch > epoch
        keys = ns.hash_chain(list(range(BLOCK_TOKENS)))
        assert list(ns.store(0, None, keys, [payload(9)])) == [OK]
        hold.release()
