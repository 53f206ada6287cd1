# SPDX-License-Identifier: Apache-2.0
"""The client of LMCache's storage layer, driven by peerbench over a unix socket.

It is what a worker with LMCache in it does with blocks that have arrived in host memory: take room
from LMCache's allocator, copy the block in, put; get, and use the block where LMCache puts it. The
values come from a file that peerbench has mapped too, the reader from a shared library, and each
call is timed here, so that the socket costs nothing.

Requests are lines: "version", "store FIRST N USE", "load FIRST N take|read|check". The answer to the
last two is "ok NANOSECONDS WRONG_BYTES"; to any that fails "error TEXT".
"""

import argparse
import ctypes
import hashlib
import mmap
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")

import torch  # noqa: E402
from lmcache.utils import CacheEngineKey  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.event_manager import EventManager  # noqa: E402
from lmcache.v1.memory_management import MemoryFormat  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
from lmcache.v1.storage_backend.storage_manager import StorageManager  # noqa: E402

BATCH_BYTES = 32 << 20
TENSOR_TYPE = torch.bfloat16


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server():
    """lmcache_server on a port of its own, ended with this process."""
    port = free_port()
    program = os.path.join(os.path.dirname(sys.executable), "lmcache_server")
    libc = ctypes.CDLL(None)
    server = subprocess.Popen(
        [program, "127.0.0.1", str(port)],
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: libc.prctl(1, 9),  # PR_SET_PDEATHSIG, SIGKILL
    )
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"lmcache_server ended with code {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return f"lm://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("lmcache_server does not accept connections")


class Client:
    def __init__(self, args):
        self.backend, self.block_bytes = args.backend, args.block_bytes
        self.batch = max(1, BATCH_BYTES // args.block_bytes)
        with open(args.source, "r+b") as file:
            self.mapping = mmap.mmap(file.fileno(), args.blocks * args.block_bytes)
        self.source = torch.frombuffer(self.mapping, dtype=torch.uint8)
        self.libc = ctypes.CDLL(None)
        self.libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self.reader = ctypes.CDLL(args.reader)
        self.reader.perf_read.restype = ctypes.c_uint64
        self.reader.perf_read.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self.shape = torch.Size([2, 1, args.block_bytes // 4, 1])
        self.manager = self.make_manager(args)
        self.generation = 0
        self.keys = [None] * args.blocks

    def make_manager(self, args):
        working_set = args.blocks * args.block_bytes
        # Blocks on their way to a disk or a server need less room than blocks that stay.
        room = 2 * working_set if args.backend == "cpu" else working_set
        settings = {
            "chunk_size": 256,
            "local_cpu": args.backend == "cpu",
            "max_local_cpu_size": max(room, 256 << 20) / (1 << 30),
        }
        if args.backend == "disk":
            settings["local_disk"] = args.disk
            settings["max_local_disk_size"] = 1024  # GiB: never reached, it would count what is removed
        if args.backend == "server":
            settings["remote_url"] = start_server()
            settings["remote_serde"] = "naive"
        config = LMCacheEngineConfig.from_defaults(**settings)
        metadata = LMCacheMetadata(
            model_name="peerbench",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=TENSOR_TYPE,
            kv_shape=(1, 2, args.block_bytes // 4, 1, 1),
        )
        return StorageManager(config=config, metadata=metadata, event_manager=EventManager())

    def source_of(self, index):
        return self.source.data_ptr() + index * self.block_bytes

    def new_key(self, index):
        text = f"{self.generation}.{index}".encode()
        return CacheEngineKey(
            model_name="peerbench",
            world_size=1,
            worker_id=0,
            chunk_hash=int.from_bytes(hashlib.sha256(text).digest()[:8], "little"),
            dtype=TENSOR_TYPE,
        )

    def wait_until_stored(self):
        for backend in self.manager.storage_backends.values():
            worker = getattr(backend, "disk_worker", None)
            tasks = worker.put_tasks if worker else getattr(backend, "put_tasks", ())
            while tasks:
                time.sleep(0.0001)

    def store_batch(self, first, n):
        objects = []
        for index in range(first, first + n):
            target = self.manager.allocate(self.shape, TENSOR_TYPE, fmt=MemoryFormat.KV_2LTD)
            if target is None:
                raise RuntimeError("no room")
            # With a GPU its copy engine would do this; one thread's memcpy is faster here than a
            # tensor's copy_, which wakes a pool of threads for each block.
            ctypes.memmove(target.tensor.data_ptr(), self.source_of(index), self.block_bytes)
            objects.append(target)
        self.manager.batched_put(self.keys[first : first + n], objects)

    def store(self, first, n):
        # A local backend leaves a key that it has as it is, so its blocks come under new keys; those
        # of before are taken away here, or it would scan all of its blocks for each that it evicts.
        # The server replaces a block.
        if self.backend != "server":
            self.manager.batched_remove([key for key in self.keys[first : first + n] if key])
            self.generation += 1
        for index in range(first, first + n):
            self.keys[index] = self.new_key(index)
        begun = time.monotonic_ns()
        for at in range(first, first + n, self.batch):
            self.store_batch(at, min(self.batch, first + n - at))
        self.wait_until_stored()
        return time.monotonic_ns() - begun, 0

    def use(self, index, found, how):
        tensor = found.tensor
        if how == "read":
            self.reader.perf_read(tensor.data_ptr(), self.block_bytes)
        elif how == "check":
            at = tensor.data_ptr()
            if self.libc.memcmp(at, self.source_of(index), self.block_bytes) != 0:
                got = ctypes.string_at(at, self.block_bytes)
                wanted = ctypes.string_at(self.source_of(index), self.block_bytes)
                return sum(a != b for a, b in zip(got, wanted))
        return 0

    def load_batch(self, first, end, how):
        wrong = 0
        index = first
        hits, places = self.manager.batched_contains(self.keys[first:end])
        if hits != end - first:
            raise RuntimeError(f"of blocks {first} to {end - 1} only {hits} are there")
        for place, keys in places.items():
            for found in self.manager.batched_get(keys, location=place):
                if found is None:
                    raise RuntimeError(f"block {index} is not there")
                wrong += self.use(index, found, how)
                found.ref_count_down()
                index += 1
        return wrong

    def load(self, first, n, how):
        wrong = 0
        begun = time.monotonic_ns()
        for at in range(first, first + n, self.batch):
            wrong += self.load_batch(at, min(at + self.batch, first + n), how)
        return time.monotonic_ns() - begun, wrong

    def answer(self, words):
        if words == ["version"]:
            from importlib.metadata import version

            return f"LMCache {version('lmcache')}, torch {torch.__version__}"
        first, n = int(words[1]), int(words[2])
        if words[0] == "store":
            return "%d %d" % self.store(first, n)
        return "%d %d" % self.load(first, n, words[3])


def serve(client, listener):
    while True:  # the first connections only look whether somebody is there
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                try:
                    reply = "ok " + client.answer(line.split())
                except Exception as error:  # the other side has to know, whatever it is
                    reply = "error %s: %s" % (type(error).__name__, str(error).replace("\n", " ")[:200])
                lines.write(reply + "\n")
                lines.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", required=True)
    parser.add_argument("--backend", required=True, choices=["cpu", "disk", "server"])
    parser.add_argument("--source", required=True)
    parser.add_argument("--blocks", required=True, type=int)
    parser.add_argument("--block-bytes", required=True, type=int)
    parser.add_argument("--disk", required=True)
    parser.add_argument("--reader", required=True)
    args = parser.parse_args()
    client = Client(args)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(args.socket)
    listener.listen()
    serve(client, listener)


if __name__ == "__main__":
    main()
