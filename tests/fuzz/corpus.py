#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Corpora of the fuzz targets: seeds out of the tree, packing and unpacking.

    corpus.py seeds DIR                 writes DIR/<target>.txt for each target, and dictionaries
    corpus.py unpack FILE... DIR        one file an input, named by its hash, as libFuzzer wants it
    corpus.py pack DIR FILE [EXCEPT..]  the other way; leaves out what is in EXCEPT (packed files)
    corpus.py add FILE INPUT...         adds inputs to a packed file, to be kept for good

README.md describes the packed form. A new message needs nothing here: its golden vectors are
seeds. A new command of kvcachectl is found by its help text and its cases in test_usage.sh.
"""

import glob
import json
import hashlib
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SEED_MAX = 4096
KEPT_MAX = 300  # inputs of a packed corpus; the shortest stay
# Words that the gates of the tree look for; an input may hold them by chance.
FENCED = re.compile(rb"[t]odo|[f]ixme|[x]xx|[h]ack|[s]tub|[p]laceholder|implemented|/(?=(work|home|users)/)", re.I)


# ---- the packed form ----


def escape(data):
    out = []
    fenced = {m.start() for m in FENCED.finditer(data)}
    for i, b in enumerate(data):
        last = i == len(data) - 1
        if b == 0x5C:
            out.append("\\\\")
        elif b == 0x0A:
            out.append("\\n")
        elif b == 0x09:
            out.append("\\t")
        elif b == 0x0D:
            out.append("\\r")
        elif b < 0x20 or b > 0x7E or (b == 0x20 and last) or (b == 0x23 and i == 0) or i in fenced:
            out.append("\\x%02x" % b)
        else:
            out.append(chr(b))
    return "".join(out)


def unescape(line):
    def one(m):
        c = m.group(1)
        return chr(int(c[1:], 16)) if c[0] == "x" else {"n": "\n", "t": "\t", "r": "\r"}.get(c, c)

    return re.sub(r"\\(x[0-9a-f]{2}|.)", one, line).encode("latin-1")


def read_packed(path):
    with open(path, encoding="latin-1") as f:
        lines = f.read().split("\n")
    return [unescape(line) for line in lines if line and not line.startswith("#")]


KEPT = "# kept: what broke something once"


def read_kept(path):
    """The inputs that no minimiser takes out."""
    with open(path, encoding="latin-1") as f:
        lines = f.read().split("\n")
    at = lines.index(KEPT) if KEPT in lines else len(lines)
    return [unescape(line) for line in lines[at + 1 :] if line]


def write_packed(path, inputs, what, kept=()):
    seen, lines = set(kept), []
    for data in inputs:
        if data and data not in seen:
            seen.add(data)
            lines.append(escape(data))
    head = ["# SPDX-License-Identifier: Apache-2.0", "# " + what]
    tail = [KEPT] + [escape(data) for data in kept] if kept else []
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(head + lines + tail) + "\n")
    return len(lines) + len(kept)


# ---- golden vectors ----


def vector_hex(text):
    out = b""
    if text.strip() == "-":
        return out
    for word in text.split():
        run = re.fullmatch(r"((?:[0-9a-f]{2})*)([0-9a-f]{2})\*(\d+)", word)
        if run:
            out += bytes.fromhex(run.group(1)) + bytes.fromhex(run.group(2)) * int(run.group(3))
        else:
            out += bytes.fromhex(word)
    return out


def vectors(name):
    """(message, bytes) of a vector file."""
    with open(os.path.join(ROOT, "tests", "golden", name), encoding="utf-8") as f:
        text = f.read()
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    out, message = [], None
    for i, line in enumerate(lines):
        if line.startswith("["):
            message = line[1 : line.index("]")]
        elif line.startswith("hex = "):
            hexes = [line[6:]]
            for more in lines[i + 1 :]:
                if not more.startswith(" "):
                    break
                hexes.append(more)
            out.append((message, vector_hex(" ".join(hexes))))
    return [(m, b) for m, b in out if len(b) <= SEED_MAX]


FILES = ("requests.txt", "replies.txt", "attach.txt", "example.txt", "rejects.txt")


def golden():
    return [v for name in FILES for v in vectors(name)]


# ---- records ----


def record(verb, arg=0, data=b""):
    return struct.pack("<BBH", verb, arg, len(data)) + data


CONNECT, ATTACH, LEAVE, REQUEST, FIT, TURN, COPIES, STAGING = range(8)
DEAF, NO_ROOM, RETIRED, ODD, READY, BLOCKS, DRAIN, SAME, DEVICE = range(8, 17)
DATAGRAM, WITH_FILE, WITH_TWO, MESSAGE, REPLY, HANG_UP, BROKEN, LATER, CALL = range(9)


def svc_seeds():
    out = []
    two = record(READY, 8 + 48 * 2) + record(READY, 8 * 4 + 1 + 48 * 2)
    opened = two + record(BLOCKS, 0, b"\0\1\0\0") + record(BLOCKS, 1, b"\0\1\0\0")
    stored = opened + record(BLOCKS, 0, b"\0\1\5\5") + record(COPIES, 15)
    for message, data in golden():
        if message.startswith("att_"):
            out.append(record(CONNECT, 8) + record(ATTACH, 0, data) + record(STAGING) + record(LEAVE))
        elif not message.endswith("_reply") and message != "error":
            out.append(stored + record(FIT, 0, b"\0" + data) + record(COPIES, 3))
            out.append(two + record(REQUEST, 0, data))
    traced = record(READY, 2) + record(BLOCKS, 2, b"\0\1\0\0")
    on, dump, off = (record(BLOCKS, 2, bytes([0, 1, 7, 8, w])) for w in (34, 3, 66))
    asked = b"".join(record(BLOCKS, 0, bytes([n, n, 7, 2])) for n in range(6))
    out.append(stored + traced + on + asked + dump + record(BLOCKS, 2, b"\0\1\7\x08\x13") + off)
    out.append(stored + traced + on + on + asked + asked + dump + off + off + dump)
    inside = [record(BLOCKS, 0, bytes([0, 1, 7, 8, what])) for what in range(0, 256, 5)]
    out.append(stored + b"".join(inside) + record(COPIES, 15))
    out += [stored + record(BLOCKS, 0, bytes([0, 1, 7, 8, 34])) + i + i + record(TURN, 5) for i in inside]
    for op in range(8):
        for end in (record(COPIES, 15), record(TURN, 5), record(LEAVE, 0), record(COPIES, 200)):
            step = record(BLOCKS, 0, bytes([0, 1, 7, op]))
            out.append(opened + step + record(BLOCKS, 1, b"\0\1\7\2") + end)
            out.append(stored + record(SAME, 3) + step + step + record(BLOCKS, 0, b"\0\1\0\6") + end)
    mem, there = (record(DEVICE, 0, bytes([0, 0, 0, 5 + 8 * what, how])) for what, how in ((5, 1), (1, 0)))
    pool, copied = record(DEVICE, 0, b"\0\0\0\0\0"), record(DEVICE, 0, b"\0\0\0\5\7") * 2
    paged = stored + mem + there + pool
    for op in range(1, 8):
        for end in (copied, record(TURN, 5), record(LEAVE, 0), record(DEVICE, 0, b"\0\0\0\x15\0")):
            step = record(DEVICE, 0, bytes([0, 1, 7, op, 0]))
            out.append(paged + step + end + record(BLOCKS, 0, b"\0\1\0\6") + copied)
    for verb in (DEAF, NO_ROOM, RETIRED, DRAIN, LEAVE):
        out.append(stored + record(verb, 1) + record(BLOCKS, 1, b"\0\1\7\5") + record(TURN, 6))
    out.append(stored + record(ODD, 16, b"k" * 40))
    return out


def attach_seeds():
    out = []
    hello = [d for m, d in vectors("replies.txt") if m == "hello_reply"][0]
    acquire = [d for m, d in vectors("replies.txt") if m == "acquire_reply"]
    for message, data in vectors("attach.txt") + vectors("rejects.txt"):
        if not message.startswith("att_"):
            continue
        for verb, arg in ((DATAGRAM, 0), (WITH_FILE, 0), (WITH_FILE, 5), (WITH_TWO, 3)):
            out.append(record(verb, arg, data) + record(REPLY, 0, hello) + record(CALL, 0))
        out.append(record(LATER) + record(LATER, 1) + record(DATAGRAM, 0, data) + record(CALL))
    for data in acquire:
        for message, chunk in vectors("attach.txt"):
            out.append(record(CALL, 1) + record(REPLY, 0, data) + record(WITH_FILE, 5, chunk))
    for end in (record(HANG_UP), record(BROKEN, 0), record(BROKEN, 2)):
        out.append(record(CALL, 1) + end + record(CALL, 0) + record(LATER, 3) + record(CALL, 1))
    return out


# Operation: argument of a CALL record; from 256 on of an INSPECT record (fuzz_reply.c).
INSPECT, HALVES = 9, 10
CALL_OF = {
    "verify": 256 + 3, "trace": 256 + 4, "trace_dump": 256 + 7, "ns_spec": 256 + 249, "unpin": 256 + 250, "quota_set": 256 + 251, "session_end": 256 + 252, "policy": 256 + 253, "drain": 256 + 254, "ping": 0, "stats": 1, "list": 2, "evict": 4, "name_forget": 4 + 32, "lookup": 5, "acquire": 6,
    "redeem": 8, "reserve": 9, "commit": 10, "store": 11, "drop": 12,
}  # fmt: skip


def acquired(*places):
    """An ACQUIRE reply with one group of blocks of 4 KiB: (chunk, offset) each; all of it hit."""
    locs = b"".join(struct.pack("<IIQQQ", chunk, 4096, at, 8, 0) for chunk, at in places)
    head = b"\x98\xcc\x85\x01\x00\x40\x40\x05\xc4\x10" + 16 * b"t"
    return head + b"\x91\x94\x00\xc5" + struct.pack(">H", len(locs)) + locs + b"\x01\x00"


def calling(call):
    return record(INSPECT, call - 256) if call >= 256 else record(CALL, call)


def halves_seeds():
    """Each begin half; its reply, or what else may come; then what a loop does."""
    out = []
    begun = ("ping", "lookup", "acquire", "redeem", "reserve", "commit", "store", "drop", "ns_open")
    ends = (b"", record(HANG_UP), record(LATER, 3), record(HALVES, 11), record(HALVES, 12), record(BROKEN))
    for what, name in enumerate(begun):
        for message, data in vectors("replies.txt"):
            if message in (name + "_reply", "error") and len(data) < 256:
                both = record(HALVES, 9) + record(HALVES, what) + record(HALVES, what + 16)
                out.append(both + record(REPLY, 0, data) + record(HALVES, 15) + record(HALVES, 10))
        for end in ends:
            out.append(record(HALVES, what) + end + record(HALVES, 15) + record(HALVES, what + 16))
    return out


def written():
    """Replies with a status for each of four keys, as the target asks for."""
    reserved = record(CALL, 9) + record(REPLY, 0, b"\x95\xcc\x88\x01\x00\x05\xc4\x04\0\0\0\0")
    some = record(CALL, 9) + record(REPLY, 0, b"\x95\xcc\x88\x01\x00\x05\xc4\x04\0\x15\x14\x0c")
    commit = record(CALL, 10) + record(REPLY, 0, b"\x94\xcc\x89\x01\x00\xc4\x04\0\0\x0d\0")
    late = record(CALL, 10) + record(LATER, 3) + record(REPLY, 0, b"\x94\xcc\x89\x01\x08\xa1t")
    store = record(CALL, 11) + record(REPLY, 0, b"\x94\xcc\x8a\x01\x00\xc4\x04\0\x15\0\0")
    timeout = record(CALL, 11) + record(REPLY, 0, b"\x94\xcc\x8a\x01\x08\xa1t")
    cancelled = record(REPLY, 0, b"\x94\xcc\x8c\x01\x00\x01")
    drop = record(CALL, 12) + record(REPLY, 0, b"\x93\xcc\x8b\x01\x00")
    pairs = (reserved + commit, reserved + drop + drop, some + commit + drop, store + store)
    more = (timeout + cancelled, reserved + late + cancelled, timeout + timeout, reserved + reserved)
    again = (record(HANG_UP) + record(LATER, 3) + commit + drop, drop + commit)
    return list(pairs + more) + [reserved + a for a in again]


def reply_seeds():
    out = halves_seeds()
    held = record(CALL, 6) + record(REPLY, 0, acquired((1, 4096), (1, 8192), (2, 0)))
    gone = record(DATAGRAM, 0, b"\x93\x06\x11\xa1x"), record(DATAGRAM, 0, b"\x92\x05\x01")
    for end in gone + (record(HANG_UP), record(LATER, 1), record(CALL, 22), record(CALL, 6)):
        out.append(held + end + record(LATER, 1) + record(CALL, 0) + record(CALL, 14) + record(CALL, 6))
    out += written()
    for places in (((1, 4096),), ((3, (1 << 20) - 4096),), ((3, (1 << 20) - 4095),), ((9, 0), (1, 0))):
        out.append(record(CALL, 6) + record(REPLY, 0, acquired(*places)) + record(CALL, 14))
    short = record(WITH_FILE, 3, b"\x95\x04\x00\xa0\x01\xce\x00\x10\x00\x00")
    out.append(short + record(CALL, 6) + record(REPLY, 0, acquired((1, 8192))) + record(CALL, 14))
    out.append(record(CALL, 8) + record(REPLY, 0, acquired((1, 4096)).replace(b"\x85", b"\x86")))
    chunks = [d for m, d in vectors("attach.txt") if m == "att_chunk"]
    for message, data in vectors("replies.txt") + vectors("rejects.txt"):
        call = CALL_OF.get(message.replace("_reply", ""))
        if message == "list_reply" and len(data) > 5:
            call += 16 * ((data[5] - 1) % 15)  # of its table
        if call is None or not message.endswith("_reply"):
            continue
        done = calling(call) + record(REPLY, 0, data)
        out.append(done)
        out.append(calling(call) + record(MESSAGE, 0, data) + record(LATER, 3) + record(CALL, 14))
        if call in (6, 8):
            out += [done + record(WITH_FILE, 5, c) + record(CALL, 15) for c in chunks]
    for message, data in vectors("replies.txt"):
        if message == "error":
            out += [calling(c) + record(REPLY, 0, data) for c in CALL_OF.values()]
    for end in (record(HANG_UP), record(BROKEN, 0), record(BROKEN, 1), record(BROKEN, 2), record(LATER, 3)):
        out += [record(CALL, c) + end for c in range(14)]
    return out


# ---- texts ----


def source(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def c_strings(text):
    """Adjacent string literals of C, joined."""
    out = []
    for run in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', text):
        joined = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run))
        try:
            out.append(joined.encode("ascii").decode("unicode_escape").encode("latin-1"))
        except (UnicodeDecodeError, UnicodeEncodeError):
            continue
    return out


def config_seeds():
    yaml = source("etc/daemon.yaml")
    bare = re.sub(r"(?m)^\s*#.*\n?", "", yaml)
    out = [bare.encode(), re.sub(r"(?m)^#(?=principals|  )", "", yaml).encode()]
    out = [re.sub(rb"(?m)^\s*#.*\n?", b"", o) for o in out]
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "unit", "config", "*.c"))):
        for text in c_strings(source(os.path.relpath(path, ROOT))):
            if b":" in text and b"expected" not in text and len(text) <= SEED_MAX:
                out.append(text)
            if re.fullmatch(rb"[a-z_.]+=[^ ]*", text):
                out.append(b"\x01--set\n" + text)
    section = ""
    for line in bare.split("\n"):
        m = re.match(r"( *)([a-z_]+): *(.*)", line)
        if m and not m.group(1) and not m.group(3):
            section = m.group(2) + "."
        elif m:
            key = (section if m.group(1) else "") + m.group(2)
            out.append(b"\x01--set\n%s=%s" % (key.encode(), m.group(3).strip('"').encode()))
    words = ("--check-config", "--print-config", "--config\nx", "--set", "--frob", "-h", "word")
    out += [b"\x01" + w.encode() for w in words]
    return out


def trace_seeds():
    lines = [s for s in c_strings(source("tests/unit/bench/test_trace.c")) if s[:1] in (b"{", b"[")]
    sample = (
        b'{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}\n'
        b'{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, 2366]}\n'
    )
    return lines + [sample, sample + b"\n" + sample, sample.replace(b" ", b"")]


def ctl_seeds():
    out = []
    key = "c0ffee" + 58 * "0"
    text = source("tests/unit/ctl/test_usage.sh")
    for m in re.finditer(r'(?m)^ *expect \d "(?:[^"\\]|\\.)*"(.*)$', text):
        line = m.group(1).replace("$key", key).replace("${key}", key).replace("${key%0}", key[:-1])
        out.append(" ".join(line.replace('"', " ").split()))
    values = ("3", "5s", "4GiB", key, "x")
    row = r'\{"--([a-z-]+)'
    common = re.findall(row, source("client/ctl/options.c")) + ["ns"]
    for path in sorted(glob.glob(os.path.join(ROOT, "client", "ctl", "*.[c1]"))):
        text = source(os.path.relpath(path, ROOT)).replace("\\n", "\n").replace("\\-", "-")
        for m in re.finditer(r"kvcachectl ([a-z-][^\n'\"|;]*)", text):
            out.append(" ".join(m.group(1).split()))
        for command in re.findall(r"(?m)^int cmd_([a-z]+)\(", text):
            verbs = re.findall(r'\{"([a-z]+)", [a-z_]+\}', text)
            out += ["%s %s" % (command, verb) for verb in verbs]
            out += ["%s %s --help" % (command, verb) for verb in verbs]
            out.append(command)
            for option in sorted(set(re.findall(row, text) + common)):
                out += ["%s --%s" % (command, option), "%s --%s=3" % (command, option)]
                out += ["%s --%s %s" % (command, option, v) for v in values]
    return [b"\n".join(w.encode() for w in line.split()) for line in out]


def model_seeds():
    out = []
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "unit", "ctl", "configs", "*.json"))):
        out.append(" ".join(source(os.path.relpath(path, ROOT)).split()).encode())
    lines = c_strings(source("tests/unit/ctl/test_size.c"))
    huge = '"num_hidden_layers": 4096, "hidden_size": 16777216, "num_attention_heads": 16777216'
    huge = "{%s, %s}" % (huge, '"head_dim": 16777216')
    return out + [huge.encode()] + [s for s in lines if s[:1] in (b"{", b"[")]


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def document(shards=1, window=False, ids=True, **change):
    """A document of 5 tokens in blocks of 2, as 'kvcachectl doc export' writes it."""
    groups = [("full", 0, False, 4)] + ([("window", 3, True, 2)] if window else [])
    spec = {k: k[:3] for k in "model revision dtype quant layout position position_params".split()}
    spec.update({"attention": "causal", "lora": "", "extra": "", "sub_tenant": ""})
    spec.update({"layers": 2, "kv_heads": 1, "head_size": 8, "shards": shards, "with_tokens": False})
    spec.update({"prefill_ns_per_token": 5, "prefill_ns_per_token_pair": 0})
    rows = ("block_tokens", "block_bytes", "rule", "window", "replicated")
    spec["groups"] = [dict(zip(rows, (2, b, rule, w, same))) for rule, w, same, b in groups]
    meta = {"format": "kvcache-document", "format_version": "2", "name": "book", "tokens": "5"}
    meta.update({"namespace": json.dumps(spec), "block_tokens": json.dumps([2] * len(groups))})
    meta.update({"keys_from": "token_ids" if ids else "engine", "seed_print": "ab" * 16})
    if ids:
        meta["token_ids"] = "[1,2,3,4,5]"
    head, at = {"__metadata__": meta}, 0
    for g, (rule, _, same, size) in enumerate(groups):
        n = 2 if rule == "window" else 3
        meta["keys.%d" % g] = "01" * 96
        meta["first.%d" % g] = str(3 - n)
        for s in range(1 if same else shards):
            meta["sums.%d.%d" % (g, s)] = "02" * 16 * n
            end = at + n * size
            head["group%d.shard%d" % (g, s)] = {
                "dtype": "U8",
                "shape": [n, size],
                "data_offsets": [at, end],
            }
            at = end
    meta.update(change)
    texts = hashlib.sha256()
    for tag, text in ((t, x) for k in sorted(meta) for t, x in ((1, k), (2, meta[k]))):
        texts.update(struct.pack("<BQ", tag, len(text)) + text.encode())
    meta["header_sum"] = texts.hexdigest()
    return safetensors(head, bytes(at))


def document_seeds():
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    out = [document(), document(2), document(2, True), document(ids=False)]
    out += [document(tokens="6"), document(token_ids="[1]"), document(name=""), document(format="x")]
    out += [document(namespace="{}"), document(seed_print="x"), document(**{"first.0": "1"})]
    out += [safetensors({"a": tensor}, bytes(8)), safetensors({}), safetensors(b"[]")]
    out += [safetensors({"a": tensor}, bytes(7)), safetensors({"a": tensor}, bytes(9))]
    out += [safetensors({"a": dict(tensor, shape=[1 << 62, 4])}, bytes(8))]
    out += [safetensors({"a": dict(tensor, data_offsets=[8, 0])}, bytes(8))]
    out += [safetensors({"a": tensor, "b": dict(tensor, data_offsets=[4, 12])}, bytes(12))]
    out += [safetensors({"__metadata__": {"a": 1}}), safetensors({}, length=1 << 63), b"", b"{}"]
    out += [safetensors(b'{"a":1,"a":1}'), safetensors({"a": dict(tensor, dtype="X")}, bytes(8))]
    return out


def zmtp_seeds():
    """A first byte, then what a DEALER sends: greeting, READY, messages; and what it does not."""
    greeting = b"\xff" + 8 * b"\0" + b"\x7f\3\0NULL" + 48 * b"\0"
    route = b"\x08Identity" + struct.pack(">I", 16) + b"k" + 15 * b"\1"
    kind = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"

    def ready(*properties):
        body = b"\5READY" + b"".join(properties)
        return struct.pack(">BB", 4, len(body)) + body

    message, big = b"\0\4\x93\2\1\0", b"\2" + struct.pack(">Q", 300) + 300 * b"x"
    ping, pong = b"\4\7\4PING\0\1", b"\4\5\4PONG"
    long = b"\2" + struct.pack(">Q", 1 << 63) + b"x"
    good = greeting + ready(kind, route)
    out = [greeting, greeting[:30], good, good + message + message, good + ping + message + pong]
    out += [good + big + message, good + b"\1\1a\1\1b\0\1c", good + 4 * b"\1\1a", good + long]
    out += [greeting + ready(kind), greeting + ready(route, kind), greeting + message, message]
    out += [greeting.replace(b"\x7f\3", b"\x7f\1"), b"\x01\0", good + ready(route), good + b"\4\3\2XY"]
    out += [greeting + ready(route.replace(b"k", b"\0")), greeting + b"\6" + struct.pack(">Q", 600)]
    return [bytes([i % 8]) + data for i, data in enumerate(out)]


def byte_level():
    """Each byte as the character that ByteLevel writes for it."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in seen else next(others)) for b in range(256)]


def tokenizer(vocab, merges, added=(), digits=True, unknown=None):
    level = {"type": "ByteLevel", "add_prefix_space": False}
    steps = [{"type": "Digits", "individual_digits": True}, level]
    data = {
        "added_tokens": [{"id": i, "content": name, "special": True} for i, name in added],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if digits else level,
        "model": {"type": "BPE", "unk_token": unknown, "vocab": vocab, "merges": merges},
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def tokenizer_seeds():
    few = {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120ab": 4, "e": 5, "t": 6, "et": 7}
    words = {"te": 256, "ty": 257, "ype": 258, "pe": 259, "type": 260}
    every = {**{c: b for b, c in enumerate(byte_level())}, **words}
    out = [tokenizer(few, [["a", "b"], ["\u0120", "ab"], ["e", "t"]])]
    out += [tokenizer(few, ["a b", "\u0120 ab"], [(8, "type"), (9, "<|e|>")], False, "a")]
    out += [tokenizer(few, [], [(9, "type"), (10, "types"), (11, "t")], True, "b")]
    out += [tokenizer(every, [["t", "y"], ["p", "e"], ["y", "pe"], ["ty", "pe"]], [(261, "model")])]
    return out + [tokenizer({"a": 0, "b": 0}, []), tokenizer(few, [["a", "x"]]), b"{}", b"[]", b""]


def text_seeds():
    out = [c for c in c_strings(source("tests/unit/base/test_units.c")) if len(c) <= 64]
    out += [c for c in c_strings(source("tests/unit/ctl/test_key.c")) if len(c) <= 80]
    return out + [b"c0ffee" + 58 * b"0", b"A" * 64, b"18446744073709551615"]


TARGETS = {
    "wire": lambda: [data for _, data in golden()],
    "svc": svc_seeds,
    "attach": attach_seeds,
    "reply": reply_seeds,
    "config": config_seeds,
    "trace": trace_seeds,
    "ctl": ctl_seeds,
    "text": text_seeds,
    "model": model_seeds,
    "document": document_seeds,
    "tokenizer": tokenizer_seeds,
    "zmtp": zmtp_seeds,
}


FOUND = "Found by fuzzing, minimised; one input a line (README.md). Written by corpus.py."


def seeds(to):
    os.makedirs(to, exist_ok=True)
    for name, make in TARGETS.items():
        n = write_packed(os.path.join(to, name + ".txt"), make(), "Made by corpus.py out of the tree.")
        print("%s: %d seeds" % (name, n))
    dictionaries(to)


def dictionary(inputs):
    """The words of texts, for libFuzzer's -dict."""
    words = set()
    for data in inputs:
        words |= set(re.findall(rb"[A-Za-z_.-]{3,24}", data))
    return "".join('"%s"\n' % w.decode() for w in sorted(words))


def dictionaries(to):
    for name in ("config", "trace", "ctl", "text", "model", "tokenizer"):
        with open(os.path.join(to, name + ".dict"), "w", encoding="ascii") as f:
            f.write(dictionary(TARGETS[name]()))


def unpack(files, to):
    os.makedirs(to, exist_ok=True)
    for data in (d for f in files for d in read_packed(f)):
        with open(os.path.join(to, hashlib.sha1(data).hexdigest()), "wb") as f:
            f.write(data)


def pack(source_dir, to, without):
    known = {d for f in without for d in read_packed(f)}
    inputs = []
    for name in os.listdir(source_dir):
        with open(os.path.join(source_dir, name), "rb") as f:
            inputs.append(f.read())
    inputs = sorted((d for d in inputs if d not in known), key=lambda d: (len(d), d))[:KEPT_MAX]
    print("%s: %d inputs" % (to, write_packed(to, inputs, FOUND, read_kept(to))))


def add(to, files):
    kept = read_kept(to)
    for path in files:
        with open(path, "rb") as f:
            kept.append(f.read())
    kept = sorted(set(kept), key=lambda d: (len(d), d))
    print("%s: %d inputs" % (to, write_packed(to, read_packed(to), FOUND, kept)))


def main(argv):
    if len(argv) == 3 and argv[1] == "seeds":
        seeds(argv[2])
    elif len(argv) >= 4 and argv[1] == "unpack":
        unpack(argv[2:-1], argv[-1])
    elif len(argv) >= 4 and argv[1] == "pack":
        pack(argv[2], argv[3], argv[4:])
    elif len(argv) >= 4 and argv[1] == "add":
        add(argv[2], argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
