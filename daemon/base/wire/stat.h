/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All statistics: name, kind and help, one table for each part of the daemon (metric.h says how a
 * table becomes a struct). This is the only place where they are defined: the daemon counts and
 * exposes them by these tables, and kvcachectl explains them.
 *
 * COUNTER only grows, GAUGE goes both ways, HISTO is a histogram of nanoseconds. The unit follows
 * from the name, see units_of_stat().
 */
#ifndef KVC_WIRE_STAT_H
#define KVC_WIRE_STAT_H

#include <stddef.h>

#define NODE_METRICS(X)                                                                          \
    X(GAUGE, uptime_ms, "time since the daemon started")                                         \
    X(COUNTER, turns, "turns (loop iterations) of the control thread")                           \
    X(HISTO, turn_ns, "time of a turn of the control thread, without its wait for work")         \
    X(HISTO, turn_cpu_ns, "processor time of a turn of the control thread")                      \
    X(COUNTER, control_allocs,                                                                   \
      "heap allocations by the daemon's own code on the control thread after its start")         \
    X(COUNTER, chunks_retired,                                                                   \
      "empty chunks of host memory or of a device that were retired: sessions unmap them")       \
    X(COUNTER, log_lines_lost, "log lines that could not be written")                            \
    X(COUNTER, control_refused,                                                                  \
      "control connections refused: no rights, too many, or no such session")                    \
    X(COUNTER, control_cut,                                                                      \
      "control connections closed: invalid bytes, or a large message that came too slowly")      \
    X(COUNTER, control_shed, "control connections refused because no file descriptor was left")  \
    X(COUNTER, control_paused,                                                                   \
      "times that a connection was not read because its requests fill its share")                \
    X(GAUGE, host_limit_bytes, "host tier: most bytes that slots may take")                      \
    X(GAUGE, host_used_bytes, "host tier: bytes of the slots in use")                            \
    X(GAUGE, host_used_slots, "host tier: number of slots in use")                               \
    X(GAUGE, host_mapped_bytes, "host tier: bytes of its chunks")                                \
    X(GAUGE, host_faulted_bytes,                                                                 \
      "host tier: bytes of its chunks that were faulted in ahead of use so far")                 \
    X(GAUGE, host_registered_bytes, "host tier: bytes registered with io_uring for storage I/O") \
    X(GAUGE, copies_in_flight, "host tier: copies in flight")                                    \
    X(GAUGE, copy_bytes_in_flight, "host tier: bytes of copies in flight")                       \
    X(HISTO, host_copy_ns, "host tier: time of a copy into a slot, with its wait for a thread")

#define SVC_METRICS(X)                                                                             \
    X(COUNTER, requests, "requests received from sessions")                                        \
    X(COUNTER, replies_ok, "replies with status OK")                                               \
    X(COUNTER, replies_error, "replies with a status other than OK")                               \
    X(COUNTER, replies_timeout, "replies with status TIMEOUT")                                     \
    X(COUNTER, replies_lost,                                                                       \
      "replies that could not be sent because their session does not take them")                   \
    X(COUNTER, unknown_routes, "messages dropped because their route belongs to no session")       \
    X(COUNTER, bad_messages,                                                                       \
      "messages that are no valid request or do not belong there; each ends its session")          \
    X(COUNTER, attaches, "sessions begun")                                                         \
    X(COUNTER, attaches_denied, "attach connections refused because their uid is in no principal") \
    X(COUNTER, detaches, "sessions that ended")                                                    \
    X(COUNTER, sessions_dropped, "sessions ended by the daemon")                                   \
    X(GAUGE, sessions, "sessions that exist now")                                                  \
    X(GAUGE, quarantined,                                                                          \
      "sessions that the daemon ended and whose process may still read leased memory")             \
    X(GAUGE, calls, "requests that are not answered yet, because they wait or copy")               \
    X(GAUGE, staging_bytes, "bytes of staging memory that sessions have")                          \
    X(GAUGE, mems, "device memories that workers gave to the daemon (MEM)")                        \
    X(GAUGE, pools, "pools of workers' pages on devices (POOL_OPEN)")                              \
    X(GAUGE, recalled,                                                                             \
      "retired chunks on devices that sessions have not unmapped yet; one for each session")       \
    X(COUNTER, recalls_late,                                                                       \
      "times that a session had not unmapped retired chunks on a device after 30 s")               \
    X(COUNTER, audited, "changes and removals that were ordered; the log names who ordered each")  \
    X(COUNTER, slices, "pieces of requests that were handled later than on arrival")               \
    X(HISTO, handle_ns, "time of the control thread for a request, or for one piece of it")        \
    X(HISTO, room_wait_ns, "time that a store waited for room in host memory, 50 ms at most")      \
    X(COUNTER, room_waits_late, "stores that waited 50 ms for room in host memory and got none")   \
    X(HISTO, lookup_ns, "LOOKUP: time from receipt to reply")                                      \
    X(HISTO, acquire_ns, "ACQUIRE: time from receipt to reply, waits for blocks included")         \
    X(HISTO, commit_ns, "COMMIT, STORE, PAGES_STORE: time from receipt to reply")                  \
    X(HISTO, pages_ns, "PAGES_LOAD: time from receipt to reply")                                   \
    X(HISTO, wait_ns, "acquires that waited for blocks: time from receipt until the wait ended")

#define CORE_METRICS(X)                                                                            \
    X(COUNTER, lookups, "lookups")                                                                 \
    X(COUNTER, acquires, "acquires answered")                                                      \
    X(COUNTER, blocks_asked, "blocks that acquires asked for")                                     \
    X(COUNTER, blocks_hit, "blocks that acquires asked for and found")                             \
    X(COUNTER, tokens_hit, "tokens that acquires asked for and found")                             \
    X(COUNTER, tokens_loaded, "tokens of acquires' hits that were loaded from disk first")         \
    X(COUNTER, tokens_recomputed_by_decision,                                                      \
      "tokens cached and not loaded, because computing them again is faster")                      \
    X(COUNTER, tokens_recomputed_by_miss,                                                          \
      "tokens that acquires asked for and that were not cached")                                   \
    X(COUNTER, bytes_leased, "payload bytes of leased blocks, summed over all leases so far")      \
    X(COUNTER, blocks_reserved, "blocks announced by writers")                                     \
    X(COUNTER, blocks_stored, "blocks that became present")                                        \
    X(COUNTER, bytes_stored, "payload bytes that commits brought into host memory")                \
    X(COUNTER, blocks_dropped, "announced blocks that never became present")                       \
    X(COUNTER, blocks_taken_over,                                                                  \
      "announced blocks whose writer was late and that another writer took over")                  \
    X(COUNTER, blocks_touched, "blocks of stores that were cached already")                        \
    X(COUNTER, blocks_evicted, "blocks evicted to make room")                                      \
    X(COUNTER, blocks_evicted_admin, "blocks evicted on request")                                  \
    X(COUNTER, bytes_evicted, "payload bytes of evicted blocks")                                   \
    X(COUNTER, reserve_full, "stores cut short because a new block found no room")                 \
    X(COUNTER, reserve_not_worth,                                                                  \
      "stores cut short because the blocks to evict were worth more than the new one")             \
    X(COUNTER, evacuations,                                                                        \
      "evacuations in host memory: slabs emptied for another size or principal")                   \
    X(COUNTER, waits, "acquires that waited for a pending block")                                  \
    X(COUNTER, copy_failures, "copies into host memory that failed during a commit")               \
    X(COUNTER, blocks_verified, "blocks that VERIFY compared with their checksums")                \
    X(COUNTER, bytes_verified, "payload bytes that VERIFY compared with their checksums")          \
    X(COUNTER, blocks_corrupt,                                                                     \
      "blocks of which a copy did not match its checksum and was dropped")                         \
    X(COUNTER, blocks_corrupt_below, "blocks dropped because they build on a corrupt one")         \
    X(COUNTER, blocks_demoted, "blocks written to disk")                                           \
    X(COUNTER, bytes_demoted, "payload bytes of blocks written to disk")                           \
    X(COUNTER, demotion_failures, "blocks that could not be written to disk")                      \
    X(COUNTER, blocks_left, "blocks that left host memory and stay on disk")                       \
    X(COUNTER, blocks_lost_unsaved,                                                                \
      "blocks without a copy on disk that were evicted to make room")                              \
    X(COUNTER, store_waits, "stores that waited for room until blocks were written to disk")       \
    X(COUNTER, loads, "acquires for which blocks were loaded from disk")                           \
    X(COUNTER, prefetches, "blocks loaded from disk that no request waited for")                   \
    X(COUNTER, blocks_loaded, "blocks loaded from disk into memory")                               \
    X(COUNTER, bytes_loaded, "payload bytes loaded from disk into memory")                         \
    X(COUNTER, load_failures, "blocks that could not be loaded from disk")                         \
    X(COUNTER, blocks_hit_loaded,                                                                  \
      "blocks that acquires found and that had to be loaded from disk")                            \
    X(COUNTER, blocks_checked,                                                                     \
      "blocks found in memory at start whose checksum was verified since")                         \
    X(COUNTER, blocks_recovered, "blocks found in memory or on disk at start")                     \
    X(COUNTER, blocks_reclaimed, "blocks dropped because storage emptied their segment")           \
    X(COUNTER, blocks_kept,                                                                        \
      "shards that storage was asked to write again because it empties their segment")             \
    X(COUNTER, keeps_refused,                                                                      \
      "times that storage refused to write a shard again whose segment it empties")                \
    X(COUNTER, blocks_lost_disk, "shards on disk that were lost")                                  \
    X(COUNTER, blocks_promised, "blocks made durable for a commit with DURABLE")                   \
    X(COUNTER, blocks_not_worth,                                                                   \
      "blocks judged not worth a write to disk when they were to leave memory")                    \
    X(COUNTER, wishes, "blocks for which a client wished a retention (hint)")                      \
    X(COUNTER, wishes_ended, "blocks whose wished retention ended")                                \
    X(COUNTER, advice, "HINT requests that were passed to the policy")                             \
    X(COUNTER, blocks_shifted,                                                                     \
      "blocks moved within host memory so that blocks that must stay share chunks")                \
    X(COUNTER, quota_refused, "stores cut short because a quota was exhausted")                    \
    X(COUNTER, quota_evicted, "blocks evicted to keep their owner within its quota")               \
    X(COUNTER, quota_unsaved,                                                                      \
      "blocks not written to disk because their owner's quota there was exhausted")                \
    X(COUNTER, pins_taken, "pins taken")                                                           \
    X(COUNTER, pins_refused,                                                                       \
      "pins refused: the tenant's budget of pinned bytes, or memory, was exhausted")               \
    X(COUNTER, pins_ended, "pins that ended by their TTL")                                         \
    X(COUNTER, blocks_unpinned,                                                                    \
      "pinned blocks that lost their pins: lost, corrupt, or evicted by force")                    \
    X(GAUGE, blocks_in_memory, "blocks in host memory")                                            \
    X(GAUGE, bytes_in_memory, "payload bytes in host memory")                                      \
    X(GAUGE, blocks_on_disk, "blocks on disk")                                                     \
    X(GAUGE, bytes_on_disk, "payload bytes on disk")                                               \
    X(GAUGE, bytes_unsaved, "payload bytes in host memory that are not on disk")                   \
    X(GAUGE, clean_bytes,                                                                          \
      "payload bytes of clean blocks: on disk too, and the next to leave memory")                  \
    X(GAUGE, saving_bytes, "payload bytes that are being written to disk")                         \
    X(GAUGE, loads_in_flight, "blocks that are being loaded into memory or checked there")         \
    X(GAUGE, blocks_present, "blocks present")                                                     \
    X(GAUGE, blocks_pending, "announced blocks that are not present yet")                          \
    X(GAUGE, bytes_present, "payload bytes of present blocks, all shards")                         \
    X(GAUGE, leases, "leases that have not ended")                                                 \
    X(GAUGE, leased_bytes, "payload bytes under lease; a block counts once for each lease")        \
    X(GAUGE, unevictable_bytes,                                                                    \
      "bytes of slots in host memory that cannot be evicted: leased, loading, reserved, pinned")   \
    X(GAUGE, unevictable_regions, "chunks of host memory with a slot that cannot be evicted")      \
    X(GAUGE, guaranteed_regions,                                                                   \
      "chunks of host memory that the shares guaranteed by quotas need")                           \
    X(GAUGE, reservations, "reservations that have not ended")                                     \
    X(GAUGE, lease_oldest_ms, "age of the oldest lease")                                           \
    X(GAUGE, reservation_oldest_ms, "age of the oldest reservation")                               \
    X(GAUGE, commits_in_flight, "commits in flight")                                               \
    X(GAUGE, pins, "pins that have not ended")                                                     \
    X(GAUGE, pinned_blocks, "blocks that are pinned")                                              \
    X(GAUGE, pinned_bytes, "payload bytes of pinned blocks; each block counts once")               \
    X(GAUGE, quotas, "quotas that are set")                                                        \
    X(COUNTER, names_put, "conversations and documents created or changed")                        \
    X(COUNTER, names_expired, "conversations and documents that ended by their TTL")               \
    X(COUNTER, name_save_failures,                                                                 \
      "times that blocks of a conversation or document could not be written to disk")              \
    X(COUNTER, names_written, "conversations and documents written to their journal")              \
    X(GAUGE, names_error, "errno that ended the journal of names; 0: the journal works")           \
    X(GAUGE, names, "conversations and documents")                                                 \
    X(GAUGE, named_blocks, "blocks that conversations and documents reach")                        \
    X(GAUGE, named_bytes, "payload bytes of blocks that conversations and documents reach")        \
    X(COUNTER, hbm_verified,                                                                       \
      "blocks in memory whose checksum was verified before a device copied them")                  \
    X(COUNTER, hbm_hits, "blocks that ACQUIRE_ON found on its device")                             \
    X(COUNTER, hbm_only_hits,                                                                      \
      "blocks leased in slots of a device alone, and so not loaded from disk")                     \
    X(COUNTER, hbm_fills, "blocks copied into slots of devices")                                   \
    X(COUNTER, hbm_failures, "blocks that could not be copied into slots of devices")              \
    X(COUNTER, hbm_drops, "copies on devices that were evicted to make room")                      \
    X(COUNTER, hbm_lost, "copies on devices that were lost with their device")                     \
    X(COUNTER, hbm_corrupt,                                                                        \
      "copies on devices that did not match their checksum and were dropped")                      \
    X(COUNTER, sends, "requests that copy leased blocks to a worker's pages (PAGES_LOAD)")         \
    X(COUNTER, send_blocks, "blocks that arrived in workers' pages")                               \
    X(COUNTER, send_bytes, "payload bytes that arrived in workers' pages")                         \
    X(COUNTER, send_blocks_hbm, "blocks copied to workers' pages out of slots of the same device") \
    X(COUNTER, blocks_from_pages, "shards stored out of workers' pages")                           \
    X(COUNTER, bytes_from_pages, "payload bytes of shards stored out of workers' pages")           \
    X(GAUGE, hbm_blocks, "copies of blocks on devices")                                            \
    X(GAUGE, hbm_bytes, "payload bytes of copies of blocks on devices")                            \
    X(GAUGE, sends_in_flight, "PAGES_LOAD requests whose blocks are not all copied yet")           \
    X(GAUGE, transfers_waiting,                                                                    \
      "PAGES_LOAD and PAGES_STORE requests whose device copies have not begun")                    \
    X(GAUGE, host_bytes_per_s,                                                                     \
      "speed of copies in host memory when a load was last weighed against computing")             \
    X(GAUGE, namespaces, "namespaces that are open")

#define NVME_METRICS(X)                                                                        \
    X(COUNTER, bytes_accepted,                                                                 \
      "payload bytes of shards written, without those written again by reclaim")               \
    X(COUNTER, bytes_written, "bytes written to the paths: payload, tables, superblocks")      \
    X(COUNTER, bytes_kept, "bytes of shards that reclaim wrote again, in whole pages")         \
    X(COUNTER, bytes_journal, "bytes of values committed to the journal")                      \
    X(COUNTER, bytes_read, "bytes read from the paths")                                        \
    X(COUNTER, puts, "shards written, without those written again by reclaim")                 \
    X(COUNTER, gets, "shards read")                                                            \
    X(COUNTER, writes, "write I/Os of extents")                                                \
    X(COUNTER, reads, "read I/Os")                                                             \
    X(COUNTER, syncs, "sync I/Os")                                                             \
    X(COUNTER, commits, "transactions committed to the journal")                               \
    X(COUNTER, segments_reclaimed, "segments emptied for reuse")                               \
    X(COUNTER, blocks_kept, "shards that reclaim wrote again")                                 \
    X(COUNTER, blocks_lost,                                                                    \
      "shards lost: an I/O error, or wrong bytes while reclaim wrote them again")              \
    X(COUNTER, blocks_corrupt, "shards that did not match their checksum")                     \
    X(COUNTER, budget_refused, "blocks that storage did not take because of the write budget") \
    X(GAUGE, budget_spent_bytes, "bytes written since the day of the write budget began")      \
    X(GAUGE, budget_left_bytes,                                                                \
      "bytes that the write budget allows now; 0: none, or there is no budget")                \
    X(GAUGE, write_amplification_percent,                                                      \
      "bytes written, with the journal, in percent of the payload accepted")                   \
    X(GAUGE, blocks, "shards on disk")                                                         \
    X(GAUGE, used_bytes, "bytes of shards on disk, in whole pages")                            \
    X(GAUGE, durable_bytes, "bytes of shards that were written durably, in whole pages")       \
    X(GAUGE, limit_bytes, "bytes of all segments of all paths")                                \
    X(GAUGE, segments_free, "segments that are free")                                          \
    X(GAUGE, paths_up, "paths in service")                                                     \
    X(GAUGE, paths_out, "paths taken out of service")                                          \
    X(GAUGE, journal_error,                                                                    \
      "errno that ended the journal: nothing is written until a restart; 0: it works")         \
    X(HISTO, read_ns, "time of a read I/O, over all paths")                                    \
    X(HISTO, write_ns, "time of a write I/O, over all paths")

/* What a device's thread counts itself (gpu.h). */
#define GPU_METRICS(X)                                                                   \
    X(GAUGE, memory_bytes, "bytes of device memory that the daemon allocated")           \
    X(GAUGE, imported_bytes, "bytes of workers' device memory that the daemon imported") \
    X(GAUGE, inflight_bytes, "bytes of copies in flight")                                \
    X(GAUGE, credit_bytes, "most bytes of copies that the driver is given at a time")    \
    X(COUNTER, copies, "copies from and to the device that succeeded")                   \
    X(COUNTER, copy_bytes, "bytes copied from and to the device")                        \
    X(COUNTER, copy_frags, "fragments copied from and to the device")                    \
    X(COUNTER, failures, "operations on the device that failed")                         \
    X(COUNTER, outs, "times that the device was taken out of service")                   \
    X(HISTO, copy_ns, "time of a copy from or to the device")

#define DEVICE_METRICS(X)                                                              \
    X(GAUGE, up, "1: the device is in service, 0: it is out")                          \
    X(GAUGE, limit_bytes, "most bytes that slots may take")                            \
    X(GAUGE, used_bytes, "bytes of the slots in use")                                  \
    X(GAUGE, held_bytes, "bytes of retired chunks that workers have not unmapped yet") \
    X(GAUGE, blocks, "copies of blocks in slots")                                      \
    X(COUNTER, hits, "blocks that ACQUIRE_ON found in slots of the device")            \
    X(COUNTER, fills, "blocks copied into slots of the device")                        \
    X(COUNTER, drops, "copies of blocks evicted from slots to make room")              \
    GPU_METRICS(X)

/* What stands before the names of a table, "core" in "core.lookups". There is one "device" table
 * for each device: "device0", "device1". */
#define STAT_TABLES(T)        \
    T("daemon", NODE_METRICS) \
    T("svc", SVC_METRICS)     \
    T("core", CORE_METRICS)   \
    T("nvme", NVME_METRICS)   \
    T("device", DEVICE_METRICS)

#define STAT_METRIC_BYTES 96 /* room for a name of stat_metric_name() */

/* Length of a prefix without the number at its end: of "device0" that of "device". */
size_t stat_prefix_len(const char *prefix);
/* The name of a statistic at /metrics, without the _total of a counter: `wait_ns` of "svc" is
 * kvcache_svc_wait_seconds. `middle` stands before the unit. Returns `to`. */
const char *stat_metric_name(const char *prefix, const char *name, const char *middle,
                             char to[STAT_METRIC_BYTES]);

#endif
