# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV cache in kvcache-daemon: a V1 connector.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KVCacheDaemonConnector",
        "kv_connector_module_path": "kvcache_client.vllm", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute"}'

The package also registers the name by vLLM's plugin entry point, so that the module path may be
left out. Settings are in ``kv_connector_extra_config`` (:class:`Options`), wishes of one request in
its ``kv_transfer_params["kvcache"]`` (:class:`Wishes`).

How the connector works, and why so:

* A request's blocks are acquired in the scheduler, before the scheduler counts on them: a lease
  keeps them until the workers have redeemed its ticket and copied them. So a promised hit fails
  only when the daemon itself ends meanwhile. vLLM 0.32 computes a synchronous load that failed
  wrongly on its second runner, and raises for several groups: loads are asynchronous in vLLM's
  sense, and a failure is told by request (``failed_recving``). That is why
  ``kv_load_failure_policy`` must be ``recompute``.
* The acquire is begun and awaited for a moment only. Blocks in memory are there by then. For
  blocks on disk the scheduler is told to ask again, and goes on with other requests.
* vLLM starts asynchronous loads behind the step's forward pass. A load up to ``inline_bytes`` is
  done at once and reported in the same step; with nothing else to run that costs one empty step
  (well under a millisecond). Larger loads run in a thread, with the GIL released. A step that has
  nothing to compute meanwhile waits two milliseconds for it, in place of taking its processor.
* Blocks are stored as they fill, prompt and answer alike, and only those whose tokens are final:
  the scheduler has hashed them. Their pages are copied to staging while the step still owns them;
  the request to the daemon goes on while the engine computes. So neither preemption nor an abort
  nor the end of a request has to wait for a store, and no page is kept for one.
* KV caches on a GPU: the worker copies, on the engine's stream, or for large loads on one beside
  it, and waits for it. A step that stores so waits for its kernels; a registered pool would not,
  but would keep the pages of a request from being freed until the daemon has read them.
* Keys are vLLM's own block hashes. They cover tokens, an adapter's name and path, multimodal
  inputs, prompt embeddings and ``cache_salt``. For LoRA the adapter's files (names, sizes, times)
  are added: other weights at the same path are another adapter. A group with larger blocks takes
  the last hash in each block, as vLLM does.
* A sliding window of W tokens needs W - 1 tokens before the next one: that is the window that the
  daemon is told, so a hit holds exactly the blocks that vLLM allocates.
* One token at least is left to compute, and a hit ends where every group's blocks end.
* An engine's start waits up to ``start_ms`` for its daemon, so that one that is started together
  with it loads from its first request. Without a daemon the engine then starts all the same.
* A request whose values are odd (a key of another size, an adapter that cannot be read) goes on
  without the daemon, and one line is logged: ``SchedulerSide._for``. It never ends the engine.
* A daemon that is absent, frozen or full costs a bounded delay once; the engine computes what it
  would compute without the connector, and one line is logged for each change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcache_client.vllm.connector import KVCacheDaemonConnector as KVCacheDaemonConnector
    from kvcache_client.vllm.options import Options as Options
    from kvcache_client.vllm.options import Wishes as Wishes

__all__ = ["KVCacheDaemonConnector", "Options", "Wishes", "register"]


def register() -> None:
    """The plugin entry point (``vllm.general_plugins``): makes the connector's name known."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    name = "KVCacheDaemonConnector"
    if name not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(name, __name__, name)


def __getattr__(name: str) -> Any:
    # vLLM is imported when the connector is asked for: its plugins load while it is half imported.
    if name == "KVCacheDaemonConnector":
        from kvcache_client.vllm import connector

        return connector.KVCacheDaemonConnector
    if name in ("Options", "Wishes"):
        from kvcache_client.vllm import options

        return getattr(options, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
