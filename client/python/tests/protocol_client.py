# SPDX-License-Identifier: Apache-2.0
"""The smallest client, written from PROTOCOL.md alone, without a library of the daemon's."""

from __future__ import annotations

import array
import hashlib
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgpack
import zmq

HELLO, WELCOME, MAP, CHUNK, RETIRED = 1, 2, 3, 4, 5
OP_HELLO, OP_PING, OP_NS_OPEN, OP_LOOKUP, OP_ACQUIRE, OP_RELEASE, OP_STORE = 1, 2, 3, 4, 5, 7, 10
LOCATION = struct.Struct("<IIQQQ")  # chunk, bytes, off, hdr, gen


class Refused(Exception):
    """A status that is not OK."""


def keys_of(parent: bytes, tokens: Sequence[int], block_tokens: int, extra: bytes = b"") -> bytes:
    """Keys: SHA-256 over three parts, each with a tag and its length."""
    keys = b""
    for at in range(0, len(tokens), block_tokens):
        ids = struct.pack(
            f"<{len(tokens[at : at + block_tokens])}I", *tokens[at : at + block_tokens]
        )
        parts = ((1, parent), (2, ids), (3, extra))
        text = b"".join(struct.pack("<BQ", tag, len(part)) + part for tag, part in parts)
        parent = hashlib.sha256(text).digest()
        keys += parent
    return keys


class Client:
    """A session of one rank."""

    def __init__(self, path: str, staging_bytes: int = 0) -> None:
        self.attach = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.attach.settimeout(10)
        self.attach.connect(path)
        self._say([HELLO, "kvca", 2, 2, "protocol_client", staging_bytes, 0])
        welcome, fd = self._hear()
        code, status, detail, _version, self.session, route, endpoint, granted = welcome[:8]
        if code != WELCOME or status != 0:
            raise Refused(f"WELCOME {status}: {detail}")
        self.staging: mmap.mmap | None = None
        if granted:
            self.staging = mmap.mmap(fd, granted, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            os.close(fd)
        self.chunks: dict[int, mmap.mmap] = {}
        self.context = zmq.Context()
        self.control = self.context.socket(zmq.DEALER)
        self.control.setsockopt(zmq.ROUTING_ID, route)
        self.control.setsockopt(zmq.MAXMSGSIZE, 8 << 20)
        self.control.setsockopt(zmq.LINGER, 0)
        self.control.setsockopt(zmq.RCVTIMEO, 10_000)
        self.control.connect(endpoint)
        self.corr = 0
        self.version, self.server = self.ask(OP_HELLO, 2, 2)

    def close(self) -> None:
        self.control.close()
        self.context.term()
        self.attach.close()
        for memory in self.chunks.values():
            memory.close()
        if self.staging is not None:
            self.staging.close()

    def _say(self, message: list[Any]) -> None:
        self.attach.send(msgpack.packb(message))

    def _hear(self) -> tuple[list[Any], int]:
        room = socket.CMSG_SPACE(4)
        data, ancillary, _, _ = self.attach.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise Refused("the daemon is gone")
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload)
        return msgpack.unpackb(data), fds[0] if fds else -1

    def ask(self, op: int, *arguments: Any, deadline_ms: int = 5000) -> list[Any]:
        """One request, and its results."""
        self.corr += 1
        self.control.send(msgpack.packb([op, self.corr, deadline_ms, *arguments]))
        while True:
            reply = msgpack.unpackb(self.control.recv())
            if reply[1] == self.corr:
                break
        if reply[0] != op | 128 or reply[2] != 0:
            raise Refused(f"op {op}: status {reply[2]}: {reply[3]}")
        results: list[Any] = reply[3:]
        return results

    def ns_open(self, model: str, block_tokens: int, block_bytes: int) -> tuple[int, bytes]:
        """A namespace of one FULL group; rope, causal, one shard. -> (ns, seed)"""
        texts = [model, "", "", "", "", "rope", "", "causal", "", "", ""]
        groups = [[block_tokens, block_bytes, 0, 0, 0]]
        ns, seed, _similar = self.ask(OP_NS_OPEN, *texts, 0, 0, 0, 1, 0, 0, 0, groups)
        return ns, seed

    def lookup(self, ns: int, keys: bytes, tokens: int) -> tuple[int, list[Any]]:
        """-> (hit_tokens, groups)"""
        hit, _cached, _load_us, groups = self.ask(OP_LOOKUP, ns, "", tokens, [keys], 0)
        return hit, groups

    def store(self, ns: int, keys: bytes, blocks: Sequence[bytes]) -> bytes:
        """Blocks of a sequence from its first token -> statuses."""
        assert self.staging is not None
        offsets, at = [], 0
        for block in blocks:
            self.staging[at : at + len(block)] = block
            offsets.append(at)
            at += (len(block) + 63) // 64 * 64
        at_all = struct.pack(f"<{len(offsets)}Q", *offsets)
        (statuses,) = self.ask(OP_STORE, ns, "", 0, 0, 0, b"", 0, keys, 0, b"", at_all, b"")
        result: bytes = statuses
        return result

    def _chunk(self, number: int) -> mmap.mmap:
        if number not in self.chunks:
            self._say([MAP, number])
            while True:
                message, fd = self._hear()
                if message[0] == CHUNK and message[3] == number:
                    break
                if message[0] != RETIRED:
                    raise Refused(f"attach message {message}")
            if message[1] != 0:
                raise Refused(f"CHUNK {message[1]}: {message[2]}")
            self.chunks[number] = mmap.mmap(fd, message[4], mmap.MAP_SHARED, mmap.PROT_READ)
            os.close(fd)
        return self.chunks[number]

    def read(self, ns: int, keys: bytes, tokens: int) -> list[bytes]:
        """The blocks of the cached prefix."""
        _hit, _cached, lease, _ticket, groups = self.ask(
            OP_ACQUIRE, ns, "", tokens, [keys], 0, 0, 0, 0
        )
        blocks = []
        for chunk, size, off, hdr, gen in LOCATION.iter_unpack(groups[0][1]):
            memory = self._chunk(chunk)
            assert off + size <= len(memory)
            assert hdr + 8 <= len(memory)
            blocks.append(bytes(memory[off : off + size]))
            assert struct.unpack_from("<Q", memory, hdr)[0] == gen, "not what was stored"
        if lease:
            (released,) = self.ask(OP_RELEASE, struct.pack("<Q", lease))
            assert released == 1
        return blocks
