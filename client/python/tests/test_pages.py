# SPDX-License-Identifier: Apache-2.0
"""Blocks from and to an engine's pages: NumPy arrays, torch tensors, bare buffers."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from conftest import Daemon, open_ns, wait_until

import kvcache_client as kv

LAYERS, PAGES, PAGE = 3, 12, 512  # bytes of a page of one layer


def layers(fill: bool) -> list[bytearray]:
    made = [bytearray(PAGES * PAGE) for _ in range(LAYERS)]
    if fill:
        for layer, memory in enumerate(made):
            for at in range(len(memory)):
                memory[at] = (layer * 101 + at * 13 + at // 256 * 7) & 255
    return made


def layout_of(memory: list[bytearray], per_block: int = 1) -> kv.PageLayout:
    regions = [memoryview(m).cast("B", (PAGES, PAGE)) for m in memory]
    return kv.PageLayout.of_tensors([regions], pages_per_block=per_block)


def page(memory: bytearray, number: int) -> bytes:
    return bytes(memory[number * PAGE : (number + 1) * PAGE])


@pytest.mark.parametrize("per_block", [1, 2])
def test_pages_go_out_and_come_back(session: kv.Session, per_block: int) -> None:
    ns = open_ns(session, f"pages {per_block}", groups=(kv.Group(16, LAYERS * PAGE * per_block),))
    source, target = layers(True), layers(False)
    keys = ns.hash_chain(list(range(4 * 16)))
    out = [7, 2, 11, 0, 5, 9, 1, 3][: 4 * per_block]
    into = array("i", [3, 4, 0, 8, 11, 2, 6, 5][: 4 * per_block])
    assert not any(ns.store_pages(layout_of(source, per_block), 0, None, keys, out))
    with ns.acquire(keys, 4 * 16) as hold:
        # A block is its pages region by region.
        expected = b"".join(page(m, p) for m in source for p in out[:per_block])
        assert bytes(hold.block(0, 0)) == expected
        hold.load_pages(layout_of(target, per_block), [into])
    for m, t in zip(source, target, strict=True):
        assert [page(t, p) for p in into] == [page(m, p) for p in out]
        untouched = set(range(PAGES)) - set(into)
        assert all(not any(page(t, p)) for p in untouched)


def test_a_part_of_the_blocks(session: kv.Session) -> None:
    ns = open_ns(session, "part", groups=(kv.Group(16, LAYERS * PAGE),))
    source, target = layers(True), layers(False)
    keys = ns.hash_chain(list(range(4 * 16)))
    ns.store_pages(layout_of(source), 0, None, keys[:64], [0, 1])
    ns.store_pages(layout_of(source), 0, keys[32:64], keys[64:], [2, 3], first_token=32)
    with ns.acquire(keys, 64, from_tokens=32) as hold:
        hold.load_pages(layout_of(target), [[5, 6]])
        hold.load_pages(layout_of(target), [None])
    assert page(target[1], 5) == page(source[1], 2)
    assert page(target[2], 6) == page(source[2], 3)


def test_groups_have_layouts_of_their_own(session: kv.Session) -> None:
    groups = (kv.Group(16, 2 * PAGE), kv.Group(32, PAGE, rule="window", window=32))
    ns = open_ns(session, "groups", groups=groups)
    source, target = layers(True), layers(False)

    def layout(memory: list[bytearray]) -> kv.PageLayout:
        views = [memoryview(m).cast("B", (PAGES, PAGE)) for m in memory]
        return kv.PageLayout.of_tensors([views[:2], views[2:]])

    tokens = list(range(64))
    keys = [ns.hash_chain(tokens, 0), ns.hash_chain(tokens, 1)]
    assert not any(ns.store_pages(layout(source), 0, None, keys[0], [1, 2, 3, 4]))
    assert not any(ns.store_pages(layout(source), 1, None, keys[1], [5, 6]))
    with ns.acquire(keys, 64) as hold:
        assert hold.groups == ((0, 4), (1, 1))
        hold.load_pages(layout(target), [[0, 1, 2, 3], [9]])
    assert page(target[2], 9) == page(source[2], 6)
    assert page(target[0], 3) == page(source[0], 4)


def test_wrong_layouts_are_named(session: kv.Session) -> None:
    ns = open_ns(session, "wrong", groups=(kv.Group(16, LAYERS * PAGE),))
    memory = layers(True)
    layout = layout_of(memory)
    keys = ns.hash_chain(list(range(16)))
    half = layout_of(memory[:2])
    for call, says in (
        (lambda: ns.store_pages(half, 0, None, keys, [0]), "1024"),
        (lambda: ns.store_pages(layout, 0, None, keys, [0, 1]), "2 page numbers"),
        (lambda: ns.store_pages(layout, 0, None, keys, [PAGES]), f"is {PAGES}"),
        (lambda: kv.PageLayout([[kv.Region(0, 1, 1)]], 1), "address"),
        (lambda: kv.PageLayout([], 1), "groups"),
        (lambda: kv.PageLayout.of_tensors([[b"read only"]]), "read-only"),
        (lambda: kv.PageLayout.of_tensors([[bytearray(8)]], page_dim=1), "page_dim"),
        (
            lambda: kv.PageLayout.of_tensors([[bytearray()], [bytearray(8)]]),
            r"layer 0, of shape \(0,\), has no pages",
        ),
        (lambda: kv.PageLayout.of_tensors([[bytearray(8), bytearray()]]), "layer 1, of shape"),
        (
            lambda: kv.PageLayout.of_tensors([[memoryview(bytearray(64)).cast("B", (8, 8))[::-1]]]),
            "asc",
        ),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    ns.store_pages(layout, 0, None, keys, [0])
    with ns.acquire(keys, 16) as hold:
        for pages, says in (([[0, 1]], "2 page numbers"), ([[PAGES]], "is 12"), ([], "0 groups")):
            with pytest.raises(ValueError, match=says):
                hold.load_pages(layout, pages)


def test_pages_of_get(session: kv.Session) -> None:
    """As many groups as the namespace has; numbers that can be read once, as in put."""
    ns = open_ns(session, "pages of get", groups=(kv.Group(16, LAYERS * PAGE),))
    source, target = layers(True), layers(False)
    keys = ns.hash_chain(range(32))
    for pages in ([], [[0, 1]] * 2):
        with pytest.raises(kv.BadArgument, match=f"pages of {len(pages)} groups: .* has 1"):
            ns.get(layout_of(target), keys, 32, pages)
    once: Any = [iter([4, 2])]
    assert ns.put(layout_of(source), keys, 32, once).tokens == 32
    once = [iter([3, 5])]
    assert ns.get(layout_of(target), keys, 32, once, from_tokens=16) == 32
    assert page(target[1], 5) == page(source[1], 2)
    assert not any(page(target[1], 3))


def test_memory_of_a_layout_is_not_resized() -> None:
    """Its pages would be in memory that is gone, or another's."""
    for memory in (bytearray(64), array("Q", range(8))):
        layout = kv.PageLayout.of_tensors([[memory]])
        with pytest.raises(BufferError):
            del memory[:]
        del layout
        del memory[:]


def test_pages_that_are_not_there(session: kv.Session) -> None:
    """Nothing is copied to them; of a partly filled block zeros are stored for them."""
    ns = open_ns(session, "no page", groups=(kv.Group(16, LAYERS * PAGE * 2),))
    source, target = layers(True), layers(False)
    keys = ns.hash_chain(range(20))
    assert not any(
        ns.store_pages(layout_of(source, 2), 0, None, keys, [0, 1, 2, kv.NO_PAGE], last_tokens=4)
    )
    with ns.acquire(keys, 20) as hold:
        assert bytes(hold.block(0, 1)[PAGE : 2 * PAGE]) == bytes(PAGE)
        hold.load_pages(layout_of(target, 2), [[3, kv.NO_PAGE, 4, 5]])
    assert page(target[1], 3) == page(source[1], 0)
    assert page(target[2], 4) == page(source[2], 2)
    assert page(target[0], 5) == bytes(PAGE)


def test_put_stores_what_is_missing(session: kv.Session) -> None:
    groups = (kv.Group(16, 2 * PAGE), kv.Group(32, PAGE, rule="window", window=32))
    ns = open_ns(session, "put", groups=groups)
    source, target = layers(True), layers(False)

    def layout(memory: list[bytearray]) -> kv.PageLayout:
        views = [memoryview(m).cast("B", (PAGES, PAGE)) for m in memory]
        return kv.PageLayout.of_tensors([views[:2], views[2:]])

    tokens = list(range(96))
    keys = [ns.hash_chain(tokens, g) for g in range(2)]
    pages = [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    part = ns.put(layout(source), [keys[0][:64], keys[1][:32]], 32, [[0, 1], [6]])
    assert (part.tokens, part.bytes) == (32, 5 * PAGE)
    whole = ns.put(layout(source), keys, 96, pages)
    assert whole.tokens == 96
    assert [g[:3] for g in whole.groups] == [(4, 2, 0), (2, 1, 0)]
    assert list(whole.groups[0].statuses) == [kv.Status.EXISTS] * 2 + [kv.Status.OK] * 4
    again = ns.put(layout(source), keys, 96, pages, from_tokens=96)
    assert again.bytes == 0
    other = [[11, 10, 9, 8, 7, 6], [0, 1, 2]]
    assert ns.get(layout(target), keys, 96, other) == 96
    for block in range(6):
        assert page(target[1], other[0][block]) == page(source[1], pages[0][block])
    assert page(target[2], 2) == page(source[2], 8)
    assert page(target[2], 0) == bytes(PAGE)  # outside the window
    none = ns.hash_chain([5] * 96, 0), ns.hash_chain([5] * 96, 1)
    assert ns.get(layout(target), none, 96, other) == 0
    with pytest.raises(ValueError, match="page numbers"):
        ns.put(layout(source), keys, 96, [[0], [1]])
    with pytest.raises(ValueError, match="1 groups"):
        ns.put(layout(source), keys, 96, [[0]])


def test_put_takes_up_what_the_daemon_has_lost(session: kv.Session) -> None:
    ns = open_ns(session, "put again", groups=(kv.Group(16, LAYERS * PAGE),))
    keys = ns.hash_chain(range(64))
    source, target = layers(True), layers(False)
    done = ns.put(layout_of(source), keys, 64, [[0, 1, 2, 3]], from_tokens=32)
    assert (done.tokens, done.groups[0].stored) == (64, 4)
    assert ns.get(layout_of(target), keys, 64, [[4, 5, 6, 7]], from_tokens=32) == 64
    assert page(target[0], 4) == bytes(PAGE)
    assert page(target[0], 7) == page(source[0], 3)


def test_a_stale_load_is_said(own_daemon: Daemon) -> None:
    own_daemon.start()
    with kv.Session(socket=own_daemon.socket, staging_bytes=1 << 20, must_connect=True) as session:
        ns = open_ns(session, "stale", groups=(kv.Group(16, LAYERS * PAGE),))
        memory = layers(True)
        keys = ns.hash_chain(list(range(16)))
        ns.store_pages(layout_of(memory), 0, None, keys, [0])
        with ns.acquire(keys, 16) as hold:
            own_daemon.kill()
            wait_until(lambda: not hold.check())
            with pytest.raises(kv.Stale):
                hold.load_pages(layout_of(memory), [[1]])


# ---- NumPy and PyTorch


def test_numpy_arrays(session: kv.Session) -> None:
    np = pytest.importorskip("numpy")
    ns = open_ns(session, "numpy", groups=(kv.Group(16, 2 * 2 * 16 * 8 * 4),))
    rng = np.random.default_rng(7)
    cache = [rng.standard_normal((2, PAGES, 16, 8), dtype=np.float32) for _ in range(2)]
    empty = [np.zeros_like(c) for c in cache]
    keys = ns.hash_chain(np.arange(48, dtype=np.int64))
    out, into = np.array([4, 0, 9]), np.array([1, 2, 3], dtype=np.int32)
    layout = kv.PageLayout.of_tensors([cache], page_dim=1)
    assert layout.block_bytes() == 2 * 2 * 16 * 8 * 4
    assert not any(ns.store_pages(layout, 0, None, keys, out))
    with ns.acquire(keys, 48) as hold:
        hold.load_pages(kv.PageLayout.of_tensors([empty], page_dim=1), [into])
        whole = np.empty((3, 2, 2, 16, 8), np.float32)
        hold.read_into(0, whole)
        view = np.from_dlpack(hold.dlpack(0, 1))
        assert not view.flags.writeable
        assert np.array_equal(view.view(np.float32), whole[1].ravel())
        with pytest.raises(BufferError):
            hold.release()
        del view
        frombuffer = np.frombuffer(hold.block(0, 2), np.float32)
        assert np.array_equal(frombuffer, whole[2].ravel())
        del frombuffer
    for c, e in zip(cache, empty, strict=True):
        assert np.array_equal(c[:, out], e[:, into])
    assert np.array_equal(whole[:, 1], np.stack([cache[1][:, p] for p in out]))


def test_objects_are_no_blocks(session: kv.Session) -> None:
    """Their bytes are addresses of this process, and whoever writes them ends it."""
    numpy = pytest.importorskip("numpy")
    ns = open_ns(session, "objects")
    keys = ns.hash_chain(range(16))
    fields = [("Odd", "u8"), ("one", object)]
    for wrong in (numpy.zeros(512, object), numpy.zeros(256, fields)):
        with pytest.raises(TypeError, match="an array of Python objects"):
            ns.store(0, None, keys, [wrong])
        with pytest.raises(TypeError, match="an array of Python objects"):
            kv.PageLayout.of_tensors([[wrong]])
    assert list(ns.store(0, None, keys, [numpy.zeros(512, [("Odd", "u8")])])) == [0]
    with ns.acquire(keys, 16) as hold, pytest.raises(TypeError, match="an array of Python objects"):
        hold.read_into(0, numpy.zeros(512, object))


def test_numpy_blocks(session: kv.Session) -> None:
    np = pytest.importorskip("numpy")
    ns = open_ns(session, "numpy blocks", groups=(kv.Group(16, 256),))
    blocks = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    keys = ns.hash_chain(range(48))
    assert not any(ns.store(0, None, keys, list(blocks)))
    with pytest.raises(ValueError, match="gaps"):
        ns.store(0, None, keys, list(np.zeros((64, 6), np.float32).T[::2]))
    with ns.acquire(keys, 48) as hold:
        back = np.zeros_like(blocks)
        hold.read_into(0, back)
        with pytest.raises(ValueError, match="buffer of 192 bytes"):
            hold.read_into(0, np.zeros(48, np.float32))
        with pytest.raises(ValueError, match="read-only"):
            hold.read_into(0, bytes(768))
    assert np.array_equal(blocks, back)


def test_torch_tensors(session: kv.Session) -> None:
    torch: Any = pytest.importorskip("torch")
    ns = open_ns(session, "torch", groups=(kv.Group(16, 2 * 2 * 16 * 8 * 2),))
    cache = [torch.randn(2, PAGES, 16, 8).to(torch.bfloat16) for _ in range(2)]
    empty = [torch.zeros_like(c) for c in cache]
    keys = ns.hash_chain(torch.arange(48))
    out, into = torch.tensor([4, 0, 9]), torch.tensor([1, 2, 3], dtype=torch.int32)
    layout = kv.PageLayout.of_tensors([cache], page_dim=1)
    assert not any(ns.store_pages(layout, 0, None, keys, out))
    with ns.acquire(keys, 48) as hold:
        hold.load_pages(kv.PageLayout.of_tensors([empty], page_dim=1), [into])
        whole = torch.empty((3, 2, 2, 16, 8), dtype=torch.bfloat16)
        hold.read_into(0, whole)
        view = torch.from_dlpack(hold.dlpack(0, 1)).view(torch.bfloat16)
        assert torch.equal(view, whole[1].flatten())
        with pytest.raises(BufferError):
            hold.release()
        del view
    for c, e in zip(cache, empty, strict=True):
        assert torch.equal(c[:, out], e[:, into])


def test_strided_torch_pages(session: kv.Session) -> None:
    """One allocation for all layers, pages of a layer apart: [pages, layers, bytes of a page]."""
    torch: Any = pytest.importorskip("torch")
    ns = open_ns(session, "strided", groups=(kv.Group(16, 4 * 64),))
    pool = torch.randint(0, 256, (PAGES, 4, 64), dtype=torch.uint8)
    other = torch.zeros_like(pool)
    keys = ns.hash_chain(range(32))
    layout = kv.PageLayout.of_tensors([[pool[:, i] for i in range(4)]])
    assert not any(ns.store_pages(layout, 0, None, keys, [8, 3]))
    with ns.acquire(keys, 32) as hold:
        hold.load_pages(kv.PageLayout.of_tensors([[other[:, i] for i in range(4)]]), [[1, 2]])
    assert torch.equal(other[1], pool[8])
    assert torch.equal(other[2], pool[3])
