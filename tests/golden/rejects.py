# SPDX-License-Identifier: Apache-2.0
"""The cases of rejects.txt: what must be refused, and with which error."""

from protocol import (
    ALL,
    BLOCKS,
    ATTACH,
    K,
    LLAMA,
    REPLIES,
    REQUESTS,
    SEED,
    TABLES,
    U32,
    U64,
    body,
    pack_array,
    pack_int,
    pack_text,
    region,
    reply_head,
    retain,
    rows_raw,
    section,
    u32s,
    u64s,
)


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
    return (
        pack_array(3 + len(spec))
        + pack_int(op)
        + pack_int(corr)
        + pack_int(deadline)
        + body(spec, values)
    )


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
        ("deadline missing", MANY, bytes.fromhex("930201")),
    ):
        out.append(reject("head", case, MSG, detail, raw))
    for case, detail, raw in (
        ("no bytes", SHORT, b""),
        ("a request", NO_REPLY, bytes.fromhex("93020100")),
        ("operation 256", NO_REPLY, bytes.fromhex("93cd01000100")),
        ("status 65536", NO_REPLY, bytes.fromhex("94cc8201ce00010000a0")),
        (
            "error without detail",
            "a reply with an error must have 4 fields",
            bytes.fromhex("93cc820108"),
        ),
        (
            "error with 5 fields",
            "a reply with an error must have 4 fields",
            bytes.fromhex("95cc820108a000"),
        ),
        (
            "error, detail an integer",
            "detail must be text of at most 512 bytes",
            bytes.fromhex("94cc82010807"),
        ),
        (
            "error, detail of 513 bytes",
            "detail must be text of at most 512 bytes",
            bytes.fromhex("94cc820108") + pack_text("x" * 513),
        ),
        (
            "error, a byte left over",
            "bytes are left over after the message",
            bytes.fromhex("94cc820108a000"),
        ),
    ):
        out.append(reject("reply_head", case, MSG, detail, raw))
    return out


def reject_requests():
    ns, group = LLAMA, [16, 2097152, 0, 0, 0]
    reserve = [1, "", 0, 0, 0, b"", 0, K[0] + K[1], 0, b""]
    two = u64s(0, 64)
    name = "%s must be UTF-8 text of at most 127 bytes without NUL"
    lookup = "flags of LOOKUP must be a sum of 2, 64, 256 and 512"
    read_only = "flags of LOOKUP: 256 (READ_ONLY) excludes 2 (TOUCH) and 64 (PREFETCH)"
    acquire = "flags of ACQUIRE must be a sum of 1, 128, 256 and 512"
    hint = "kind must be 1 (ended), 2 (continue), 3 (soon) or 4 (scan)"
    kind = "kind must be 1 (conversation) or 2 (document)"
    named = "name must be UTF-8 text of 1 to 127 bytes without NUL"
    keyed = "keys must be binary of 32 bytes for modes 0 (up), 1 (down) and 3 (match)"
    some = "keys must be binary of at most 256 x 32 bytes"
    every = "group must be 0 for modes 3 (match) and 4 (keys)"
    no_names = "prefix, exact and sub must be empty and 0 for a table without names"
    no_blocks = "ns, group, mode, keys and depth must be 0 and empty for a table without blocks"
    bits = "depth must be an integer from 1 to 256 for mode 3 (match)"
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
        (
            "lookup",
            ARG,
            "keys of a group must be binary of at most 131072 x 32 bytes",
            [1, "", 0, [b"\x00" * 31], 0],
        ),
        (
            "lookup",
            ARG,
            "keys of a group must be binary of at most 131072 x 32 bytes",
            [1, "", 0, [b"\x00" * (131073 * 32)], 0],
        ),
        (
            "lookup",
            ARG,
            "keys must be at most 131072, summed over the groups",
            [1, "", 0, [b"\x00" * (8193 * 32)] * 16, 0],
        ),
        ("lookup", ARG, lookup, [1, "", 0, [b""], 1]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], 3]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], U64]),
        ("acquire", ARG, acquire, [1, "", 0, [b""], 2, 0, 0, 0]),
        ("acquire", ARG, acquire, [1, "", 0, [b""], 64, 0, 0, 0]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], 128]),
        ("lookup", ARG, lookup, [1, "", 0, [b""], 1024]),
        ("lookup", ARG, read_only, [1, "", 0, [b""], 258]),
        ("lookup", ARG, read_only, [1, "", 0, [b""], 320]),
        ("acquire", ARG, acquire, [1, "", 0, [b""], 1024, 0, 0, 0]),
        ("hint", ARG, hint, [1, "", 0, [b""], 0, 0]),
        ("hint", ARG, hint, [1, "", 0, [b""], 5, 0]),
        ("hint", ARG, "within_ms must be 0 unless kind is 3 (soon)", [1, "", 0, [b""], 1, 1]),
        ("hint", ARG, "within_ms must be an integer from 0 to 2^32 - 1", [1, "", 0, [b""], 3, U64]),
        (
            "hint",
            ARG,
            "keys must be at most 131072, summed over the groups",
            [1, "", 0, [b"\x00" * (131072 * 32), K[0]], 3, 0],
        ),
        ("acquire", ARG, "shard must be an integer from 0 to 63", [1, "", 0, [b""], 0, 64, 0, 0]),
        (
            "acquire",
            ARG,
            "from_tokens must be an integer from 0 to 2^32 - 1",
            [1, "", 0, [b""], 0, 0, U32 + 1, 0],
        ),
        (
            "acquire",
            ARG,
            "wait_tokens must be an integer from 0 to 2^32 - 1",
            [1, "", 0, [b""], 0, 0, 0, U32 + 1],
        ),
        (
            "acquire",
            ARG,
            "keys must be at most 131072, summed over the groups",
            [1, "", 0, [b"\x00" * (131072 * 32), K[0]], 0, 0, 0, 0],
        ),
        ("redeem", ARG, "ticket must be binary of 16 bytes", [bytes(15), 0]),
        ("redeem", ARG, "ticket must be binary of 16 bytes", [bytes(17), 0]),
        ("redeem", ARG, "shard must be an integer from 0 to 63", [bytes(16), 64]),
        ("release", ARG, "leases must be binary of at most 1024 x 8 bytes", [bytes(9)]),
        ("release", ARG, "leases must be binary of at most 1024 x 8 bytes", [b"\x01" * 8200]),
        ("drop", ARG, "reservation must be an integer from 0 to 2^64 - 1", [-1]),
        ("cancel", ARG, "target must be an integer from 0 to 2^64 - 1", [-(2**63)]),
        ("list", ARG, "table: there is no such table", [0, 0, b"", "", 0, ""] + ALL),
        (
            "list",
            ARG,
            "table: there is no such table",
            [max(n for n, _ in TABLES.values()) + 1, 0, b"", "", 0, ""] + ALL,
        ),
        ("list", ARG, "max must be an integer from 0 to 256", [1, 257, b"", "", 0, ""] + ALL),
        ("list", ARG, "cursor must be binary of at most 320 bytes", [1, 0, bytes(321), "", 0, ""] + ALL),
        ("list", ARG, "exact must be 0 or 1", [9, 0, b"", "a", 2, ""] + ALL),
        ("list", ARG, "prefix must not be empty with exact 1", [9, 0, b"", "", 1, ""] + ALL),
        ("list", ARG, "cursor must be empty with exact 1", [9, 0, b"a", "a", 1, ""] + ALL),
        ("list", ARG, no_names, [8, 0, b"", "a", 0, ""] + ALL),
        ("list", ARG, no_names, [8, 0, b"", "a", 1, ""] + ALL),
        ("list", ARG, no_names, [8, 0, b"", "", 0, "a"] + ALL),
        ("ns_spec", ARG, "ns must be an integer from 0 to 2^32 - 1", [U32 + 1]),
        ("evict", ARG, "flags of EVICT must be 0, 4, 8192 or 8196", [1, 0, b"", 0, 0, "", "", 0]),
        ("evict", ARG, "ns must be an integer from 0 to 2^32 - 1", [0, U32 + 1, b"", 0, 0, "", "", 0]),
        ("evict", ARG, "key must be binary of 0 or 32 bytes", [0, 0, bytes(64), 0, 0, "", "", 0]),
        ("evict", ARG, "key must be binary of 0 or 32 bytes", [0, 0, bytes(16), 0, 0, "", "", 0]),
        (
            "evict",
            ARG,
            "priority_below must be an integer from 0 to 101",
            [0, 0, b"", 0, 0, "", "", 102],
        ),
        ("pin", ARG, "tier of a pin must be 0 (any) or 1 (host memory)", [1, "", 16, [bytes(32)], 2, 0]),
        (
            "quota_set",
            ARG,
            "scope must be 1 (tenant), 2 (sub-tenant) or 3 (namespace)",
            [0, "t", "", 0, 0, 0, 0, 0],
        ),
        (
            "quota_set",
            ARG,
            "ns of a quota must be given with scope 3 (namespace), else 0",
            [1, "t", "", 7, 0, 0, 0, 0],
        ),
        (
            "quota_set",
            ARG,
            "tenant of a quota must be given with scopes 1 and 2, else empty",
            [1, "", "", 0, 0, 0, 0, 0],
        ),
        (
            "quota_set",
            ARG,
            "sub of a quota must be given with scope 2 (sub-tenant), else empty",
            [1, "t", "s", 0, 0, 0, 0, 0],
        ),
        (
            "quota_set",
            ARG,
            "the share of a quota must not be above its limit",
            [1, "t", "", 0, 1, 1, 2, 0],
        ),
        ("policy", ARG, "action must be 0 (show) or 1 (set)", [2, "", 0, 0, 0, 0]),
        (
            "policy",
            ARG,
            "with action 0 (show) the other fields must be 0 or empty",
            [0, "lru", 0, 0, 0, 0],
        ),
        (
            "policy",
            ARG,
            "with action 0 (show) the other fields must be 0 or empty",
            [0, "", 0, 0, 1, 0],
        ),
        (
            "policy",
            ARG,
            "keep_percent must be an integer from 0 to 100",
            [1, "lru", 101, 0, 0, 0],
        ),
        ("list", ARG, "ns must be an integer from 0 to 2^32 - 1", BLOCKS + [U64, 0, 2, b"", 0]),
        ("list", ARG, "group must be an integer from 0 to 15", BLOCKS + [1, 16, 0, K[0], 0]),
        (
            "list",
            ARG,
            "mode must be 0 (up), 1 (down), 2 (roots), 3 (match) or 4 (keys)",
            BLOCKS + [1, 0, 5, K[0], 0],
        ),
        ("list", ARG, some, BLOCKS + [1, 0, 4, bytes(31), 0]),
        ("list", ARG, some, BLOCKS + [1, 0, 4, bytes(257 * 32), 0]),
        ("list", ARG, keyed, BLOCKS + [1, 0, 0, b"", 0]),
        ("list", ARG, keyed, BLOCKS + [1, 0, 1, b"", 0]),
        ("list", ARG, keyed, BLOCKS + [1, 0, 3, b"", 64]),
        ("list", ARG, keyed, BLOCKS + [1, 0, 0, bytes(64), 0]),
        (
            "list",
            ARG,
            "keys must be binary of 1 to 256 x 32 bytes for mode 4 (keys)",
            BLOCKS + [1, 0, 4, b"", 0],
        ),
        ("list", ARG, every, BLOCKS + [1, 1, 3, K[0], 64]),
        ("list", ARG, every, BLOCKS + [1, 1, 4, K[0], 0]),
        ("list", ARG, bits, BLOCKS + [1, 0, 3, K[0], 0]),
        ("list", ARG, bits, BLOCKS + [1, 0, 3, K[0], 257]),
        ("list", ARG, "keys must be empty for mode 2 (roots)", BLOCKS + [1, 0, 2, K[0], 0]),
        ("list", ARG, no_names, [11, 0, b"", "a", 0, "", 1, 0, 2, b"", 0]),
    ]
    for at, value in enumerate((1, 1, 1, K[0], 1)):
        fields = list(ALL)
        fields[at] = value
        cases.append(("list", ARG, no_blocks, [10, 0, b"", "", 0, ""] + fields))
    cases += [
        ("trace", ARG, "action must be 0 (status), 1 (on) or 2 (off)", [3, 0, 0]),
        ("trace", ARG, "ns and bytes must be 0 unless action is 1 (on)", [2, 1, 0]),
        ("trace", ARG, "ns and bytes must be 0 unless action is 1 (on)", [0, 0, 1 << 20]),
        ("trace", ARG, "bytes must be 0, or from 1048576 to 1073741824", [1, 0, (1 << 20) - 1]),
        ("trace", ARG, "bytes must be 0, or from 1048576 to 1073741824", [1, 0, (1 << 30) + 1]),
        ("trace_dump", ARG, "ns must be an integer from 0 to 2^32 - 1", [U32 + 1, 0]),
        ("verify", ARG, "tier must be 0 (all), 1 (host), 2 (nvme) or 4 (hbm)", [0, 3, 0, 1]),
        ("drain", ARG, "bytes_max must be an integer from 1 to 2^64 - 1", [0]),
        ("name_put", ARG, kind, [0, "a", 1, "", 16, [K[0]], 0, 0, 0, b""]),
        ("name_put", ARG, kind, [3, "a", 1, "", 16, [K[0]], 0, 0, 0, b""]),
        ("name_put", ARG, named, [1, "", 1, "", 16, [K[0]], 0, 0, 0, b""]),
        (
            "name_put",
            ARG,
            "flags of NAME_PUT must be 0, 32, 4096 or 4128",
            [1, "a", 1, "", 16, [K[0]], 1, 0, 0, b""],
        ),
        (
            "name_put",
            ARG,
            "priority must be an integer from 0 to 100",
            [1, "a", 1, "", 16, [K[0]], 0, 101, 0, b""],
        ),
        (
            "name_put",
            ARG,
            "ids must be empty, or as many as tokens",
            [1, "a", 1, "", 16, [K[0]], 0, 0, 0, bytes(60)],
        ),
        ("name_forget", ARG, named, [1, "n" * 128, "", 0, 0]),
        ("name_forget", ARG, "evict must be 0 or 1", [1, "a", "", 2, 0]),
        ("name_forget", ARG, "dry_run must be 0 or 1", [1, "a", "", 1, 2]),
        ("name_forget", ARG, "dry_run must be 0 unless evict is 1", [1, "a", "", 0, 1]),
        ("name_load", ARG, "flags of NAME_LOAD must be 0 or 1", [1, "a", "", 0, 2]),
        ("name_tokens", ARG, "first must be an integer from 0 to 2^32 - 1", [1, "a", "", U32 + 1]),
        ("verify", ARG, "bytes_max must be an integer from 1 to 2^64 - 1", [0, 0, 0, 0]),
        ("commit", ARG, "first must be an integer from 0 to 4095", [1, 4096, two, b""]),
        ("commit", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", [1, 0, b"", b""]),
        ("commit", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", [1, 0, bytes(12), b""]),
        (
            "commit",
            ARG,
            "offsets must be binary of 1 to 4096 x 8 bytes",
            [1, 0, bytes(4097 * 8), b""],
        ),
        (
            "commit",
            ARG,
            "first and the number of offsets must add up to at most 4096",
            [1, 4095, two, b""],
        ),
        ("commit", ARG, "tokens must be binary of n x 4 bytes in one message", [1, 0, two, b"abc"]),
        ("store", ARG, "offsets must be as many as keys", reserve + [u64s(0), b""]),
        ("store", ARG, "offsets must be as many as keys", reserve + [u64s(0, 64, 128), b""]),
        ("store", ARG, "offsets must be binary of 1 to 4096 x 8 bytes", reserve + [b"", b""]),
        (
            "store",
            ARG,
            "tokens must be binary of n x 4 bytes in one message",
            reserve + [two, b"a"],
        ),
    ]
    for i, detail, bad in (
        (1, name % "sub", "s" * 128),
        (2, "flags of RESERVE and STORE must be a sum of 32, 1024 and 16384", 1),
        (2, "flags of RESERVE and STORE must be a sum of 32, 1024 and 16384", 512),
        (2, "flags of RESERVE and STORE must be a sum of 32, 1024 and 16384", 2080),
        (3, "group must be an integer from 0 to 15", 16),
        (4, "shard must be an integer from 0 to 63", 64),
        (5, "parent must be binary of 0 or 32 bytes", bytes(31)),
        (5, "parent must be binary of 0 or 32 bytes", bytes(64)),
        (6, "first_token must be an integer from 0 to 2^32 - 1", U32 + 1),
        (7, "keys must be binary of 1 to 4096 x 32 bytes", b""),
        (7, "keys must be binary of 1 to 4096 x 32 bytes", bytes(33)),
        (7, "keys must be binary of 1 to 4096 x 32 bytes", bytes(4097 * 32)),
        (8, "last_tokens must be an integer from 0 to 65536", 65537),
        (9, "retain must be binary of at most 16 x 20 bytes", bytes(19)),
        (9, "retain must be binary of at most 16 x 20 bytes", bytes(17 * 20)),
        (9, "retain: end_token must be 0 or above first_token", retain(16, 16, 0, 0)),
        (9, "retain: end_token must be 0 or above first_token", retain(0, 0, 1, 1) + retain(9, 8, 0, 0)),
        (9, "retain: priority must be an integer from 0 to 100", retain(0, 0, 101, 0)),
    ):
        changed = reserve[:i] + [bad] + reserve[i + 1 :]
        cases.append(("reserve", ARG, detail, changed))
        cases.append(("store", ARG, detail, changed + [two, b""]))
    tail = [1, 0, 0, 0, [group]]
    text_fields = [
        "model",
        "revision",
        "dtype",
        "quant",
        "layout",
        "position",
        "position_params",
        "attention",
        "lora",
        "extra",
        "sub",
    ]
    for i, field in enumerate(text_fields):
        long = 256 if field in ("position_params", "extra") else 128
        detail = (
            "model must be UTF-8 text of 1 to 127 bytes without NUL"
            if i == 0
            else "%s must be UTF-8 text of at most %d bytes without NUL" % (field, long - 1)
        )
        for bad in ("x" * long, b"\xff"):
            cases.append(("ns_open", ARG, detail, ns[:i] + [bad] + ns[i + 1 :] + tail))
    cases.append(
        (
            "ns_open",
            ARG,
            "model must be UTF-8 text of 1 to 127 bytes without NUL",
            [""] + ns[1:] + tail,
        )
    )
    for i, detail, bad in (
        (11, "layers must be an integer from 0 to 2^32 - 1", U32 + 1),
        (12, "kv_heads must be an integer from 0 to 2^32 - 1", U32 + 1),
        (13, "head_size must be an integer from 0 to 2^32 - 1", U32 + 1),
        (14, "shards must be an integer from 1 to 64", 0),
        (14, "shards must be an integer from 1 to 64", 65),
        (15, "flags of NS_OPEN must be 0 or 8", 1),
        (18, "groups must be an array of 1 to 16 arrays of 5", []),
        (18, "groups must be an array of 1 to 16 arrays of 5", [group] * 17),
    ):
        whole = ns + tail
        cases.append(("ns_open", ARG, detail, whole[:i] + [bad] + whole[i + 1 :]))
    for bad, detail in (
        ([0, 1, 0, 0, 0], "block_tokens must be an integer from 1 to 65536"),
        ([65537, 1, 0, 0, 0], "block_tokens must be an integer from 1 to 65536"),
        ([1, 0, 0, 0, 0], "block_bytes must be an integer from 1 to 1073741824"),
        ([1, (1 << 30) + 1, 0, 0, 0], "block_bytes must be an integer from 1 to 1073741824"),
        ([1, 1, 3, 0, 0], "rule must be 0 (full), 1 (window) or 2 (state)"),
        ([1, 1, 1, 0, 0], "window of a group with rule 1 must be at least 1 token"),
        ([1, 1, 1, U32 + 1, 0], "window must be an integer from 0 to 2^32 - 1"),
        ([1, 1, 0, 1, 0], "window of a group must be 0 unless its rule is 1"),
        ([1, 1, 2, 1, 0], "window of a group must be 0 unless its rule is 1"),
        ([1, 1, 0, 0, 1], "flags of a group must be 0 or 16"),
    ):
        cases.append(("ns_open", ARG, detail, ns + [1, 0, 0, 0, [group, bad]]))
    cases += device_cases(reserve)
    out = [
        reject(m, "%d: %s" % (i, detail), err, detail, raw_request(m, v))
        for i, (m, err, detail, v) in enumerate(cases)
    ]
    return out + reject_shapes()


def device_cases(reserve):
    good, uuid = region(0, 0, 0, 64, 64), bytes(16)
    word = "a word must be an integer from 0 to 511, or 2^32 - 1 for none"
    page = "page_bytes of a region must be at least 1, stride_bytes at least page_bytes"
    pool = "pool must be an integer from 0 to 7"
    load = [1, "", 16, [K[0]], 0, 0, 0, 0, 0, U32, 0, U32, 0, [u32s(1)]]
    store = reserve + [0, U32, 0, u32s(1, 2), b""]
    on = [1, "", 16, [K[0]], 0, 0, 0, 0, uuid]

    def put(values, i, v):
        return values[:i] + [v] + values[i + 1 :]

    def opened(regions, pages_per_block=1):
        return [0, uuid, 1, [[pages_per_block, regions]]]

    cases = [
        (pool, [8, uuid, 1, [[1, good]]]),
        ("uuid must be binary of 16 bytes", [0, bytes(15), 1, [[1, good]]]),
        ("pages_max must be an integer from 1 to 2^32 - 1", [0, uuid, 0, [[1, good]]]),
        ("groups must be an array of 1 to 16 arrays of 2", [0, uuid, 1, []]),
        ("groups must be an array of 1 to 16 arrays of 2", [0, uuid, 1, [[1, good]] * 17]),
        ("pages_per_block must be an integer from 1 to 65536", opened(good, 0)),
        ("pages_per_block must be an integer from 1 to 65536", opened(good, 65537)),
        ("regions must be binary of 1 to 4096 x 40 bytes", opened(b"")),
        ("regions must be binary of 1 to 4096 x 40 bytes", opened(good[:-1])),
        ("regions must be binary of 1 to 4096 x 40 bytes", opened(bytes(4097 * 40))),
        (
            "regions must be at most 4096, summed over the groups",
            [0, uuid, 1, [[1, bytes(2049 * 40)]] * 2],
        ),
        ("mem of a region must be an integer from 0 to 1023", opened(region(1024, 0, 0, 1, 1))),
        (page, opened(region(0, 0, 0, 0, 0))),
        (page, opened(region(0, 0, 0, 63, 64))),
        (
            "layers of a group's regions must be ascending",
            opened(region(0, 1, 0, 64, 64) + good),
        ),
        ("the last 8 bytes of a region must be zero", opened(good[:-1] + b"\x01")),
    ]
    out = [("pool_open", ARG, detail, v) for detail, v in cases]
    out.append(("pool_close", ARG, pool, [8]))
    flags = "flags of %s must be a sum of 1, 128 and 512"
    pages = "pages of a group must be binary of at most 262144 x 4 bytes"
    for i, detail, bad in (
        (4, flags % "PAGES_LOAD", 2),
        (4, flags % "PAGES_LOAD", 256),
        (5, "shard must be an integer from 0 to 63", 64),
        (6, "from_tokens must be an integer from 0 to 2^32 - 1", U32 + 1),
        (8, pool, 8),
        (9, word, 512),
        (9, "after_word must be an integer from 0 to 2^32 - 1", U32 + 1),
        (11, word, U32 - 1),
        (12, "ready_value must be an integer from 0 to 2^64 - 1", -1),
        (13, "pages must be an array of 1 to 16 blobs", []),
        (13, "pages must be an array of 1 to 16 blobs", [b""] * 17),
        (13, "pages must be an array of as many blobs as keys", [b"", b""]),
        (13, pages, [bytes(3)]),
        (13, pages, [bytes(262145 * 4)]),
        (3, "keys of a group must be binary of at most 131072 x 32 bytes", [bytes(31)]),
    ):
        out.append(("pages_load", ARG, detail, put(load, i, bad)))
    two = put(put(load, 3, [b"", b""]), 13, [bytes(4 * 131073)] * 2)
    out.append(("pages_load", ARG, "pages must be at most 262144, summed over the groups", two))
    for i, detail, bad in (
        (9, "retain: end_token must be 0 or above first_token", retain(16, 16, 0, 0)),
        (10, pool, 8),
        (11, word, 512),
        (13, "pages must be binary of 1 to 262144 x 4 bytes", b""),
        (13, "pages must be binary of 1 to 262144 x 4 bytes", bytes(262146 * 4)),
        (13, "pages must be the same number for each key", u32s(1, 2, 3)),
        (13, "pages must be the same number for each key", u32s(1)),
        (14, "tokens must be binary of n x 4 bytes in one message", b"a"),
    ):
        out.append(("pages_store", ARG, detail, put(store, i, bad)))
    for i, detail, bad in (
        (4, flags % "ACQUIRE_ON", 256),
        (4, flags % "ACQUIRE_ON", 2),
        (5, "shard must be an integer from 0 to 63", 64),
        (8, "uuid must be binary of 16 bytes", bytes(17)),
        (3, "keys must be an array of 1 to 16 blobs", []),
    ):
        out.append(("acquire_on", ARG, detail, put(on, i, bad)))
    return out


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
        (
            "keys a str",
            MSG,
            "keys of a group must be binary of at most 131072 x 32 bytes",
            good[: at + 1] + b"\xa0\x00",
        ),
        (
            "keys not in an array",
            MSG,
            "keys must be an array of 1 to 16 blobs",
            good[:at] + b"\xc4\x00\x00",
        ),
        ("keys a huge array", MSG, MANY, good[:at] + bytes.fromhex("dd0fffffff") + good[at + 1 :]),
        (
            "keys a huge blob",
            MSG,
            SHORT,
            good[: at + 1] + bytes.fromhex("c6ffffffe0") + good[at + 1 :],
        ),
        ("sub a huge str", MSG, SHORT, good[:5] + bytes.fromhex("dbffffffff") + good[6:]),
        (
            "sub an ext",
            MSG,
            "sub must be UTF-8 text of at most 127 bytes without NUL",
            good[:5] + bytes.fromhex("d40000") + good[6:],
        ),
        (
            "sub a million arrays in each other",
            MSG,
            "sub must be UTF-8 text of at most 127 bytes without NUL",
            good[:5] + b"\x91" * 1000000,
        ),
        (
            "flags a float",
            MSG,
            "flags of LOOKUP must be a sum of 2, 64, 256 and 512",
            good[:-1] + bytes.fromhex("ca40000000"),
        ),
        (
            "deadline too long",
            ARG,
            "deadline_ms must be an integer from 0 to 600000",
            raw_request("lookup", [1, "", 0, [b""], 0], deadline=600001),
        ),
        (
            "longest deadline",
            ARG,
            "deadline_ms must be an integer from 0 to 600000",
            raw_request("lookup", [1, "", 0, [b""], 0], deadline=U64),
        ),
        ("deadline and fields both wrong", MSG, few, b"\x93\x04\x01\xce\xff\xff\xff\xff"),
    ):
        assert good[4:6] == b"\x01\xa0"
        out.append(reject("lookup", case, err, detail, raw))
    group = raw_request("ns_open", LLAMA + [1, 0, 0, 0, [[16, 64, 0, 0, 0]]])
    assert group[-6] == 0x95
    for case, raw in (
        ("a group of 4", group[:-6] + b"\x94" + group[-5:-1]),
        ("a group of 6", group[:-6] + b"\x96" + group[-5:] + b"\x00"),
        ("a group that is no array", group[:-6] + b"\x10"),
    ):
        out.append(
            reject("ns_open", case, MSG, "groups must be an array of 1 to 16 arrays of 5", raw)
        )
    out.append(reject("ping", "a field more", MSG, few, bytes.fromhex("9402010000")))
    out.append(
        reject(
            "ping",
            "another operation",
            MSG,
            "another operation than expected",
            bytes.fromhex("93040100"),
        )
    )
    return out


def reject_replies():
    cases = [
        ("cancel", ARG, "found must be 0 or 1", [2]),
        ("ns_spec", ARG, "own must be 0 or 1", [2] + LLAMA + [1, 0, 0, 0, [[16, 64, 0, 0, 0]]]),
        (
            "ns_spec",
            ARG,
            "block_tokens must be an integer from 1 to 65536",
            [1] + LLAMA + [1, 0, 0, 0, [[0, 64, 0, 0, 0]]],
        ),
        ("ns_open", ARG, "seed must be binary of 32 bytes", [1, bytes(31), []]),
        ("ns_open", ARG, "similar must be an array of at most 4 arrays of 2", [1, SEED, [[1, 1]] * 5]),
        (
            "trace_dump",
            ARG,
            "ids must be binary of at most 131072 x 8 bytes",
            [0, 0, [[0] * 5 + [bytes(7)]]],
        ),
        (
            "verify",
            ARG,
            "corrupt must be an array of at most 64 arrays of 8",
            [0, 0, 0, 0, 0, [[K[0]] + [0] * 7] * 65],
        ),
        ("drain", ARG, "stop must be an integer from 0 to 255", [0, 256]),
        (
            "policy",
            ARG,
            "levels must be an array of at most 101 arrays of 2",
            ["", "", ""] + [0] * 24 + [[[0, 0]] * 102],
        ),
        (
            "policy",
            ARG,
            "priority must be an integer from 0 to 100",
            ["", "", ""] + [0] * 24 + [[[101, 0]]],
        ),
        (
            "policy",
            ARG,
            "chosen must be UTF-8 text of at most 255 bytes without NUL",
            ["", "", "c" * 256] + [0] * 24 + [[]],
        ),
        (
            "pages_load",
            ARG,
            "statuses must be binary of at most 4096 bytes",
            [0, 0, [[0, bytes(4097), 0, 0]]],
        ),
        ("pages_load", ARG, "groups must be an array of 1 to 16 arrays of 4", [0, 0, []]),
        (
            "name_tokens",
            ARG,
            "ids must be binary of at most 262144 x 4 bytes",
            [1, bytes(3)],
        ),
        ("lookup", ARG, "groups must be an array of 1 to 16 arrays of 3", [0, 0, 0, []]),
        ("lookup", ARG, "groups must be an array of 1 to 16 arrays of 3", [0, 0, 0, [[0, 0, 0]] * 17]),
        ("lookup", ARG, "reason must be an integer from 0 to 255", [0, 0, 0, [[0, 256, 0]]]),
        (
            "acquire",
            ARG,
            "locs must be binary of at most 131072 x 32 bytes",
            [0, 0, 0, bytes(16), [[0, bytes(31), 0, 0]]],
        ),
        ("acquire", ARG, "ticket must be binary of 16 bytes", [0, 0, 0, b"", [[0, b"", 0, 0]]]),
        ("reserve", ARG, "statuses must be binary of 1 to 4096 bytes", [1, b""]),
        ("commit", ARG, "statuses must be binary of 1 to 4096 bytes", [b"\x00" * 4097]),
        (
            "hello",
            ARG,
            "server must be UTF-8 text of at most 127 bytes without NUL",
            [1, "s" * 128],
        ),
    ]
    out = [
        reject(m + "_reply", "%d: %s" % (i, detail), err, detail, raw_reply(m, v))
        for i, (m, err, detail, v) in enumerate(cases)
    ]
    few = "the reply has too few or too many fields"
    out += [
        reject(
            "lookup_reply",
            "of another operation",
            MSG,
            "a reply to another operation than expected",
            raw_reply("ping", [1]),
        ),
        reject("ping_reply", "a field less", MSG, few, bytes.fromhex("93cc820100")),
        reject("ping_reply", "a field more", MSG, few, bytes.fromhex("95cc8201000000")),
        reject("drop_reply", "a field more", MSG, few, bytes.fromhex("94cc8b010000")),
        reject(
            "stats_reply", "more is 2", ARG, "more must be 0 or 1", bytes.fromhex("95cc8d01000290")
        ),
        reject(
            "stats_reply",
            "items no array",
            MSG,
            "items must be an array of arrays",
            bytes.fromhex("95cc8d0100 00c0".replace(" ", "")),
        ),
        reject("stats_reply", "huge items", MSG, MANY, bytes.fromhex("95cc8d010000dd0fffffff")),
        reject(
            "stats_reply",
            "of an operation without a list",
            MSG,
            "a reply to an operation that has no list",
            bytes.fromhex("95cc8201000090"),
        ),
        reject("stats_reply", "a field less", MSG, few, bytes.fromhex("94cc8d010000")),
    ]
    for case, err, raw in (
        ("an item of 2", MSG, "91 92 a161 00"),
        ("an item of 4", MSG, "91 94 a161 00 00 00"),
        ("an item that is no array", MSG, "91 07"),
        ("an item too few", MSG, "92 93 a161 00 00"),
        ("a byte left over", MSG, "91 93 a161 00 00 00"),
        ("an empty name", ARG, "91 93 a0 00 00"),
        ("kind 2", ARG, "91 93 a161 02 00"),
        ("a name of 64 bytes", ARG, "91 93 d940" + "61" * 64 + "00 00"),
    ):
        out.append(
            reject(
                "stats_reply", case, err, None, bytes.fromhex("95cc8d010000" + raw.replace(" ", ""))
            )
        )
    return out + reject_rows()


def reject_rows():
    cells = "columns must be an array of at most 32 texts"
    ns, model = [("ns", "i")], [("model", "t")]
    one = ("namespaces", ["ns"], [[7]], b"")
    return [
        reject("list_reply", "%d: %s" % (i, detail), err, detail, raw)
        for i, (err, detail, raw) in enumerate(
            (
                (ARG, cells, rows_raw("namespaces", ["c%d" % k for k in range(33)], [], b"")[0]),
                (ARG, cells, rows_raw("namespaces", [""], [], b"")[0]),
                (ARG, cells, rows_raw("namespaces", ["n" * 128], [], b"")[0]),
                (MSG, "a column is there twice", rows_raw("namespaces", ["ns", "ns"], [], b"")[0]),
                (MSG, None, rows_raw("namespaces", ["ns", "model"], [[7]], b"", 1, ns)[0]),
                (ARG, None, rows_raw("namespaces", ["ns"], [[U32 + 1]], b"", 1, ns)[0]),
                (MSG, None, rows_raw("namespaces", ["ns"], [["7"]], b"", 1, model)[0]),
                (ARG, None, rows_raw("namespaces", ["model"], [["m" * 128]], b"", 1, model)[0]),
                (ARG, None, rows_raw("namespaces", ["model"], [["m\0"]], b"", 1, model)[0]),
                (ARG, None, rows_raw(*one[:3], bytes(321), 1, ns)[0]),
                (MSG, None, rows_raw(*one, 1, ns)[0] + b"\0"),
                (MSG, None, rows_raw(*one, 1, ns)[0].replace(b"\xac\x01\x00\x01", b"\xac\x01\x00\x7f")),
                (MSG, "the reply has too few or too many fields", bytes.fromhex("95ccac01000190")),
            )
        )
    ]


def reject_attaches():
    def raw(name, values, magic=b"kvca"):
        code, spec = ATTACH[name]
        head = pack_array(1 + len(spec) + (name == "hello")) + pack_int(code)
        return head + (pack_text(magic) if name == "hello" else b"") + body(spec, values)

    good = [0, "", 1, 12, bytes(range(1, 17)), "ipc:///x", 0, "a", "t", 0, 0]

    def welcome(i, bad):
        return raw("welcome", good[:i] + [bad] + good[i + 1 :])

    def mem(i, bad):
        values = [0, bytes(16), 1, 4096, 0, b""]
        return values[:i] + [bad] + values[i + 1 :]

    def on(i, bad):
        values = [0, "", 1 << 24, bytes(16), 1, 4096, 0, b""]
        return values[:i] + [bad] + values[i + 1 :]

    rows = [
        ("att_hello", "no bytes", MSG, b""),
        ("att_hello", "code 0", MSG, bytes.fromhex("9100")),
        ("att_hello", "code 14", MSG, bytes.fromhex("910e")),
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
        ("att_words", "513 words", ARG, raw("words", [513])),
        ("att_words_are", "a field less", MSG, bytes.fromhex("930800a0")),
        ("att_mem", "number 1024", ARG, raw("mem", mem(0, 1024))),
        ("att_mem", "uuid of 15", ARG, raw("mem", mem(1, bytes(15)))),
        ("att_mem", "kind 0", ARG, raw("mem", mem(2, 0))),
        ("att_mem", "kind 4", ARG, raw("mem", mem(2, 4))),
        ("att_mem", "no bytes", ARG, raw("mem", mem(3, 0))),
        ("att_mem", "offset without IPC", ARG, raw("mem", mem(4, 1))),
        ("att_mem", "IPC bytes without IPC", ARG, raw("mem", mem(5, bytes(64)))),
        ("att_mem", "IPC without its bytes", ARG, raw("mem", mem(2, 2))),
        ("att_mem", "63 IPC bytes", ARG, raw("mem", [0, bytes(16), 2, 1, 0, bytes(63)])),
        ("att_mem", "offset beyond 2^64", ARG, raw("mem", [0, bytes(16), 2, 2, U64 - 1, bytes(64)])),
        ("att_mem_is", "detail of 513", ARG, raw("mem_is", [1, "d" * 513, 0])),
        ("att_mem_drop", "number 1024", ARG, raw("mem_drop", [1024])),
        ("att_map_on", "chunk 2^32", ARG, raw("map_on", [U32 + 1])),
        ("att_chunk_on", "OK without a kind", ARG, raw("chunk_on", on(4, 0))),
        ("att_chunk_on", "kind 4", ARG, raw("chunk_on", on(4, 4))),
        ("att_chunk_on", "a kind with an error", ARG, raw("chunk_on", on(0, 13))),
        ("att_chunk_on", "IPC bytes without IPC", ARG, raw("chunk_on", on(7, bytes(64)))),
        ("att_unmapped", "chunk 2^32", ARG, raw("unmapped", [U32 + 1])),
        ("att_unmapped", "a field more", MSG, bytes.fromhex("930e0100")),
    ]
    return [reject(m, case, err, None, r) for m, case, err, r in rows]
