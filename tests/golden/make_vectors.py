#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden vectors of this directory, or with --check says whether they are up to date.

A second implementation of PROTOCOL.md, on the standard library alone and without a look at the C
code: what both agree on is the protocol. Run it after a change of the protocol and read the diff.
"""

import hashlib
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
U32, U64 = 2**32 - 1, 2**64 - 1


# ---- msgpack, shortest form ----

def pack_int(v):
    if v < 0:
        return b"\xd3" + struct.pack(">q", v)
    if v <= 0x7F:
        return bytes([v])
    for first, form, top in ((0xCC, ">B", 0xFF), (0xCD, ">H", 0xFFFF), (0xCE, ">I", U32)):
        if v <= top:
            return bytes([first]) + struct.pack(form, v)
    return b"\xcf" + struct.pack(">Q", v)


def pack_text(s):
    raw = s if isinstance(s, bytes) else s.encode()
    n = len(raw)
    if n <= 31:
        return bytes([0xA0 | n]) + raw
    if n <= 0xFF:
        return b"\xd9" + bytes([n]) + raw
    return b"\xda" + struct.pack(">H", n) + raw


def pack_bin(raw):
    n = len(raw)
    if n <= 0xFF:
        return b"\xc4" + bytes([n]) + raw
    if n <= 0xFFFF:
        return b"\xc5" + struct.pack(">H", n) + raw
    return b"\xc6" + struct.pack(">I", n) + raw


def pack_array(n):
    if n <= 15:
        return bytes([0x90 | n])
    return b"\xdc" + struct.pack(">H", n) if n <= 0xFFFF else b"\xdd" + struct.pack(">I", n)


# ---- the messages: "name:type", type i(nteger), t(ext), b(inary), array of arrays, array of b ----

def fields(text):
    return [tuple(f.split(":")) if ":" in f else (f, "i") for f in text.split()]


GROUP = fields("block_tokens block_bytes rule window flags")
SEQ = fields("ns sub:t tokens") + [("keys", "*b")]
RESERVE = fields("ns sub:t flags group shard parent:b first_token keys:b last_tokens")

REQUESTS = {
    "hello": (1, fields("ver_min ver_max")),
    "ping": (2, []),
    "ns_open": (3, fields("model:t revision:t dtype:t quant:t layout:t position:t position_params:t"
                          " attention:t lora:t extra:t sub:t layers kv_heads head_size shards flags"
                          " prefill_ns_per_token prefill_ns_per_token_pair")
                + [("groups", GROUP)]),
    "lookup": (4, SEQ + fields("flags")),
    "acquire": (5, SEQ + fields("flags shard from_tokens wait_tokens")),
    "redeem": (6, fields("ticket:b shard")),
    "release": (7, fields("leases:b")),
    "reserve": (8, RESERVE),
    "commit": (9, fields("reservation first offsets:b tokens:b")),
    "store": (10, RESERVE + fields("offsets:b tokens:b")),
    "drop": (11, fields("reservation")),
    "cancel": (12, fields("target")),
    "stats": (13, []),
    "ns_list": (14, fields("after")),
    "explain": (15, fields("ns keys:b")),
    "evict": (16, fields("flags ns key:b older_than_ms bytes")),
}
ACQUIRE_REPLY = fields("hit_tokens lease ticket:b") + [("groups", fields("first locs:b reason detail"))]
REPLIES = {
    "hello": fields("version server:t"),
    "ping": fields("uptime_ms"),
    "ns_open": fields("ns seed:b") + [("near", fields("ns fields"))],
    "lookup": fields("hit_tokens") + [("groups", fields("blocks reason detail"))],
    "acquire": ACQUIRE_REPLY,
    "redeem": ACQUIRE_REPLY,
    "release": fields("released"),
    "reserve": fields("reservation statuses:b"),
    "commit": fields("statuses:b"),
    "store": fields("statuses:b"),
    "drop": [],
    "cancel": fields("found"),
    "evict": fields("blocks bytes kept_blocks"),
}
ITEMS = {
    "stats": fields("name:t kind value"),
    "ns_list": fields("ns principal:t tenant:t sub:t model:t dtype:t shards ngroups block_tokens0"
                      " block_bytes0 blocks bytes"),
    "explain": fields("key ns group state reason detail tokens shards shards_present leases children"
                      " bytes age_ms chunk off"),
}
ATTACH = {
    "hello": (1, fields("ver_min ver_max client:t staging_bytes shard")),
    "welcome": (2, fields("status detail:t version session route:b endpoint:t staging_bytes"
                          " principal:t tenant:t admin gateway")),
    "map": (3, fields("chunk")),
    "chunk": (4, fields("status detail:t chunk bytes")),
    "retired": (5, fields("chunk")),
    "dropped": (6, fields("status detail:t")),
}


def pack_value(kind, v):
    if kind == "i":
        return pack_int(v)
    if kind == "t":
        return pack_text(v)
    if kind == "b":
        return pack_bin(v)
    if kind == "*b":
        return pack_array(len(v)) + b"".join(pack_bin(x) for x in v)
    out = pack_array(len(v))
    for item in v:
        out += pack_array(len(kind)) + b"".join(pack_value(k, x) for (_, k), x in zip(kind, item))
    return out


def show(kind, v):
    if kind == "i":
        return str(v)
    if kind == "t":
        out = v.replace("\\", "\\\\").replace('"', '\\"')
        return '"%s"' % "".join("\\x%02x" % ord(c) if ord(c) < 32 or ord(c) == 127 else c for c in out)
    return hex_text(v) or "-"


def hex_text(raw):
    """Hex; more than 64 equal bytes in a row as XX*N."""
    out, i = [], 0
    while i < len(raw):
        j = i
        while j < len(raw) and raw[j] == raw[i]:
            j += 1
        if j - i > 64:
            out.append(" %02x*%d " % (raw[i], j - i))
        else:
            out.append(raw[i:j].hex())
        i = j
    return "".join(out).replace("  ", " ").strip()


def show_fields(spec, values):
    lines = []
    for (name, kind), v in zip(spec, values):
        if kind == "*b":
            lines.append("%s = %d items" % (name, len(v)))
            lines += ["%s[%d] = %s" % (name, i, show("b", x)) for i, x in enumerate(v)]
        elif isinstance(kind, list):
            lines.append("%s = %d items" % (name, len(v)))
            for i, item in enumerate(v):
                lines += ["%s[%d].%s = %s" % (name, i, n, show(k, x)) for (n, k), x in zip(kind, item)]
        else:
            lines.append("%s = %s" % (name, show(kind, v)))
    return lines


def wrap(hexes, width=96):
    lines = []
    for word in hexes.split(" "):
        while "*" not in word and len(word) > width:
            lines.append(word[:width])
            word = word[width:]
        lines.append(word)
    return "\n      ".join(lines)


def section(message, case, lines, raw):
    return "[%s] %s\n%shex = %s\n" % (message, case, "".join(x + "\n" for x in lines),
                                      wrap(hex_text(raw)))


def body(spec, values):
    assert len(spec) == len(values), (spec, values)
    return b"".join(pack_value(k, v) for (_, k), v in zip(spec, values))


def request(name, case, values, corr=1, deadline=0):
    op, spec = REQUESTS[name]
    raw = pack_array(3 + len(spec)) + pack_int(op) + pack_int(corr) + pack_int(deadline)
    lines = ["op = %d" % op, "corr = %d" % corr, "deadline_ms = %d" % deadline]
    return section(name, case, lines + show_fields(spec, values), raw + body(spec, values))


def reply_head(name, corr, status, nfields):
    op = REQUESTS[name][0]
    raw = pack_array(3 + nfields) + pack_int(op | 0x80) + pack_int(corr) + pack_int(status)
    return raw, ["op = %d" % op, "corr = %d" % corr, "status = %d" % status]


def reply(name, case, values, corr=1):
    raw, lines = reply_head(name, corr, 0, len(REPLIES[name]))
    return section(name + "_reply", case, lines + show_fields(REPLIES[name], values),
                   raw + body(REPLIES[name], values))


def error(name, case, status, detail, corr=1):
    raw, lines = reply_head(name, corr, status, 1)
    return section("error", case, lines + show_fields(fields("detail:t"), [detail]),
                   raw + pack_text(detail))


def listing(name, case, more, items, corr=1):
    raw, lines = reply_head(name, corr, 0, 2)
    spec = [("more", "i"), ("items", ITEMS[name])]
    return section(name + "_reply", case, lines + show_fields(spec, [more, items]),
                   raw + body(spec, [more, items]))


def attach(name, case, values):
    code, spec = ATTACH[name]
    raw = pack_array(1 + len(spec) + (name == "hello")) + pack_int(code)
    raw += pack_text("kvca") if name == "hello" else b""
    return section("att_" + name, case, show_fields(spec, values), raw + body(spec, values))


# ---- keys ----

def block_key(parent, tokens, extra):
    def part(tag, raw):
        return bytes([tag]) + struct.pack("<Q", len(raw)) + raw
    return hashlib.sha256(part(1, parent) + part(2, struct.pack("<%dI" % len(tokens), *tokens))
                          + part(3, extra)).digest()


def chain(parent, tokens, block_tokens, extra=b""):
    keys = []
    for at in range(0, len(tokens), block_tokens):
        parent = block_key(parent, tokens[at:at + block_tokens], extra)
        keys.append(parent)
    return keys


def key_case(case, parent, tokens, block_tokens, extra=b""):
    lines = ["parent = " + parent.hex(), "block_tokens = %d" % block_tokens,
             "extra = " + (extra.hex() or "-"), "tokens = %d items" % len(tokens)]
    for at in range(0, len(tokens), 16):
        lines.append("      " + " ".join(str(t) for t in tokens[at:at + 16]))
    lines += ["key[%d] = %s" % (i, k.hex())
              for i, k in enumerate(chain(parent, tokens, block_tokens, extra))]
    return "[keys] %s\n%s\n" % (case, "\n".join(lines))


SEED = bytes(range(32))
K = chain(SEED, list(range(1, 41)), 16)  # two full blocks and one of 8 tokens


def u64s(*v):
    return struct.pack("<%dQ" % len(v), *v)


def u32s(*v):
    return struct.pack("<%dI" % len(v), *v)


def loc(chunk, nbytes, off, hdr, gen):
    return struct.pack("<IIQQQ", chunk, nbytes, off, hdr, gen)


LLAMA = ["llama-3.1-8b", "8c22764a", "bf16", "", "layers,kv,heads,tokens,dim", "rope",
         "theta=500000", "causal", "", "", "", 32, 8, 128]


def requests():
    full = [16, 2097152, 0, 0, 0]
    out = [
        request("hello", "versions of this release", [1, 1]),
        request("hello", "largest range", [0, U32], corr=U64, deadline=600000),
        request("ping", "smallest", [], corr=0),
    ]
    for n in (127, 128, 255, 256, 65535, 65536, U32, U32 + 1, U64):
        out.append(request("ping", "corr %d" % n, [], corr=n, deadline=min(n, 600000)))
    out += [
        request("ns_open", "one group", LLAMA + [1, 0, 0, 0, [full]], corr=2),
        request("ns_open", "three groups, two shards",
                LLAMA + [2, 8, 55000, 410, [full, [64, 1 << 20, 1, 4096, 16], [1024, 1, 2, 0, 0]]]),
        request("ns_open", "least", ["m"] + [""] * 10 + [0, 0, 0, 1, 0, 0, 0, [[1, 1, 0, 0, 0]]]),
        request("ns_open", "most", ["m" * 127, "r" * 127, "d" * 127, "q" * 127, "l" * 127,
                                    "p" * 127, "P" * 255, "a" * 127, "L" * 127, "e" * 255, "s" * 127,
                                    U32, U32, U32, 64, 8, U64, U64,
                                    [[1024, 1 << 30, 1, U32, 16]] * 16], corr=U64, deadline=600000),
        request("ns_open", "names outside ASCII", ["modèle", "版本", "\U0001f999"] + [""] * 4
                + ["causal", "", 'quote " backslash \\ tab \t', "", 1, 1, 1, 1, 0, 0, 0, [full]]),
        request("lookup", "one group, three blocks", [1, "", 40, [b"".join(K)], 0], corr=3,
                deadline=100),
        request("lookup", "touch, sub-tenant, three groups",
                [7, "customer-7", 40, [b"".join(K), K[0], b""], 2], corr=300),
        request("lookup", "no keys", [0, "", 0, [b""], 0]),
        request("lookup", "16 groups", [U32, "s" * 127, U32, [k for k in K[:2]] * 8, 2]),
        request("lookup", "8 keys: bin 16", [1, "", 128, [b"\xab" * 256], 0]),
        request("lookup", "32768 keys: bin 32", [1, "", U32, [b"\xcd" * (32768 * 32)], 0]),
        request("acquire", "wait for the whole prefix", [1, "", 40, [b"".join(K)], 1, 0, 0, 0],
                corr=4, deadline=2000),
        request("acquire", "no wait, from a token on", [1, "", 40, [b"".join(K)], 0, 63, 16, 32]),
        request("acquire", "largest numbers", [U32, "", U32, [K[0]] * 16, 1, 63, U32, U32],
                corr=U64, deadline=600000),
        request("redeem", "a ticket", [bytes(range(16, 32)), 1]),
        request("redeem", "zero ticket", [bytes(16), 0]),
        request("release", "one lease", [u64s(0x0102030405060708)], corr=9),
        request("release", "none", [b""]),
        request("release", "1024 leases", [b"\x11" * 8192]),
        request("reserve", "first two blocks", [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0], corr=5),
        request("reserve", "partly filled block after a parent",
                [1, "", 0, 0, 0, K[1], 32, K[2], 8]),
        request("reserve", "largest numbers",
                [U32, "s" * 127, 0, 15, 63, K[0], U32, b"\xee" * (4096 * 32), 1024], corr=U64),
        request("commit", "two blocks, with tokens",
                [77, 0, u64s(0, 2097152), u32s(*range(1, 33))], corr=6),
        request("commit", "one skipped, no tokens", [77, 0, u64s(U64, 64), b""]),
        request("commit", "last of 4096", [U64, 4095, u64s(0), b""]),
        request("commit", "4096 offsets", [1, 0, b"\x00" * 32768, b"\x07" * 65536]),
        request("store", "two blocks", [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0, u64s(0, 2097152), b""],
                corr=7, deadline=1000),
        request("store", "partly filled, tokens, sub-tenant",
                [1, "customer-7", 0, 1, 1, K[1], 32, K[2], 8, u64s(64), u32s(*range(33, 41))]),
        request("drop", "a reservation", [77]),
        request("drop", "largest", [U64]),
        request("cancel", "a request", [4]),
        request("cancel", "largest", [U64]),
        request("stats", "as it is", []),
        request("ns_list", "from the start", [0]),
        request("ns_list", "after the last", [U32]),
        request("explain", "one key anywhere", [0, K[0]]),
        request("explain", "three keys of a namespace", [7, b"".join(K)]),
        request("explain", "256 keys", [U32, b"\x55" * 8192]),
        request("evict", "a preview of a namespace", [4, 7, b"", 0, 0]),
        request("evict", "a block and its descendants", [0, 0, K[0], 0, 0]),
        request("evict", "largest numbers", [4, U32, K[0], U64, U64]),
    ]
    return out


def replies():
    hit = loc(1, 2097152, 4096, 64, 0x1122334455667788)
    out = [
        reply("hello", "version 1", [1, "kvcache-daemon 0.1.0"]),
        reply("hello", "largest", [U32, "n" * 127], corr=U64),
        reply("hello", "no name", [0, ""], corr=0),
        reply("ping", "a day", [86400000]),
        reply("ping", "just started", [0], corr=0),
        reply("ping", "largest", [U64], corr=U64),
        reply("ns_open", "a new namespace", [1, SEED, []], corr=2),
        reply("ns_open", "near ones", [2, SEED, [[1, 0b1000000000], [U32, 0xFFFF]]]),
        reply("ns_open", "four near ones", [U32, b"\xff" * 32, [[U32, U32]] * 4]),
        reply("lookup", "two of three blocks, the third was evicted", [32, [[2, 2, 0]]], corr=3),
        reply("lookup", "three groups", [32, [[3, 0, 0], [2, 3, 0], [0, 6, 0b11]]], corr=300),
        reply("lookup", "nothing", [0, [[0, 1, 0]]]),
        reply("lookup", "16 groups, largest numbers", [U32, [[U32, 255, U32]] * 16], corr=U64),
        reply("acquire", "two blocks", [32, 0x0102030405060708, bytes(range(16, 32)),
                                        [[0, hit + loc(1, 2097152, 2101248, 128, 2), 2, 0]]], corr=4),
        reply("acquire", "no hit, no lease", [0, 0, bytes(16), [[0, b"", 1, 0]]]),
        reply("acquire", "three groups: full, window, state",
              [32, 9, bytes(range(16, 32)), [[0, hit + hit, 0, 0], [1, hit, 8, 0], [1, hit, 3, 0]]]),
        reply("acquire", "16 groups, largest numbers",
              [U32, U64, b"\xff" * 16, [[U32, b"\xff" * 32, 255, U32]] * 16], corr=U64),
        reply("acquire", "32768 locations", [U32, 1, b"\x01" * 16, [[0, b"\x02" * (32768 * 32), 0, 0]]]),
        reply("redeem", "the same lease", [32, 10, bytes(range(16, 32)), [[0, hit, 0, 0]]]),
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
        reply("cancel", "found", [1]),
        reply("cancel", "answered before", [0]),
        reply("evict", "some", [12, 25165824, 3]),
        reply("evict", "largest", [U64, U64, U64]),
        error("lookup", "no namespace", 6, "ns 7 is not open in this session", corr=3),
        error("commit", "deadline passed", 8, "", corr=6),
        error("hello", "no version in common", 4, "this daemon speaks versions 1 to 1"),
        error("ns_open", "longest detail", 7, "x" * 512, corr=U64),
        error("stats", "a status of a later release", 65535, "?"),
        listing("stats", "none", 0, []),
        listing("stats", "two", 0, [["lookups", 0, 12031], ["host_used_bytes", 1, U64]], corr=13),
        listing("stats", "16 items: array 16", 0, [["n" * 63, 1, i] for i in range(16)]),
        listing("ns_list", "one, and more", 1, [[1, "alice", "default", "", "llama-3.1-8b", "bf16", 1, 1,
                                                 16, 2097152, 3, 6291456]]),
        listing("ns_list", "largest", 0, [[U32] + ["n" * 127] * 5 + [U32, U32, U32, U32, U64, U64]]),
        listing("explain", "present and absent", 0,
                [[0, 1, 0, 2, 0, 0, 16, 1, 1, 0, 1, 2097152, 1500, 1, 4096],
                 [1, 1, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]),
        listing("explain", "largest", 1, [[255, U32, U32, 255, 255] + [U32] * 6 + [U64, U64, U32, U64]]),
    ]
    return out


def attaches():
    route = bytes(range(1, 17))
    return [
        attach("hello", "a writer", [1, 1, "vllm-worker-0", 268435456, 0]),
        attach("hello", "a reader without a name", [1, 1, "", 0, 0]),
        attach("hello", "largest", [0, U32, "n" * 127, U64, 63]),
        attach("welcome", "with staging", [0, "", 1, 12, route, "ipc:///run/kvcache/control.sock",
                                           268435456, "alice", "default", 0, 0]),
        attach("welcome", "denied", [5, "uid 1001 is in no principal; add it to principals[].uids", 0, 0,
                                     bytes(16), "", 0, "", "", 0, 0]),
        attach("welcome", "largest", [0, "d" * 512, U32, U32, b"\xff" * 16, "e" * 255, U64,
                                      "p" * 127, "t" * 127, 1, 1]),
        attach("map", "a chunk", [1]),
        attach("map", "largest", [U32]),
        attach("chunk", "a chunk", [0, "", 1, 268435456]),
        attach("chunk", "refused", [5, "chunk 9 belongs to another principal", 9, 0]),
        attach("chunk", "largest", [65535, "d" * 512, U32, U64]),
        attach("retired", "a chunk", [1]),
        attach("retired", "largest", [U32]),
        attach("dropped", "bad message", [1, "not a request: an array that begins with operation, corr"
                                             " and deadline_ms"]),
        attach("dropped", "largest", [65535, "d" * 512]),
    ]


def example():
    """The exchange at the end of PROTOCOL.md."""
    two = K[0] + K[1]
    ns = LLAMA + [1, 0, 0, 0, [[16, 2097152, 0, 0, 0]]]
    ticket = bytes(range(0xA0, 0xB0))
    return [
        attach("hello", "1 worker to daemon", [1, 1, "example", 4194304, 0]),
        attach("welcome", "2 daemon to worker", [0, "", 1, 12, bytes(range(1, 17)),
                                                 "ipc:///run/kvcache/control.sock", 4194304, "alice",
                                                 "default", 0, 0]),
        request("hello", "3 worker to daemon", [1, 1], corr=1),
        reply("hello", "4 daemon to worker", [1, "kvcache-daemon 0.1.0"], corr=1),
        request("ns_open", "5 worker to daemon", ns, corr=2),
        reply("ns_open", "6 daemon to worker", [1, SEED, []], corr=2),
        request("lookup", "7 worker to daemon", [1, "", 32, [two], 0], corr=3, deadline=100),
        reply("lookup", "8 daemon to worker", [0, [[0, 1, 0]]], corr=3),
        request("store", "9 worker to daemon", [1, "", 0, 0, 0, b"", 0, two, 0, u64s(0, 2097152), b""],
                corr=4),
        reply("store", "10 daemon to worker", [bytes([0, 0])], corr=4),
        request("acquire", "11 worker to daemon", [1, "", 32, [two], 0, 0, 0, 0], corr=5),
        reply("acquire", "12 daemon to worker",
              [32, 1, ticket, [[0, loc(1, 2097152, 4096, 64, 2) + loc(1, 2097152, 2101248, 128, 2),
                                0, 0]]], corr=5),
        attach("map", "13 worker to daemon", [1]),
        attach("chunk", "14 daemon to worker", [0, "", 1, 268435456]),
        request("release", "15 worker to daemon", [u64s(1)], corr=6),
        reply("release", "16 daemon to worker", [1], corr=6),
    ]


# ---- what must be refused ----

def reject(message, case, err, detail, raw):
    lines = ["error = " + err] + (["detail = " + detail] if detail else [])
    return section(message, case, lines, raw)


ARG, MSG = "BAD_ARGUMENT", "BAD_MESSAGE"
SHORT = "the message ends too early"
MANY = "an array announces more items than there are bytes"
NO_REQUEST = "not a request: an array that begins with operation, corr and deadline_ms"
NO_REPLY = "not a reply: an array that begins with operation | 128, corr and status"


def raw_request(name, values, corr=1, deadline=0):
    op, spec = REQUESTS[name]
    return (pack_array(3 + len(spec)) + pack_int(op) + pack_int(corr) + pack_int(deadline)
            + body(spec, values))


def raw_reply(name, values):
    return reply_head(name, 1, 0, len(REPLIES[name]))[0] + body(REPLIES[name], values)


def reject_heads():
    out = []
    for case, detail, raw in (
            ("no bytes", SHORT, b""),
            ("a map", NO_REQUEST, b"\x80"),
            ("an integer", NO_REQUEST, b"\x01"),
            ("the byte that msgpack never uses", NO_REQUEST, b"\xc1"),
            ("an empty array", NO_REQUEST, b"\x90"),
            ("two items", NO_REQUEST, b"\x92\x02\x01"),
            ("huge array 32", MANY, bytes.fromhex("dd0fffffff")),
            ("largest array 32", MANY, bytes.fromhex("ddffffffff020100")),
            ("huge array 16", MANY, bytes.fromhex("dcffff020100")),
            ("array 32 cut off", SHORT, bytes.fromhex("dd0fff")),
            ("a million arrays in each other", NO_REQUEST, b"\x91" * 1000000),
            ("a million wider arrays in each other", NO_REQUEST, b"\x93" * 1000000),
            ("operation 128", NO_REQUEST, bytes.fromhex("93cc800100")),
            ("operation 2^64 - 1", NO_REQUEST, b"\x93" + pack_int(U64) + b"\x01\x00"),
            ("operation -1", NO_REQUEST, bytes.fromhex("93ff0100")),
            ("operation as text", NO_REQUEST, bytes.fromhex("93a1320100")),
            ("corr -1", NO_REQUEST, bytes.fromhex("9302ff00")),
            ("corr nil", NO_REQUEST, bytes.fromhex("9302c000")),
            ("corr a float", NO_REQUEST, bytes.fromhex("9302ca3f80000000")),
            ("deadline true", NO_REQUEST, bytes.fromhex("930201c3")),
            ("deadline missing", MANY, bytes.fromhex("930201"))):
        out.append(reject("head", case, MSG, detail, raw))
    for case, detail, raw in (
            ("no bytes", SHORT, b""),
            ("a request", NO_REPLY, bytes.fromhex("93020100")),
            ("operation 256", NO_REPLY, bytes.fromhex("93cd01000100")),
            ("status 65536", NO_REPLY, bytes.fromhex("94cc8201ce00010000a0")),
            ("error without detail", "a reply with an error must have 4 fields",
             bytes.fromhex("93cc820108")),
            ("error with 5 fields", "a reply with an error must have 4 fields",
             bytes.fromhex("95cc820108a000")),
            ("error, detail an integer", "detail must be text of at most 512 bytes",
             bytes.fromhex("94cc82010807")),
            ("error, detail of 513 bytes", "detail must be text of at most 512 bytes",
             bytes.fromhex("94cc820108") + pack_text("x" * 513)),
            ("error, a byte left over", "bytes are left over after the message",
             bytes.fromhex("94cc820108a000"))):
        out.append(reject("reply_head", case, MSG, detail, raw))
    return out


def reject_requests():
    ns, group = LLAMA, [16, 2097152, 0, 0, 0]
    reserve = [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0]
    two = u64s(0, 64)
    name = "%s must be UTF-8 text of at most 127 bytes without NUL"
    lookup = "flags of LOOKUP must be 0 or 2"
    cases = [
        ("hello", ARG, "ver_min must not be above ver_max", [2, 1]),
        ("hello", ARG, "ver_max must be an integer from 0 to 2^32 - 1", [1, U32 + 1]),
        ("hello", ARG, "ver_min must be an integer from 0 to 2^32 - 1", [-1, 1]),
        ("lookup", ARG, "ns must be an integer from 0 to 2^32 - 1", [U32 + 1, "", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, "s" * 128, 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xff", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xc0\xaf", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xe0\x80\xaf", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xed\xa0\x80", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xf4\x90\x80\x80", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xf8\x88\x80\x80\x80", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\xe7\x89", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"\x80", 0, [b""], 0]),
        ("lookup", ARG, name % "sub", [1, b"a\x00b", 0, [b""], 0]),
        ("lookup", ARG, "tokens must be an integer from 0 to 2^32 - 1", [1, "", U32 + 1, [b""], 0]),
        ("lookup", ARG, "keys must be an array of 1 to 16 blobs", [1, "", 0, [], 0]),
        ("lookup", ARG, "keys must be an array of 1 to 16 blobs", [1, "", 0, [b""] * 17, 0]),
        ("lookup", ARG, "keys of a group must be binary of at most 32768 x 32 bytes",
         [1, "", 0, [b"\x00" * 31], 0]),
        ("lookup", ARG, "keys of a group must be binary of at most 32768 x 32 bytes",
         [1, "", 0, [b"\x00" * (32769 * 32)], 0]),
        ("lookup", ARG, "keys must be at most 32768, summed over the groups",
         [1, "", 0, [b"\x00" * (2049 * 32)] * 16, 0]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], 1]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], 3]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], U64]),
        ("acquire", ARG, "flags of ACQUIRE must be 0 or 1", [1, "", 0, [b""], 2, 0, 0, 0]),
        ("acquire", ARG, "shard must be an integer from 0 to 63", [1, "", 0, [b""], 0, 64, 0, 0]),
        ("acquire", ARG, "from_tokens must be an integer from 0 to 2^32 - 1",
         [1, "", 0, [b""], 0, 0, U32 + 1, 0]),
        ("acquire", ARG, "wait_tokens must be an integer from 0 to 2^32 - 1",
         [1, "", 0, [b""], 0, 0, 0, U32 + 1]),
        ("acquire", ARG, "keys must be at most 32768, summed over the groups",
         [1, "", 0, [b"\x00" * (32768 * 32), K[0]], 0, 0, 0, 0]),
        ("redeem", ARG, "ticket must be binary of 16 bytes", [bytes(15), 0]),
        ("redeem", ARG, "ticket must be binary of 16 bytes", [bytes(17), 0]),
        ("redeem", ARG, "shard must be an integer from 0 to 63", [bytes(16), 64]),
        ("release", ARG, "leases must be binary of at most 1024 x 8 bytes", [bytes(9)]),
        ("release", ARG, "leases must be binary of at most 1024 x 8 bytes", [b"\x01" * 8200]),
        ("drop", ARG, "reservation must be an integer from 0 to 2^64 - 1", [-1]),
        ("cancel", ARG, "target must be an integer from 0 to 2^64 - 1", [-(2**63)]),
        ("ns_list", ARG, "after must be an integer from 0 to 2^32 - 1", [U32 + 1]),
        ("explain", ARG, "keys must be binary of 1 to 256 x 32 bytes", [0, b""]),
        ("explain", ARG, "keys must be binary of 1 to 256 x 32 bytes", [0, bytes(257 * 32)]),
        ("explain", ARG, "ns must be an integer from 0 to 2^32 - 1", [U64, K[0]]),
        ("evict", ARG, "flags of EVICT must be 0 or 4", [1, 0, b"", 0, 0]),
        ("evict", ARG, "ns must be an integer from 0 to 2^32 - 1", [0, U32 + 1, b"", 0, 0]),
        ("evict", ARG, "key must be binary of 0 or 32 bytes", [0, 0, bytes(64), 0, 0]),
        ("evict", ARG, "key must be binary of 0 or 32 bytes", [0, 0, bytes(16), 0, 0]),
        ("commit", ARG, "first must be an integer from 0 to 4095", [1, 4096, two, b""]),
        ("commit", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", [1, 0, b"", b""]),
        ("commit", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", [1, 0, bytes(12), b""]),
        ("commit", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", [1, 0, bytes(4097 * 8), b""]),
        ("commit", ARG, "first and the number of offsets must add up to at most 4096",
         [1, 4095, two, b""]),
        ("commit", ARG, "tokens must be binary of n x 4 bytes in one message", [1, 0, two, b"abc"]),
        ("store", ARG, "offsets must be as many as keys", reserve + [u64s(0), b""]),
        ("store", ARG, "offsets must be as many as keys", reserve + [u64s(0, 64, 128), b""]),
        ("store", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", reserve + [b"", b""]),
        ("store", ARG, "tokens must be binary of n x 4 bytes in one message", reserve + [two, b"a"]),
    ]
    for i, detail, bad in ((1, name % "sub", "s" * 128),
                           (2, "flags of RESERVE and STORE must be 0", 1),
                           (3, "group must be an integer from 0 to 15", 16),
                           (4, "shard must be an integer from 0 to 63", 64),
                           (5, "parent must be binary of 0 or 32 bytes", bytes(31)),
                           (5, "parent must be binary of 0 or 32 bytes", bytes(64)),
                           (6, "first_token must be an integer from 0 to 2^32 - 1", U32 + 1),
                           (7, "keys must be binary of 1 to 4096 x 32 bytes", b""),
                           (7, "keys must be binary of 1 to 4096 x 32 bytes", bytes(33)),
                           (7, "keys must be binary of 1 to 4096 x 32 bytes", bytes(4097 * 32)),
                           (8, "last_tokens must be an integer from 0 to 1024", 1025)):
        changed = reserve[:i] + [bad] + reserve[i + 1:]
        cases.append(("reserve", ARG, detail, changed))
        cases.append(("store", ARG, detail, changed + [two, b""]))
    tail = [1, 0, 0, 0, [group]]
    text_fields = ["model", "revision", "dtype", "quant", "layout", "position", "position_params",
                   "attention", "lora", "extra", "sub"]
    for i, field in enumerate(text_fields):
        long = 256 if field in ("position_params", "extra") else 128
        detail = ("model must be UTF-8 text of 1 to 127 bytes without NUL" if i == 0 else
                  "%s must be UTF-8 text of at most %d bytes without NUL" % (field, long - 1))
        for bad in ("x" * long, b"\xff"):
            cases.append(("ns_open", ARG, detail, ns[:i] + [bad] + ns[i + 1:] + tail))
    cases.append(("ns_open", ARG, "model must be UTF-8 text of 1 to 127 bytes without NUL",
                  [""] + ns[1:] + tail))
    for i, detail, bad in ((11, "layers must be an integer from 0 to 2^32 - 1", U32 + 1),
                           (12, "kv_heads must be an integer from 0 to 2^32 - 1", U32 + 1),
                           (13, "head_size must be an integer from 0 to 2^32 - 1", U32 + 1),
                           (14, "shards must be an integer from 1 to 64", 0),
                           (14, "shards must be an integer from 1 to 64", 65),
                           (15, "flags of NS_OPEN must be 0 or 8", 1),
                           (18, "groups must be an array of 1 to 16 arrays of 5", []),
                           (18, "groups must be an array of 1 to 16 arrays of 5", [group] * 17)):
        whole = ns + tail
        cases.append(("ns_open", ARG, detail, whole[:i] + [bad] + whole[i + 1:]))
    for bad, detail in (([0, 1, 0, 0, 0], "block_tokens must be an integer from 1 to 1024"),
                        ([1025, 1, 0, 0, 0], "block_tokens must be an integer from 1 to 1024"),
                        ([1, 0, 0, 0, 0], "block_bytes must be an integer from 1 to 1073741824"),
                        ([1, (1 << 30) + 1, 0, 0, 0],
                         "block_bytes must be an integer from 1 to 1073741824"),
                        ([1, 1, 3, 0, 0], "rule must be 0 (full), 1 (window) or 2 (state)"),
                        ([1, 1, 1, 0, 0], "window of a group with rule 1 must be at least 1 token"),
                        ([1, 1, 1, U32 + 1, 0], "window must be an integer from 0 to 2^32 - 1"),
                        ([1, 1, 0, 1, 0], "window of a group must be 0 unless its rule is 1"),
                        ([1, 1, 2, 1, 0], "window of a group must be 0 unless its rule is 1"),
                        ([1, 1, 0, 0, 1], "flags of a group must be 0 or 16")):
        cases.append(("ns_open", ARG, detail, ns + [1, 0, 0, 0, [group, bad]]))
    out = [reject(m, "%d: %s" % (i, detail), err, detail, raw_request(m, v))
           for i, (m, err, detail, v) in enumerate(cases)]
    return out + reject_shapes()


def reject_shapes():
    few = "the request has too few or too many fields"
    good = raw_request("lookup", [1, "", 0, [b""], 0])
    at = good.index(b"\x91")  # the array of keys; nothing before it has this byte
    out = []
    for case, err, detail, raw in (
            ("another operation", MSG, "another operation than expected", b"\x98\x05" + good[2:]),
            ("a field less", MSG, few, b"\x97" + good[1:-1]),
            ("a field more", MSG, few, b"\x99" + good[1:] + b"\x00"),
            ("a byte left over", MSG, "bytes are left over after the message", good + b"\x00"),
            ("a second message", MSG, "bytes are left over after the message", good + good),
            ("keys a str", MSG, "keys of a group must be binary of at most 32768 x 32 bytes",
             good[:at + 1] + b"\xa0\x00"),
            ("keys not in an array", MSG, "keys must be an array of 1 to 16 blobs",
             good[:at] + b"\xc4\x00\x00"),
            ("keys a huge array", MSG, MANY, good[:at] + bytes.fromhex("dd0fffffff") + good[at + 1:]),
            ("keys a huge blob", MSG, SHORT,
             good[:at + 1] + bytes.fromhex("c6ffffffe0") + good[at + 1:]),
            ("sub a huge str", MSG, SHORT, good[:5] + bytes.fromhex("dbffffffff") + good[6:]),
            ("sub an ext", MSG, "sub must be UTF-8 text of at most 127 bytes without NUL",
             good[:5] + bytes.fromhex("d40000") + good[6:]),
            ("sub a million arrays in each other", MSG,
             "sub must be UTF-8 text of at most 127 bytes without NUL", good[:5] + b"\x91" * 1000000),
            ("flags a float", MSG, "flags of LOOKUP must be 0 or 2",
             good[:-1] + bytes.fromhex("ca40000000")),
            ("deadline too long", ARG, "deadline_ms must be an integer from 0 to 600000",
             raw_request("lookup", [1, "", 0, [b""], 0], deadline=600001)),
            ("longest deadline", ARG, "deadline_ms must be an integer from 0 to 600000",
             raw_request("lookup", [1, "", 0, [b""], 0], deadline=U64)),
            ("deadline and fields both wrong", MSG, few, b"\x93\x04\x01\xce\xff\xff\xff\xff")):
        assert good[4:6] == b"\x01\xa0"
        out.append(reject("lookup", case, err, detail, raw))
    group = raw_request("ns_open", LLAMA + [1, 0, 0, 0, [[16, 64, 0, 0, 0]]])
    assert group[-6] == 0x95
    for case, raw in (("a group of 4", group[:-6] + b"\x94" + group[-5:-1]),
                      ("a group of 6", group[:-6] + b"\x96" + group[-5:] + b"\x00"),
                      ("a group that is no array", group[:-6] + b"\x10")):
        out.append(reject("ns_open", case, MSG, "groups must be an array of 1 to 16 arrays of 5", raw))
    out.append(reject("ping", "a field more", MSG, few, bytes.fromhex("9402010000")))
    out.append(reject("ping", "another operation", MSG, "another operation than expected",
                      bytes.fromhex("93040100")))
    return out


def reject_replies():
    cases = [
        ("cancel", ARG, "found must be 0 or 1", [2]),
        ("ns_open", ARG, "seed must be binary of 32 bytes", [1, bytes(31), []]),
        ("ns_open", ARG, "near must be an array of at most 4 arrays of 2", [1, SEED, [[1, 1]] * 5]),
        ("lookup", ARG, "groups must be an array of 1 to 16 arrays of 3", [0, []]),
        ("lookup", ARG, "groups must be an array of 1 to 16 arrays of 3", [0, [[0, 0, 0]] * 17]),
        ("lookup", ARG, "reason must be an integer from 0 to 255", [0, [[0, 256, 0]]]),
        ("acquire", ARG, "locs must be binary of at most 32768 x 32 bytes",
         [0, 0, bytes(16), [[0, bytes(31), 0, 0]]]),
        ("acquire", ARG, "ticket must be binary of 16 bytes", [0, 0, b"", [[0, b"", 0, 0]]]),
        ("reserve", ARG, "statuses must be binary of 1 to 4096 bytes", [1, b""]),
        ("commit", ARG, "statuses must be binary of 1 to 4096 bytes", [b"\x00" * 4097]),
        ("hello", ARG, "server must be UTF-8 text of at most 127 bytes without NUL", [1, "s" * 128]),
    ]
    out = [reject(m + "_reply", "%d: %s" % (i, detail), err, detail, raw_reply(m, v))
           for i, (m, err, detail, v) in enumerate(cases)]
    few = "the reply has too few or too many fields"
    out += [
        reject("lookup_reply", "of another operation", MSG,
               "a reply to another operation than expected", raw_reply("ping", [1])),
        reject("ping_reply", "a field less", MSG, few, bytes.fromhex("93cc820100")),
        reject("ping_reply", "a field more", MSG, few, bytes.fromhex("95cc8201000000")),
        reject("drop_reply", "a field more", MSG, few, bytes.fromhex("94cc8b010000")),
        reject("stats_reply", "more is 2", ARG, "more must be 0 or 1", bytes.fromhex("95cc8d01000290")),
        reject("stats_reply", "items no array", MSG, "items must be an array of arrays",
               bytes.fromhex("95cc8d0100 00c0".replace(" ", ""))),
        reject("stats_reply", "huge items", MSG, MANY, bytes.fromhex("95cc8d010000dd0fffffff")),
        reject("stats_reply", "of an operation without a list", MSG,
               "a reply to an operation that has no list", bytes.fromhex("95cc8201000090")),
        reject("stats_reply", "a field less", MSG, few, bytes.fromhex("94cc8d010000")),
    ]
    for case, err, raw in (("an item of 2", MSG, "91 92 a161 00"), ("an item of 4", MSG, "91 94 a161 00 00 00"),
                           ("an item that is no array", MSG, "91 07"), ("an item too few", MSG, "92 93 a161 00 00"),
                           ("a byte left over", MSG, "91 93 a161 00 00 00"),
                           ("an empty name", ARG, "91 93 a0 00 00"), ("kind 2", ARG, "91 93 a161 02 00"),
                           ("a name of 64 bytes", ARG, "91 93 d940" + "61" * 64 + "00 00")):
        out.append(reject("stats_reply", case, err, None,
                          bytes.fromhex("95cc8d010000" + raw.replace(" ", ""))))
    return out


def reject_attaches():
    def raw(name, values, magic=b"kvca"):
        code, spec = ATTACH[name]
        head = pack_array(1 + len(spec) + (name == "hello")) + pack_int(code)
        return head + (pack_text(magic) if name == "hello" else b"") + body(spec, values)

    good = [0, "", 1, 12, bytes(range(1, 17)), "ipc:///x", 0, "a", "t", 0, 0]

    def welcome(i, bad):
        return raw("welcome", good[:i] + [bad] + good[i + 1:])

    rows = [
        ("att_hello", "no bytes", MSG, b""),
        ("att_hello", "code 0", MSG, bytes.fromhex("9100")),
        ("att_hello", "code 7", MSG, bytes.fromhex("9107")),
        ("att_hello", "no array", MSG, bytes.fromhex("01")),
        ("att_hello", "a million arrays in each other", MSG, b"\x91" * 1000000),
        ("att_hello", "huge array", MSG, bytes.fromhex("dd0fffffff01")),
        ("att_hello", "another code", MSG, raw("map", [1])),
        ("att_hello", "wrong magic", ARG, raw("hello", [1, 1, "", 0, 0], magic=b"kvcb")),
        ("att_hello", "short magic", ARG, raw("hello", [1, 1, "", 0, 0], magic=b"kvc")),
        ("att_hello", "magic an integer", MSG, bytes.fromhex("97010701 01a00000")),
        ("att_hello", "versions upside down", ARG, raw("hello", [2, 1, "", 0, 0])),
        ("att_hello", "client of 128 bytes", ARG, raw("hello", [1, 1, "c" * 128, 0, 0])),
        ("att_hello", "shard 64", ARG, raw("hello", [1, 1, "", 0, 64])),
        ("att_welcome", "route begins with zero", ARG, welcome(4, bytes(16))),
        ("att_welcome", "route of 15", ARG, welcome(4, b"\x01" * 15)),
        ("att_welcome", "status 65536", ARG, welcome(0, 65536)),
        ("att_welcome", "detail of 513", ARG, welcome(1, "d" * 513)),
        ("att_welcome", "endpoint of 256", ARG, welcome(5, "e" * 256)),
        ("att_welcome", "admin 2", ARG, welcome(9, 2)),
        ("att_welcome", "gateway 2", ARG, welcome(10, 2)),
        ("att_map", "chunk 2^32", ARG, raw("map", [U32 + 1])),
        ("att_map", "the code of RETIRED", MSG, bytes.fromhex("920501")),
        ("att_map", "a field more", MSG, bytes.fromhex("930301 00")),
        ("att_chunk", "a field less", MSG, bytes.fromhex("940400a001")),
        ("att_retired", "chunk a str", MSG, bytes.fromhex("9205a131")),
        ("att_dropped", "detail of 513", ARG, raw("dropped", [1, "d" * 513])),
    ]
    return [reject(m, case, err, None, r) for m, case, err, r in rows]


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
        key_case("1024 tokens a block", SEED, [(i * 2654435761) % 2**32 for i in range(1030)], 1024),
        key_case("no tokens, no keys", SEED, [], 16),
    ]


HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Made by make_vectors.py; README.md describes the format.\n\n"
FILES = {
    "requests.txt": requests,
    "replies.txt": replies,
    "attach.txt": attaches,
    "example.txt": example,
    "rejects.txt": lambda: reject_heads() + reject_requests() + reject_replies() + reject_attaches(),
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
            print("%s: %s" % (name, "up to date" if same else "differs from what make_vectors.py makes"))
            stale += not same
        else:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
