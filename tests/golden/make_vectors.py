#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden vectors of this directory, or with --check says whether they are up to date.

What protocol.py and the C code agree on is the protocol. Run this after a change of it and read
the diff.
"""

import hashlib
import os
import sys

sys.dont_write_bytecode = True

from protocol import (  # noqa: E402
    ALL,
    BLOCKS,
    K,
    LLAMA,
    SEED,
    U32,
    U64,
    attach,
    error,
    key_case,
    listing,
    loc,
    region,
    reply,
    request,
    retain,
    rows,
    u32s,
    u64s,
)
from rejects import reject_attaches, reject_heads, reject_replies, reject_requests  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
UUID = bytes(range(0x80, 0x90))  # of a device
PAIRS = [(layer, kv) for layer in range(2) for kv in range(2)]  # layer, 0 for K and 1 for V


def requests():
    full = [16, 2097152, 0, 0, 0]
    out = [
        request("hello", "versions of this release", [2, 2]),
        request("hello", "largest range", [0, U32], corr=U64, deadline=600000),
        request("ping", "smallest", [], corr=0),
    ]
    for n in (127, 128, 255, 256, 65535, 65536, U32, U32 + 1, U64):
        out.append(request("ping", "corr %d" % n, [], corr=n, deadline=min(n, 600000)))
    out += [
        request("ns_open", "one group", LLAMA + [1, 0, 0, 0, [full]], corr=2),
        request(
            "ns_open",
            "three groups, two shards",
            LLAMA + [2, 8, 55000, 410, [full, [64, 1 << 20, 1, 4096, 16], [1024, 1, 2, 0, 0]]],
        ),
        request("ns_open", "least", ["m"] + [""] * 10 + [0, 0, 0, 1, 0, 0, 0, [[1, 1, 0, 0, 0]]]),
        request(
            "ns_open",
            "most",
            [
                "m" * 127,
                "r" * 127,
                "d" * 127,
                "q" * 127,
                "l" * 127,
                "p" * 127,
                "P" * 255,
                "a" * 127,
                "L" * 127,
                "e" * 255,
                "s" * 127,
                U32,
                U32,
                U32,
                64,
                8,
                U64,
                U64,
                [[65536, 1 << 30, 1, U32, 16]] * 16,
            ],
            corr=U64,
            deadline=600000,
        ),
        request(
            "ns_open",
            "names outside ASCII",
            ["modèle", "版本", "\U0001f999"]
            + [""] * 4
            + ["causal", "", 'quote " backslash \\ tab \t', "", 1, 1, 1, 1, 0, 0, 0, [full]],
        ),
        request(
            "lookup", "one group, three blocks", [1, "", 40, [b"".join(K)], 0], corr=3, deadline=100
        ),
        request(
            "lookup",
            "touch, sub-tenant, three groups",
            [7, "customer-7", 40, [b"".join(K), K[0], b""], 2],
            corr=300,
        ),
        request("lookup", "no keys", [0, "", 0, [b""], 0]),
        request("lookup", "16 groups", [U32, "s" * 127, U32, [k for k in K[:2]] * 8, 2]),
        request("lookup", "8 keys: bin 16", [1, "", 128, [b"\xab" * 256], 0]),
        request("lookup", "32768 keys: bin 32", [1, "", U32, [b"\xcd" * (32768 * 32)], 0]),
        request("lookup", "131072 keys", [1, "", U32, [b"\xcd" * (131072 * 32)], 0]),
        request(
            "acquire",
            "wait for the whole prefix",
            [1, "", 40, [b"".join(K)], 1, 0, 0, 0],
            corr=4,
            deadline=2000,
        ),
        request("acquire", "no wait, from a token on", [1, "", 40, [b"".join(K)], 0, 63, 16, 32]),
        request(
            "acquire",
            "largest numbers",
            [U32, "", U32, [K[0]] * 16, 1, 63, U32, U32],
            corr=U64,
            deadline=600000,
        ),
        request("redeem", "a ticket", [bytes(range(16, 32)), 1]),
        request("redeem", "zero ticket", [bytes(16), 0]),
        request("release", "one lease", [u64s(0x0102030405060708)], corr=9),
        request("release", "none", [b""]),
        request("release", "1024 leases", [b"\x11" * 8192]),
        request("reserve", "first two blocks", [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0, b""], corr=5),
        request(
            "reserve", "partly filled block after a parent", [1, "", 0, 0, 0, K[1], 32, K[2], 8, b""]
        ),
        request(
            "reserve",
            "largest numbers",
            [U32, "s" * 127, 1056, 15, 63, K[0], U32, b"\xee" * (4096 * 32), 65536]
            + [retain(U32 - 1, U32, 100, U64) * 16],
            corr=U64,
        ),
        request(
            "commit",
            "two blocks, with tokens",
            [77, 0, u64s(0, 2097152), u32s(*range(1, 33))],
            corr=6,
        ),
        request("commit", "one skipped, no tokens", [77, 0, u64s(U64, 64), b""]),
        request("commit", "last of 4096", [U64, 4095, u64s(0), b""]),
        request("commit", "4096 offsets", [1, 0, b"\x00" * 32768, b"\x07" * 65536]),
        request(
            "store",
            "two blocks",
            [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0, b"", u64s(0, 2097152), b""],
            corr=7,
            deadline=1000,
        ),
        request(
            "store",
            "partly filled, tokens, sub-tenant",
            [1, "customer-7", 0, 1, 1, K[1], 32, K[2], 8, b"", u64s(64), u32s(*range(33, 41))],
        ),
        request("drop", "a reservation", [77]),
        request("drop", "largest", [U64]),
        request("cancel", "a request", [4]),
        request("cancel", "largest", [U64]),
        request("stats", "as it is", []),
        request("list", "from the start", [1, 0, b"", "", 0, ""] + ALL),
        request("list", "names, continued", [10, 0, b"\x02manual", "man", 0, "t"] + ALL),
        request("list", "one name", [10, 0, b"", "manual", 1, ""] + ALL),
        request(
            "list",
            "largest",
            [9, 256, b"\xff" * 320, "n" * 127, 0, "s" * 127] + ALL,
            corr=U64,
            deadline=600000,
        ),
        request("list", "blocks, to the first one", BLOCKS + [1, 0, 0, K[2], 0]),
        request(
            "list",
            "blocks, two levels below, continued",
            [11, 100, u64s(0x100000007), "", 0, "", 1, 0, 1, K[0], 2],
        ),
        request("list", "blocks, roots of a group", BLOCKS + [7, 15, 2, b"", 0]),
        request("list", "blocks, keys that begin with 64 bits", BLOCKS + [0, 0, 3, K[0], 64]),
        request("list", "blocks, one key anywhere", BLOCKS + [0, 0, 4, K[0], 0]),
        request("list", "blocks, 256 keys", BLOCKS + [U32, 0, 4, b"\x55" * 8192, 0]),
        request(
            "list",
            "blocks, largest numbers",
            [11, 256, b"\xff" * 320, "", 0, "", U32, 15, 1, K[0], U32],
        ),
        request("ns_spec", "one", [1]),
        request("ns_spec", "largest id", [U32]),
        request("evict", "a preview of a namespace", [4, 7, b"", 0, 0, "", "", 0]),
        request("evict", "a block and its descendants", [0, 0, K[0], 0, 0, "", "", 0]),
        request("evict", "of a tenant and model", [8196, 0, b"", 0, 0, "acme", "llama", 35]),
        request(
            "evict", "largest numbers", [8196, U32, K[0], U64, U64, "t" * 127, "m" * 127, 101]
        ),
        request("pin", "two blocks, anywhere", [1, "", 32, [K[0] + K[1]], 0, 0]),
        request("pin", "largest, in memory", [U32, "s" * 127, U32, [K[0]] * 16, 1, U64]),
        request("unpin", "a pin", [3]),
        request("unpin", "largest", [U64]),
        request("quota_set", "of a tenant", [1, "acme", "", 0, 1 << 32, U64, 1 << 30, 0]),
        request("quota_set", "of a sub-tenant", [2, "acme", "eu", 0, U64, 1 << 40, 0, 0]),
        request("quota_set", "of a namespace", [3, "", "", 7, 1 << 32, U64, 0, 0]),
        request("quota_set", "largest", [2, "t" * 127, "s" * 127, 0] + [U64] * 4),
        request("session_end", "one", [12]),
        request("session_end", "largest", [U32]),
        request("policy", "show", [0, "", 0, 0, 0, 0]),
        request("policy", "set", [1, "density", 60, 1, 0, 1 << 34]),
        request("policy", "largest", [1, "n" * 127, 100, 1, 1, U64]),
        request("verify", "a slice of everything", [0, 0, 0, 16777216]),
        request("verify", "host memory of a namespace, continued", [7, 1, 4096, 1], deadline=60000),
        request("verify", "largest numbers", [U32, 1, U64, U64]),
        request("trace", "status", [0, 0, 0]),
        request("trace", "on, as the daemon likes", [1, 0, 0]),
        request("trace", "on, largest numbers", [1, U32, 1 << 30]),
        request("trace", "off", [2, 0, 0]),
        request("trace_dump", "from the oldest", [0, 0]),
        request("trace_dump", "largest numbers", [U32, U64]),
        request("lookup", "prefetch", [1, "", 40, [b"".join(K)], 64]),
        request("lookup", "touch and prefetch", [1, "", 40, [b"".join(K)], 66]),
        request("acquire", "only what is in memory", [1, "", 40, [b"".join(K)], 128, 0, 0, 0]),
        request("acquire", "wait, without loading", [1, "", 40, [b"".join(K)], 129, 0, 0, 0]),
        request("reserve", "durable", [1, "", 32, 0, 0, b"", 0, K[0], 0, b""]),
        request("store", "durable", [1, "", 32, 0, 0, b"", 0, K[0], 0, b"", u64s(0), b""]),
        request("verify", "the storage tier", [0, 2, 0, 16777216]),
        request("drain", "a slice", [67108864], deadline=1000),
        request("drain", "least", [1]),
        request("drain", "largest", [U64]),
        request(
            "name_put",
            "a conversation goes on",
            [1, "chat-17", 1, "", 40, [b"".join(K)], 0, 0, 0, b""],
            corr=8,
        ),
        request(
            "name_put",
            "a document with its tokens, pinned, durable",
            [2, "manual", 1, "t", 40, [b"".join(K)], 4128, 80, 0, u32s(*range(1, 41))],
            deadline=60000,
        ),
        request(
            "name_put",
            "largest numbers",
            [2, "n" * 127, U32, "s" * 127, U32, [K[0]] * 16, 32, 100, U64, b""],
            corr=U64,
        ),
        request("name_forget", "the name alone", [1, "chat-17", "", 0, 0]),
        request("name_forget", "its blocks too", [2, "n" * 127, "s" * 127, 1, 0]),
        request("name_forget", "what would go", [2, "handbook", "", 1, 1]),
        request("name_load", "in passing", [1, "chat-17", "", U64, 0]),
        request("name_load", "and wait", [2, "manual", "t", 3600000, 1], deadline=600000),
        request("name_tokens", "from the start", [2, "manual", "", 0]),
        request("name_tokens", "largest", [2, "n" * 127, "s" * 127, U32]),
        request("lookup", "all, leaving no trace", [1, "", 40, [b"".join(K)], 768]),
        request("acquire", "all, leaving no trace", [1, "", 40, [b"".join(K)], 768, 0, 0, 0]),
        request("acquire", "every flag", [1, "", 40, [b"".join(K)], 897, 0, 0, 0]),
        request(
            "reserve",
            "two wishes",
            [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0]
            + [retain(0, 16, 80, 600000) + retain(0, 0, 0, 0)],
        ),
        request(
            "store",
            "decoded, with a wish",
            [1, "", 1024, 0, 0, K[0], 16, K[1], 0, retain(16, 0, 50, 0), u64s(64), b""],
        ),
        request("hint", "ended", [1, "", 40, [b"".join(K)], 1, 0]),
        request("hint", "soon, of a sub-tenant", [7, "customer-7", 40, [K[0], b""], 3, 30000]),
        request("hint", "largest numbers", [U32, "s" * 127, U32, [K[0]] * 16, 3, U32], corr=U64),
        request(
            "pool_open",
            "K and V of two layers",
            [0, UUID, 4096]
            + [[[1, b"".join(region(kv, n, n << 30, 1 << 17, 1 << 17) for n, kv in PAIRS)]]],
            corr=30,
        ),
        request(
            "pool_open",
            "two groups, across layers",
            [3, UUID, 512, [[4, region(0, 0, 0, 8192, 4096) * 2], [1, region(7, 5, 64, 64, 1)]]],
        ),
        request(
            "pool_open",
            "largest numbers",
            [7, b"\xff" * 16, U32, [[65536, region(1023, U32, U64, U64, U64)]] * 16],
            corr=U64,
        ),
        request("pool_close", "one", [0]),
        request("pool_close", "largest", [7]),
        request(
            "pages_load",
            "three blocks of one page",
            [1, "", 40, [b"".join(K)], 0, 0, 0, 0, 0, U32, 0, U32, 0, [u32s(7, 8, 300)]],
            corr=31,
            deadline=2000,
        ),
        request(
            "pages_load",
            "wait; after a word, layer by layer; two groups, from a token on",
            [1, "t", 48, [b"".join(K), K[0]], 1, 1, 16, 32, 2, 0, 5, 511, 1000]
            + [[u32s(1, 2, 3, 4), b""]],
        ),
        request(
            "pages_load",
            "largest numbers",
            [U32, "s" * 127, U32, [K[0]] * 16, 641, 63, U32, U32, 7, U32, U64, 511, U64]
            + [[u32s(U32)] * 16],
            corr=U64,
            deadline=600000,
        ),
        request(
            "pages_load",
            "262144 pages",
            [1, "", 1, [K[0]], 0, 0, 0, 0, 0, U32, 0, U32, 0, [b"\x07" * (262144 * 4)]],
        ),
        request(
            "pages_store",
            "two blocks of two pages, after a word",
            [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0, b"", 0, 3, 17, u32s(4, 5, 9, 1), b""],
            corr=32,
        ),
        request(
            "pages_store",
            "at once, with tokens and a wish",
            [1, "t", 1056, 1, 1, K[0], 16, K[1], 8, retain(0, 0, 50, 0), 7, U32, 0]
            + [u32s(U32 - 1), u32s(*range(17, 25))],
        ),
        request(
            "acquire_on",
            "three blocks",
            [1, "", 40, [b"".join(K)], 0, 0, 0, 0, UUID],
            corr=33,
            deadline=500,
        ),
        request(
            "acquire_on",
            "largest numbers",
            [U32, "s" * 127, U32, [K[0]] * 16, 641, 63, U32, U32, b"\xff" * 16],
            corr=U64,
        ),
    ]
    return out


def replies():
    hit = loc(1, 2097152, 4096, 64, 0x1122334455667788)
    out = [
        reply("hello", "version 2", [2, "kvcache-daemon 0.1.0"]),
        reply("hello", "largest", [U32, "n" * 127], corr=U64),
        reply("hello", "no name", [0, ""], corr=0),
        reply("ping", "a day", [86400000]),
        reply("ping", "just started", [0], corr=0),
        reply("ping", "largest", [U64], corr=U64),
        reply("ns_open", "a new namespace", [1, SEED, []], corr=2),
        reply("ns_open", "similar ones", [2, SEED, [[1, 0b1000000000], [U32, 0xFFFF]]]),
        reply("ns_open", "four similar ones", [U32, b"\xff" * 32, [[U32, U32]] * 4]),
        reply(
            "ns_spec",
            "own, two groups",
            [1] + LLAMA + [2, 8, 55000, 410, [[16, 2097152, 0, 0, 0], [64, 1 << 20, 1, 4096, 16]]],
            corr=21,
        ),
        reply(
            "ns_spec",
            "largest",
            [0]
            + ["t" * 127] * 6
            + ["t" * 255, "t" * 127, "t" * 127, "t" * 255, "t" * 127]
            + [U32] * 3
            + [64, 8, U64, U64, [[65536, 1 << 30, 1, U32, 16]] * 16],
            corr=U64,
        ),
        reply("lookup", "two of three blocks, the third was evicted", [32, 32, 0, [[2, 2, 0]]], corr=3),
        reply("lookup", "three groups", [32, 32, 120, [[3, 0, 0], [2, 3, 0], [0, 6, 0b11]]], corr=300),
        reply("lookup", "nothing", [0, 0, 0, [[0, 1, 0]]]),
        reply("lookup", "half of it not worth loading", [512, 1024, 4100, [[32, 5, 0]]]),
        reply("lookup", "16 groups, largest numbers", [U32, U32, U64, [[U32, 255, U32]] * 16], corr=U64),
        reply(
            "acquire",
            "two blocks",
            [
                32,
                32,
                0x0102030405060708,
                bytes(range(16, 32)),
                [[0, hit + loc(1, 2097152, 2101248, 128, 2), 2, 0]],
            ],
            corr=4,
        ),
        reply("acquire", "no hit, no lease", [0, 0, 0, bytes(16), [[0, b"", 1, 0]]]),
        reply(
            "acquire",
            "three groups: full, window, state",
            [32, 48, 9, bytes(range(16, 32)), [[0, hit + hit, 0, 0], [1, hit, 8, 0], [1, hit, 3, 0]]],
        ),
        reply(
            "acquire",
            "16 groups, largest numbers",
            [U32, U32, U64, b"\xff" * 16, [[U32, b"\xff" * 32, 255, U32]] * 16],
            corr=U64,
        ),
        reply(
            "acquire",
            "32768 locations",
            [U32, U32, 1, b"\x01" * 16, [[0, b"\x02" * (32768 * 32), 0, 0]]],
        ),
        reply(
            "acquire",
            "131072 locations",
            [U32, U32, 1, b"\x01" * 16, [[0, b"\x02" * (131072 * 32), 0, 0]]],
        ),
        reply("redeem", "the same lease", [32, 32, 10, bytes(range(16, 32)), [[0, hit, 0, 0]]]),
        reply("release", "one", [1], corr=9),
        reply("release", "none", [0]),
        reply("reserve", "reserved and existing", [77, bytes([0, 21])], corr=5),
        reply("reserve", "nothing reserved", [0, bytes([20, 11, 12])]),
        reply("reserve", "4096 statuses", [U64, b"\x00" * 4096]),
        reply("commit", "both", [bytes([0, 0])], corr=6),
        reply("commit", "gone, tier, bad argument", [bytes([13, 18, 2])]),
        reply("store", "both", [bytes([0, 0])], corr=7),
        reply("store", "every kind", [bytes([0, 21, 20, 11, 12, 13, 18, 2])]),
        reply("drop", "done", []),
        reply("hint", "taken", []),
        reply("cancel", "found", [1]),
        reply("cancel", "answered before", [0]),
        reply("evict", "some", [12, 25165824, 3, 25165824, 8388608, 0]),
        reply("evict", "largest", [U64] * 6),
        reply("verify", "all good", [4096, 8, 16777216, 1, 0, []]),
        reply("trace", "off", [0] * 7),
        reply("trace", "on", [1, 0, 67108864, 4096, 12, 0, 90000]),
        reply("trace", "largest", [1, U32] + [U64] * 5),
        reply("trace_dump", "none", [0, 0, []]),
        reply(
            "trace_dump",
            "two, and more",
            [3, 0, [[1, 512, 0, 1024, 17, u64s(1, 2)], [1, 512, 40, 300, 0, u64s(1)]]],
        ),
        reply("trace_dump", "17, largest", [U64, U64, [[U32, U32, U64, U32, U32, b"\xff" * 64]] * 17]),
        reply(
            "verify",
            "one is corrupt",
            [0, 8, 16777216, 0, 0, [[K[1], 1, 0, 1, 1, 3, 1, 2101248]]],
        ),
        reply(
            "verify",
            "17, largest numbers",
            [U64, U32, U64, U32, U32, [[K[0], U32, 255, 255, 255, U32, U32, U64]] * 17],
        ),
        reply("drain", "going on", [1073741824, 0]),
        reply("drain", "done", [0, 0]),
        reply("drain", "largest", [U64, 255]),
        rows(
            "paths",
            "two, one of them out",
            [
                ["/mnt/nvme0/kvcache.store", 1, "", 1 << 40, 4194304, 1 << 40, 12, 24576, 90, 250]
                + [1200, 3, 4194304, 800, 2100, 2100, 2, 1, 4096, 0, 0],
                ["/mnt/nvme1/kvcache.store", 2, "EIO: Input/output error", 1 << 40]
                + [0] * 15
                + [3, 1],
            ],
        ),
        rows("paths", "16, largest", [["n" * 255, 255, "n" * 127] + [U64] * 18] * 16),
        rows(
            "writes",
            "as it is",
            [[1 << 40, 4194304, 137434759168, 4177920, 4194304, 0, 512]],
        ),
        rows("writes", "no storage tier", []),
        reply("name_put", "all of it", [40, 6291456], corr=8),
        reply("name_put", "largest", [U32, U64]),
        rows(
            "documents",
            "one",
            [
                [2, "manual", "alice", "default", "", "llama-3.1-8b", 1, 40, 40, 3, 6291456]
                + [2097152, 6291456, 90000, 1500, 0, 80, 1, 1, K[2]]
            ],
        ),
        rows(
            "conversations",
            "17, largest, and more",
            [[1] + ["n" * 127] * 5 + [U32] * 4 + [U64] * 6 + [U32, 1, 1, b"\xff" * 32]] * 17,
            b"\xff" * 320,
        ),
        reply("name_forget", "the name alone", [0] * 11),
        reply(
            "name_forget",
            "blocks that were its own",
            [3, 6291456, 11, 6291456, 6291456, 2097152, 5, 1, 0, 3, 2],
        ),
        reply("name_forget", "largest", [U64] * 11),
        reply("name_load", "in memory", [6291456]),
        reply("name_load", "largest", [U64]),
        reply("name_tokens", "all of them", [40, u32s(*range(1, 41))]),
        reply("name_tokens", "none", [0, b""]),
        error("name_load", "no such name", 24, "no conversation of this name"),
        reply("pin", "two blocks", [3, 4194304]),
        reply("pin", "largest", [U64, U64]),
        reply("unpin", "done", []),
        rows(
            "pins",
            "one, and more",
            [[3, "alice", "acme", "eu", 1, 32, 4194304, 1, 0, K[1]]],
            u64s(3),
        ),
        rows(
            "pins",
            "17, largest",
            [[U64] + ["n" * 127] * 3 + [U32, U32, U64, 1, U64, b"\xff" * 32]] * 17,
        ),
        reply("quota_set", "done", []),
        rows(
            "quotas",
            "two",
            [
                [1, "acme", "", 0, 1 << 32, U64, 1 << 30, 0, 12345, 0, 4096, 0],
                [3, "", "", 7, U64, 1 << 40, 0, 0, 0, 4096, 0, 8192],
            ],
        ),
        rows("quotas", "17, largest", [[3] + ["n" * 127] * 2 + [U32] + [U64] * 8] * 17),
        reply("session_end", "done", []),
        rows(
            "sessions",
            "one",
            [[12, "worker", "alice", "acme", 1001, 4711, 0, 3, 25165824, 60000, 1, 4096, 5]],
        ),
        rows(
            "sessions",
            "17, largest, and more",
            [[U32] + ["n" * 127] * 3 + [U32, U32, 1] + [U32, U64, U64] * 2] * 17,
            u64s(U64),
        ),
        reply(
            "policy",
            "as it is",
            ["density", "expected hits", "/etc/kvcache/daemon.yaml:119", 60, 1, 0, 0, 40, 1, 1, 0]
            + [1, 1, 1, 1, 1]
            + [1 << 40, 1 << 30, 1 << 39, 3 << 30, 150, 4, 3, 2, 1, 12, 5]
            + [[[35, 1000], [60, 12]]],
        ),
        reply(
            "policy",
            "without rights",
            ["lru", "", "default", 40, 0, 1, 1, 40, 1, 0, 1] + [0] * 16 + [[]],
        ),
        reply(
            "policy",
            "judges, heeds no hints",
            ["other", "", "default", 40, 1, 1, 1, 40, 1, 1, 1, 0, 0, 1] + [0] * 13 + [[]],
        ),
        reply(
            "policy",
            "largest",
            ["n" * 127, "x" * 512, "c" * 255, U32, 1, 1, U64, U32, 1, 1, U64, 1, 1, 1, 1, 1]
            + [U64] * 11
            + [[[i, U64] for i in range(101)]],
        ),
        rows(
            "devices",
            "an emulated one and one that is out",
            [
                ["emu:0", 1 << 21, 1 << 30, 3, "emulated", 1, "", 1, 1 << 26, 0, 4096, 12, 3, 0, 20]
                + [41943040, 0, 0, 5 << 30, 6 << 30, UUID],
                ["cuda:0", 0, 0, 0, "", 0, "no driver", 0] + [0] * 12 + [bytes(16)],
            ],
        ),
        rows(
            "devices",
            "16, largest",
            [
                ["n" * 127, U64, U64, U64, "n" * 127, 1, "w" * 255, 1]
                + [U64] * 12
                + [b"\xff" * 16]
            ]
            * 16,
        ),
        rows(
            "rates",
            "of an emulated one",
            [
                ["emu:0", 4096, 1 << 30, 0, 2 << 30, 1 << 30, 0, 1, 1],
                ["emu:0", 65536, 3 << 30, 4 << 30, 0, 0, 0, 2, 0],
            ],
        ),
        rows("rates", "largest", [["n" * 127, U32] + [U64] * 5 + [255, 255]]),
        reply("pool_open", "done", [], corr=30),
        reply("pool_close", "done", []),
        reply("pages_load", "two of three", [48, 48, [[0, bytes([0, 0, 18]), 0, 0]]], corr=31),
        reply("pages_load", "nothing", [0, 0, [[0, b"", 1, 0]]]),
        reply("pages_load", "largest", [U32, U32, [[U32, b"\xff" * 4096, 255, U32]] * 16], corr=U64),
        reply("pages_store", "one is there already", [bytes([0, 21])], corr=32),
        reply(
            "acquire_on",
            "one on the device, one in host memory",
            [
                32,
                32,
                9,
                bytes(range(16, 32)),
                [[0, loc(0x01000002, 2097152, 4096, 64, 2) + hit, 0, 0]],
            ],
            corr=33,
        ),
        error("pool_open", "a pool that does not fit", 2, "a region ends beyond its memory"),
        error("lookup", "no namespace", 6, "ns 7 is not open in this session", corr=3),
        error("commit", "deadline passed", 8, "", corr=6),
        error("hello", "no version in common", 4, "this daemon speaks versions 2 to 2"),
        error("ns_open", "longest detail", 7, "x" * 512, corr=U64),
        error("stats", "a status of a later release", 65535, "?"),
        listing("stats", "none", 0, []),
        listing("stats", "two", 0, [["lookups", 0, 12031], ["host_used_bytes", 1, U64]], corr=13),
        listing("stats", "16 items: array 16", 0, [["n" * 63, 1, i] for i in range(16)]),
        rows("namespaces", "none", []),
        rows(
            "namespaces",
            "one, and more",
            [
                [1, "alice", "default", "", "llama-3.1-8b", "bf16", 1, 1, 16, 2097152, 3, 6291456]
                + [6291456, 4096, 0, 2097152, 0, 4096, 8192]
            ],
            u64s(1),
        ),
        rows(
            "namespaces",
            "17, largest, and more",
            [[U32] + ["n" * 127] * 5 + [U32] * 4 + [U64] * 9] * 17,
            b"\xff" * 320,
            corr=U64,
        ),
        rows("blocks", "none", []),
        rows(
            "blocks",
            "one present and its parent, being stored",
            [
                [K[1], K[0], 1, 0, 1, 2, 0, 0, 16, 1, 1, 1, 0, 2097152, 1500, 3, 1, 2101248],
                [K[0], bytes(32), 1, 0, 0, 1, 5, 0, 16, 2] + [0] * 8,
            ],
            u64s(0x100000007),
        ),
        rows("blocks", "absent", [[K[0], bytes(32), 1, 0, 0, 0, 2] + [0] * 11]),
        rows(
            "blocks",
            "17, largest",
            [[b"\xff" * 32] * 2 + [U32] * 3 + [255, 255] + [U32] * 6 + [U64, U64, 255, U32, U64]] * 17,
            u64s(U64),
        ),
    ]
    return out


def attaches():
    route = bytes(range(1, 17))
    return [
        attach("hello", "a writer", [2, 2, "vllm-worker-0", 268435456, 0]),
        attach("hello", "a reader without a name", [2, 2, "", 0, 0]),
        attach("hello", "largest", [0, U32, "n" * 127, U64, 63]),
        attach(
            "welcome",
            "with staging",
            [
                0,
                "",
                2,
                12,
                route,
                "ipc:///run/kvcache/control.sock",
                268435456,
                "alice",
                "default",
                0,
                0,
            ],
        ),
        attach(
            "welcome",
            "denied",
            [
                5,
                "uid 1001 is in no principal; add it to principals[].uids",
                0,
                0,
                bytes(16),
                "",
                0,
                "",
                "",
                0,
                0,
            ],
        ),
        attach(
            "welcome",
            "largest",
            [0, "d" * 512, U32, U32, b"\xff" * 16, "e" * 255, U64, "p" * 127, "t" * 127, 1, 1],
        ),
        attach("map", "a chunk", [1]),
        attach("map", "largest", [U32]),
        attach("chunk", "a chunk", [0, "", 1, 268435456]),
        attach("chunk", "refused", [5, "chunk 9 belongs to another principal", 9, 0]),
        attach("chunk", "largest", [65535, "d" * 512, U32, U64]),
        attach("retired", "a chunk", [1]),
        attach("retired", "largest", [U32]),
        attach(
            "dropped",
            "bad message",
            [1, "not a request: an array that begins with operation, corr" " and deadline_ms"],
        ),
        attach("dropped", "largest", [65535, "d" * 512]),
        attach("words", "all of them", [512]),
        attach("words", "none in particular", [0]),
        attach("words_are", "a page", [0, "", 4096]),
        attach("words_are", "refused", [2, "the daemon has no devices", 0]),
        attach("words_are", "largest", [65535, "d" * 512, U64]),
        attach("mem", "a descriptor", [0, UUID, 1, 1 << 34, 0, b""]),
        attach("mem", "IPC", [1, UUID, 2, 1 << 30, 4096, bytes(range(64))]),
        attach("mem", "emulated, largest", [1023, b"\xff" * 16, 3, U64, 0, b""]),
        attach("mem", "IPC, largest", [1023, b"\xff" * 16, 2, 1, U64 - 1, b"\xff" * 64]),
        attach("mem_is", "imported", [0, "", 0]),
        attach("mem_is", "refused, largest", [65535, "d" * 512, U32]),
        attach("mem_drop", "one", [0]),
        attach("mem_drop", "largest", [1023]),
        attach("map_on", "a chunk", [0x01000002]),
        attach("map_on", "largest", [U32]),
        attach("chunk_on", "a descriptor", [0, "", 0x01000002, UUID, 1, 1 << 26, 0, b""]),
        attach("chunk_on", "IPC", [0, "", 0x01000002, UUID, 2, 1 << 26, 0, bytes(range(64))]),
        attach("chunk_on", "gone", [13, "no such chunk", 0x01000009, bytes(16), 0, 0, 0, b""]),
        attach(
            "chunk_on",
            "largest",
            [0, "d" * 512, U32, b"\xff" * 16, 2, U64, U64, b"\xff" * 64],
        ),
        attach("unmapped", "a chunk", [0x01000002]),
        attach("unmapped", "largest", [U32]),
    ]


def example():
    """The exchange at the end of PROTOCOL.md."""
    two = K[0] + K[1]
    ns = LLAMA + [1, 0, 0, 0, [[16, 2097152, 0, 0, 0]]]
    ticket = bytes(range(0xA0, 0xB0))
    return [
        attach("hello", "1 worker to daemon", [2, 2, "example", 4194304, 0]),
        attach(
            "welcome",
            "2 daemon to worker",
            [
                0,
                "",
                2,
                12,
                bytes(range(1, 17)),
                "ipc:///run/kvcache/control.sock",
                4194304,
                "alice",
                "default",
                0,
                0,
            ],
        ),
        request("hello", "3 worker to daemon", [2, 2], corr=1),
        reply("hello", "4 daemon to worker", [2, "kvcache-daemon 0.1.0"], corr=1),
        request("ns_open", "5 worker to daemon", ns, corr=2),
        reply("ns_open", "6 daemon to worker", [1, SEED, []], corr=2),
        request("lookup", "7 worker to daemon", [1, "", 32, [two], 0], corr=3, deadline=100),
        reply("lookup", "8 daemon to worker", [0, 0, 0, [[0, 1, 0]]], corr=3),
        request(
            "store",
            "9 worker to daemon",
            [1, "", 0, 0, 0, b"", 0, two, 0, b"", u64s(0, 2097152), b""],
            corr=4,
        ),
        reply("store", "10 daemon to worker", [bytes([0, 0])], corr=4),
        request("acquire", "11 worker to daemon", [1, "", 32, [two], 0, 0, 0, 0], corr=5),
        reply(
            "acquire",
            "12 daemon to worker",
            [
                32,
                32,
                1,
                ticket,
                [[0, loc(1, 2097152, 4096, 64, 2) + loc(1, 2097152, 2101248, 128, 2), 0, 0]],
            ],
            corr=5,
        ),
        attach("map", "13 worker to daemon", [1]),
        attach("chunk", "14 daemon to worker", [0, "", 1, 268435456]),
        request("release", "15 worker to daemon", [u64s(1)], corr=6),
        reply("release", "16 daemon to worker", [1], corr=6),
    ]


def keys():
    other = hashlib.sha256(b"another seed").digest()
    return [
        key_case("the example of PROTOCOL.md", SEED, list(range(1, 41)), 16),
        key_case("one token", SEED, [0], 1),
        key_case("one token a block", SEED, [7, 7, 7], 1),
        key_case("largest token ids", SEED, [U32, 0, U32, 2**31], 2),
        key_case("exactly one block", SEED, list(range(16)), 16),
        key_case("partly filled only block", SEED, list(range(15)), 16),
        key_case("another parent", other, list(range(1, 41)), 16),
        key_case("extra", SEED, list(range(1, 41)), 16, b"lora=7"),
        key_case("extra with zeros", SEED, [1, 2], 2, bytes(64)),
        key_case("zero parent", bytes(32), [1, 2, 3], 2),
        key_case(
            "1024 tokens a block", SEED, [(i * 2654435761) % 2**32 for i in range(1030)], 1024
        ),
        key_case("no tokens, no keys", SEED, [], 16),
    ]


HEAD = """# SPDX-License-Identifier: Apache-2.0
# Made by make_vectors.py; README.md describes the format.

"""
FILES = {
    "requests.txt": requests,
    "replies.txt": replies,
    "attach.txt": attaches,
    "example.txt": example,
    "rejects.txt": lambda: reject_heads()
    + reject_requests()
    + reject_replies()
    + reject_attaches(),
    "keys.txt": keys,
}


def main():
    stale = 0
    for name, make in FILES.items():
        text = HEAD + "\n".join(make())
        path = os.path.join(HERE, name)
        if "--check" in sys.argv[1:]:
            with open(path, encoding="utf-8") as f:
                same = f.read() == text
            print("%s: %s" % (name, "up to date" if same else "not what make_vectors.py makes"))
            stale += not same
        else:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
