# SPDX-License-Identifier: Apache-2.0
"""PROTOCOL.md a second time, on the standard library alone and without a look at the C code.

Functions that give one section of a vector file each: the fields of a message, and its bytes.
"""

import hashlib
import struct

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
RESERVE = fields("ns sub:t flags group shard parent:b first_token keys:b last_tokens retain:b")
CORRUPT = fields("key:b ns group shard tier below chunk off")
RECORD = fields("ns block_tokens timestamp_ms input_tokens output_tokens ids:b")
NAMES = fields(
    "kind name:t principal:t tenant:t sub_tenant:t model:t ns tokens tokens_cached blocks bytes"
    " bytes_in_memory bytes_on_disk age_ms idle_ms ttl_ms priority pinned has_tokens tip:b"
)
# Tables of LIST: number, columns.
TABLES = {
    "namespaces": (
        1,
        fields(
            "ns principal:t tenant:t sub_tenant:t model:t dtype:t shards groups block_tokens"
            " block_bytes blocks bytes host_bytes nvme_bytes device_bytes pinned_bytes named_bytes"
            " promised_bytes leased_bytes"
        ),
    ),
    "sessions": (
        2,
        fields(
            "session name:t principal:t tenant:t uid pid dropped leases leased_bytes lease_age_ms"
            " reservations reserved_bytes reservation_age_ms"
        ),
    ),
    "pins": (
        3,
        fields(
            "pin principal:t tenant:t sub_tenant:t ns tokens bytes in_memory left_ms tip:b"
        ),
    ),
    "quotas": (
        4,
        fields(
            "scope tenant:t sub_tenant:t ns host_limit nvme_limit host_share nvme_share host_bytes"
            " nvme_bytes host_promised nvme_promised"
        ),
    ),
    "paths": (
        5,
        fields(
            "path:t state error:t bytes used_bytes formatted_bytes reads read_bytes read_p50_us"
            " read_p99_us read_max_us writes write_bytes write_p50_us write_p99_us write_max_us"
            " syncs queued queued_bytes errors outs"
        ),
    ),
    "writes": (
        6,
        fields(
            "per_day_bytes spent_bytes left_bytes accepted_bytes written_bytes kept_bytes"
            " journal_bytes"
        ),
    ),
    "devices": (
        7,
        fields(
            "device:t used_bytes limit_bytes blocks name:t up why:t emulated memory_bytes"
            " imported_bytes held_bytes hits fills drops copies copy_bytes failures outs plain_to"
            " plain_from uuid:b"
        ),
    ),
    "rates": (
        8,
        fields(
            "device:t fragment_bytes to_engine to_kernel to_window from_engine from_kernel to_path"
            " from_path"
        ),
    ),
    "conversations": (9, NAMES),
    "documents": (10, NAMES),
    "blocks": (
        11,
        fields(
            "key:b parent:b ns group depth state reason detail tokens shards shards_present leases"
            " children bytes age_ms tier chunk offset"
        ),
    ),
}

SPEC = fields(
    "model:t revision:t dtype:t quant:t layout:t position:t position_params:t"
    " attention:t lora:t extra:t sub:t layers kv_heads head_size shards flags"
    " prefill_ns_per_token prefill_ns_per_token_pair"
) + [("groups", GROUP)]

REQUESTS = {
    "hello": (1, fields("ver_min ver_max")),
    "ping": (2, []),
    "ns_open": (3, SPEC),
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
    "evict": (16, fields("flags ns key:b older_than_ms bytes tenant:t model:t priority_below")),
    "verify": (18, fields("ns tier cursor bytes_max")),
    "trace": (19, fields("action ns bytes")),
    "trace_dump": (20, fields("ns cursor")),
    "drain": (21, fields("bytes_max")),
    "name_put": (24, fields("kind name:t") + SEQ + fields("flags priority ttl_ms ids:b")),
    "name_forget": (26, fields("kind name:t sub:t evict dry_run")),
    "name_load": (27, fields("kind name:t sub:t ttl_ms flags")),
    "name_tokens": (28, fields("kind name:t sub:t first")),
    "pin": (29, SEQ + fields("tier ttl_ms")),
    "unpin": (30, fields("pin")),
    "quota_set": (
        32,
        fields("scope tenant:t sub:t ns host_limit nvme_limit host_share nvme_share"),
    ),
    "list": (44, fields("table max cursor:b prefix:t exact sub:t ns group mode keys:b depth")),
    "policy": (35, fields("action name:t keep_percent load_or_recompute admission pin_bytes_max")),
    "ns_spec": (36, fields("ns")),
    "hint": (23, SEQ + fields("kind within_ms")),
    "pool_open": (
        38,
        fields("pool uuid:b pages_max") + [("groups", fields("pages_per_block regions:b"))],
    ),
    "pool_close": (39, fields("pool")),
    "pages_load": (
        40,
        SEQ
        + fields("flags shard from_tokens wait_tokens pool after_word after_value ready_word")
        + fields("ready_value")
        + [("pages", "*b")],
    ),
    "pages_store": (41, RESERVE + fields("pool after_word after_value pages:b tokens:b")),
    "session_end": (43, fields("session")),
    "acquire_on": (42, SEQ + fields("flags shard from_tokens wait_tokens uuid:b")),
}
EVICTED = fields("blocks bytes kept_blocks host_bytes nvme_bytes device_bytes")
ACQUIRE_REPLY = fields("hit_tokens cached_tokens lease ticket:b") + [
    ("groups", fields("first locs:b reason detail"))
]
REPLIES = {
    "hello": fields("version server:t"),
    "ping": fields("uptime_ms"),
    "ns_open": fields("ns seed:b") + [("similar", fields("ns fields"))],
    "ns_spec": fields("own") + SPEC,
    "lookup": fields("hit_tokens cached_tokens load_us") + [("groups", fields("blocks reason detail"))],
    "acquire": ACQUIRE_REPLY,
    "redeem": ACQUIRE_REPLY,
    "release": fields("released"),
    "reserve": fields("reservation statuses:b"),
    "commit": fields("statuses:b"),
    "store": fields("statuses:b"),
    "drop": [],
    "hint": [],
    "cancel": fields("found"),
    "evict": EVICTED,
    "verify": fields("cursor blocks bytes skipped failed") + [("corrupt", CORRUPT)],
    "trace": fields("on ns bytes used_bytes records dropped age_ms"),
    "trace_dump": fields("cursor lost") + [("items", RECORD)],
    "drain": fields("left stop"),
    "name_put": fields("tokens bytes"),
    "name_forget": EVICTED + fields("kept_named kept_pinned kept_used kept_below kept_passed"),
    "name_load": fields("bytes"),
    "name_tokens": fields("tokens ids:b"),
    "pin": fields("pin bytes"),
    "unpin": [],
    "quota_set": [],
    "session_end": [],
    "policy": fields(
        "name:t text:t chosen:t keep_percent load_or_recompute admission pin_bytes_max"
        " keep_percent_start load_or_recompute_start admission_start pin_bytes_max_start storage"
        " hints admits pins all writes_per_day spent_bytes left_bytes load_bytes_per_s"
        " load_latency_us hints_ended hints_continue hints_soon hints_scan wishes wishes_ended"
    )
    + [("levels", fields("priority blocks"))],
    "pool_open": [],
    "pool_close": [],
    "pages_load": fields("hit_tokens cached_tokens")
    + [("groups", fields("first statuses:b reason detail"))],
    "pages_store": fields("statuses:b"),
    "acquire_on": ACQUIRE_REPLY,
}
ITEMS = {
    "stats": fields("name:t kind value"),
}
ATTACH = {
    "hello": (1, fields("ver_min ver_max client:t staging_bytes shard")),
    "welcome": (
        2,
        fields(
            "status detail:t version session route:b endpoint:t staging_bytes"
            " principal:t tenant:t admin gateway"
        ),
    ),
    "map": (3, fields("chunk")),
    "chunk": (4, fields("status detail:t chunk bytes")),
    "retired": (5, fields("chunk")),
    "dropped": (6, fields("status detail:t")),
    "words": (7, fields("words")),
    "words_are": (8, fields("status detail:t bytes")),
    "mem": (9, fields("mem uuid:b kind bytes offset ipc:b")),
    "mem_is": (10, fields("status detail:t mem")),
    "mem_drop": (11, fields("mem")),
    "map_on": (12, fields("chunk")),
    "chunk_on": (13, fields("status detail:t chunk uuid:b kind bytes offset ipc:b")),
    "unmapped": (14, fields("chunk")),
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
        return '"%s"' % "".join(
            "\\x%02x" % ord(c) if ord(c) < 32 or ord(c) == 127 else c for c in out
        )
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
                lines += ["%s[%d].%s" % (name, i, line) for line in show_fields(kind, item)]
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
    return "[%s] %s\n%shex = %s\n" % (
        message,
        case,
        "".join(x + "\n" for x in lines),
        wrap(hex_text(raw)) or "-",
    )


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
    return section(
        name + "_reply",
        case,
        lines + show_fields(REPLIES[name], values),
        raw + body(REPLIES[name], values),
    )


def error(name, case, status, detail, corr=1):
    raw, lines = reply_head(name, corr, status, 1)
    return section(
        "error", case, lines + show_fields(fields("detail:t"), [detail]), raw + pack_text(detail)
    )


def listing(name, case, more, items, corr=1):
    raw, lines = reply_head(name, corr, 0, 2)
    spec = [("more", "i"), ("items", ITEMS[name])]
    return section(
        name + "_reply",
        case,
        lines + show_fields(spec, [more, items]),
        raw + body(spec, [more, items]),
    )


def rows_raw(table, names, rows, cursor, corr=1, spec=None):
    """The bytes of a LIST reply; spec: the cells' types, where they are not the table's."""
    number, columns = TABLES[table]
    raw, lines = reply_head("list", corr, 0, 4)
    raw += pack_int(number) + pack_array(len(names)) + b"".join(pack_text(n) for n in names)
    return raw + pack_value(spec or columns, rows) + pack_bin(cursor), lines


def rows(table, case, values, cursor=b"", corr=1):
    number, columns = TABLES[table]
    raw, lines = rows_raw(table, [n for n, _ in columns], values, cursor, corr)
    shown = [("table", "i"), ("rows", columns), ("cursor", "b")]
    return section(
        "list_reply", table + ", " + case, lines + show_fields(shown, [number, values, cursor]), raw
    )


def attach(name, case, values):
    code, spec = ATTACH[name]
    raw = pack_array(1 + len(spec) + (name == "hello")) + pack_int(code)
    raw += pack_text("kvca") if name == "hello" else b""
    return section("att_" + name, case, show_fields(spec, values), raw + body(spec, values))


# ---- keys ----


def block_key(parent, tokens, extra):
    def part(tag, raw):
        return bytes([tag]) + struct.pack("<Q", len(raw)) + raw

    return hashlib.sha256(
        part(1, parent) + part(2, struct.pack("<%dI" % len(tokens), *tokens)) + part(3, extra)
    ).digest()


def chain(parent, tokens, block_tokens, extra=b""):
    keys = []
    for at in range(0, len(tokens), block_tokens):
        parent = block_key(parent, tokens[at : at + block_tokens], extra)
        keys.append(parent)
    return keys


def key_case(case, parent, tokens, block_tokens, extra=b""):
    lines = [
        "parent = " + parent.hex(),
        "block_tokens = %d" % block_tokens,
        "extra = " + (extra.hex() or "-"),
        "tokens = %d items" % len(tokens),
    ]
    for at in range(0, len(tokens), 16):
        lines.append("      " + " ".join(str(t) for t in tokens[at : at + 16]))
    lines += [
        "key[%d] = %s" % (i, k.hex())
        for i, k in enumerate(chain(parent, tokens, block_tokens, extra))
    ]
    return "[keys] %s\n%s\n" % (case, "\n".join(lines))


SEED = bytes(range(32))
K = chain(SEED, list(range(1, 41)), 16)  # two full blocks and one of 8 tokens

# Of LIST: no blocks are asked for; what is before those that are.
ALL = [0, 0, 0, b"", 0]
BLOCKS = [11, 0, b"", "", 0, ""]


def u64s(*v):
    return struct.pack("<%dQ" % len(v), *v)


def u32s(*v):
    return struct.pack("<%dI" % len(v), *v)


def retain(first, end, priority, duration):
    return struct.pack("<IIIQ", first, end, priority, duration)


def region(mem, layer, base, stride, page):
    return struct.pack("<IIQQQQ", mem, layer, base, stride, page, 0)


def loc(chunk, nbytes, off, hdr, gen):
    return struct.pack("<IIQQQ", chunk, nbytes, off, hdr, gen)


LLAMA = [
    "llama-3.1-8b",
    "8c22764a",
    "bf16",
    "",
    "layers,kv,heads,tokens,dim",
    "rope",
    "theta=500000",
    "causal",
    "",
    "",
    "",
    32,
    8,
    128,
]
