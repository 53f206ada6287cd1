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

#define NODE_METRICS(X)                                                                        \
    X(GAUGE, uptime_ms, "time since the start")                                                \
    X(COUNTER, turns, "turns of the control thread")                                           \
    X(HISTO, turn_ns, "a turn of the control thread, without its wait for work")               \
    X(HISTO, turn_cpu_ns, "processor time of a turn")                                          \
    X(COUNTER, control_allocs, "allocations by our objects on the control thread after start") \
    X(COUNTER, chunks_retired, "chunks that changed hands")                                    \
    X(COUNTER, log_lines_lost, "log lines that could not be written")                          \
    X(COUNTER, control_refused, "control connections turned away: rights, number, no session") \
    X(COUNTER, control_cut, "control connections ended for what they sent")                    \
    X(COUNTER, control_shed, "control connections turned away for lack of descriptors")        \
    X(COUNTER, control_paused, "reads put off because a peer's requests fill its share")       \
    X(GAUGE, host_limit_bytes, "host tier: limit of slots")                                    \
    X(GAUGE, host_used_bytes, "host tier: slots in use")                                       \
    X(GAUGE, host_used_slots, "host tier: slots in use, counted")                              \
    X(GAUGE, host_mapped_bytes, "host tier: chunks")                                           \
    X(GAUGE, host_faulted_bytes, "host tier: of the chunks, touched in advance so far")        \
    X(GAUGE, host_registered_bytes, "host tier: registered with io_uring for storage I/O")     \
    X(GAUGE, copies_in_flight, "host tier: copies in flight")                                  \
    X(GAUGE, copy_bytes_in_flight, "host tier: bytes of copies in flight")                     \
    X(HISTO, host_copy_ns, "host tier: a copy into a slot, its wait for a thread included")

#define SVC_METRICS(X)                                                                     \
    X(COUNTER, requests, "requests")                                                       \
    X(COUNTER, replies_ok, "replies with status OK")                                       \
    X(COUNTER, replies_error, "replies with another status")                               \
    X(COUNTER, replies_timeout, "replies with status TIMEOUT")                             \
    X(COUNTER, replies_lost, "replies whose peer was gone")                                \
    X(COUNTER, unknown_routes, "messages from nobody we know, dropped")                    \
    X(COUNTER, bad_messages, "messages that could not be parsed")                          \
    X(COUNTER, attaches, "sessions begun")                                                 \
    X(COUNTER, attaches_denied, "connections refused for lack of rights")                  \
    X(COUNTER, detaches, "sessions that ended")                                            \
    X(COUNTER, sessions_dropped, "sessions ended by the daemon")                           \
    X(GAUGE, sessions, "sessions")                                                         \
    X(GAUGE, quarantined, "sessions ended by the daemon whose process has not let go yet") \
    X(GAUGE, calls, "requests waiting or copying")                                         \
    X(GAUGE, staging_bytes, "staging handed out")                                          \
    X(GAUGE, mems, "memories of workers on devices")                                       \
    X(GAUGE, pools, "pools of workers on devices")                                         \
    X(GAUGE, recalled, "retired chunks on devices that sessions have not unmapped yet")    \
    X(COUNTER, recalls_late, "times that a session kept retired chunks for 30 s")          \
    X(COUNTER, audited, "changes and removals by hand; the log has who did each")          \
    X(COUNTER, slices, "turns of requests that were not done where they came in")          \
    X(HISTO, handle_ns, "time in a handler")                                               \
    X(HISTO, room_wait_ns, "stores: waiting for room in memory, 1 us to 50 ms each")       \
    X(COUNTER, room_waits_late, "stores that waited for room in vain")                     \
    X(HISTO, lookup_ns, "lookup: from receipt to reply")                                   \
    X(HISTO, acquire_ns, "acquire: from receipt to reply, with what it waited for")        \
    X(HISTO, commit_ns, "store: from receipt of the commit to reply")                      \
    X(HISTO, pages_ns, "loads into pages: from receipt to reply")                          \
    X(HISTO, wait_ns, "acquires that waited: from receipt to reply")

#define CORE_METRICS(X)                                                                            \
    X(COUNTER, lookups, "lookups")                                                                 \
    X(COUNTER, acquires, "acquires answered")                                                      \
    X(COUNTER, blocks_asked, "blocks asked for by acquires")                                       \
    X(COUNTER, blocks_hit, "blocks asked for by acquires that were cached")                        \
    X(COUNTER, tokens_hit, "tokens that acquires found")                                           \
    X(COUNTER, tokens_loaded, "tokens loaded from disk for who asked")                             \
    X(COUNTER, tokens_recomputed_by_decision, "tokens cached, and quicker computed")               \
    X(COUNTER, tokens_recomputed_by_miss, "tokens that were asked for and not cached")             \
    X(COUNTER, bytes_leased, "bytes of leased blocks")                                             \
    X(COUNTER, blocks_reserved, "blocks announced by writers")                                     \
    X(COUNTER, blocks_stored, "blocks that became present")                                        \
    X(COUNTER, bytes_stored, "payload bytes copied into tiers")                                    \
    X(COUNTER, blocks_dropped, "announced blocks that never became present")                       \
    X(COUNTER, blocks_taken_over, "announced blocks that another took over, being late")           \
    X(COUNTER, blocks_touched, "stores of blocks that existed")                                    \
    X(COUNTER, blocks_evicted, "blocks evicted for room")                                          \
    X(COUNTER, blocks_evicted_admin, "blocks evicted on request")                                  \
    X(COUNTER, bytes_evicted, "payload bytes of evicted blocks")                                   \
    X(COUNTER, reserve_full, "requests cut short, a new block found no room")                      \
    X(COUNTER, reserve_not_worth, "requests cut short, worth less than what would go")             \
    X(COUNTER, evacuations, "regions emptied to make room of another size or principal")           \
    X(COUNTER, waits, "acquires that waited for a pending block")                                  \
    X(COUNTER, copy_failures, "copies that failed")                                                \
    X(COUNTER, blocks_verified, "blocks read again to see whether they are as stored")             \
    X(COUNTER, bytes_verified, "payload bytes read again to verify them")                          \
    X(COUNTER, blocks_corrupt, "blocks verified and not as stored: dropped")                       \
    X(COUNTER, blocks_corrupt_below, "blocks dropped because they build on a corrupt one")         \
    X(COUNTER, blocks_demoted, "blocks written to disk")                                           \
    X(COUNTER, bytes_demoted, "payload bytes of blocks written to disk")                           \
    X(COUNTER, demotion_failures, "blocks that could not be written to disk")                      \
    X(COUNTER, blocks_left, "blocks that went from memory and stay on disk")                       \
    X(COUNTER, blocks_lost_unsaved, "blocks evicted for room that were not on disk")               \
    X(COUNTER, store_waits, "stores that waited for blocks to be written to disk")                 \
    X(COUNTER, loads, "acquires that had blocks loaded")                                           \
    X(COUNTER, prefetches, "blocks loaded that nobody waited for")                                 \
    X(COUNTER, blocks_loaded, "blocks brought from disk into memory")                              \
    X(COUNTER, bytes_loaded, "payload bytes brought from disk into memory")                        \
    X(COUNTER, load_failures, "blocks that could not be loaded")                                   \
    X(COUNTER, blocks_hit_loaded, "blocks hit that had to be loaded from disk")                    \
    X(COUNTER, blocks_checked, "blocks found in memory at start and since checked")                \
    X(COUNTER, blocks_recovered, "blocks found at start")                                          \
    X(COUNTER, blocks_reclaimed, "blocks dropped so that storage can be written anew")             \
    X(COUNTER, blocks_kept, "blocks that storage was asked to keep and write again")               \
    X(COUNTER, keeps_refused, "times that storage could not keep what was to stay")                \
    X(COUNTER, blocks_lost_disk, "copies on disk that were lost")                                  \
    X(COUNTER, blocks_promised, "blocks made durable for a commit")                                \
    X(COUNTER, blocks_not_worth, "blocks that left memory and were not worth a write")             \
    X(COUNTER, wishes, "blocks for which a retention was wished")                                  \
    X(COUNTER, wishes_ended, "blocks whose retention ended")                                       \
    X(COUNTER, advice, "hints that were given to the policy")                                      \
    X(COUNTER, blocks_shifted, "blocks moved within memory so that what is held lies close")       \
    X(COUNTER, quota_refused, "requests cut short because a quota was exhausted")                  \
    X(COUNTER, quota_evicted, "blocks evicted to stay within their own quota")                     \
    X(COUNTER, quota_unsaved, "blocks not written to disk, for their quota there")                 \
    X(COUNTER, pins_taken, "pins taken")                                                           \
    X(COUNTER, pins_refused, "pins refused, for the budget")                                       \
    X(COUNTER, pins_ended, "pins that ended by their TTL")                                         \
    X(COUNTER, blocks_unpinned, "pinned blocks that were lost, corrupt or forced out")             \
    X(GAUGE, blocks_in_memory, "blocks in host memory")                                            \
    X(GAUGE, bytes_in_memory, "payload bytes in host memory")                                      \
    X(GAUGE, blocks_on_disk, "blocks on disk")                                                     \
    X(GAUGE, bytes_on_disk, "payload bytes on disk")                                               \
    X(GAUGE, bytes_unsaved, "payload bytes that only host memory has")                             \
    X(GAUGE, clean_bytes, "payload bytes in memory that go next, and are on disk")                 \
    X(GAUGE, saving_bytes, "payload bytes on their way to disk")                                   \
    X(GAUGE, loads_in_flight, "blocks on their way into memory, or being checked")                 \
    X(GAUGE, blocks_present, "blocks present")                                                     \
    X(GAUGE, blocks_pending, "blocks being written")                                               \
    X(GAUGE, bytes_present, "payload bytes of present blocks, all shards")                         \
    X(GAUGE, leases, "leases")                                                                     \
    X(GAUGE, leased_bytes, "bytes under lease, counted per lease")                                 \
    X(GAUGE, unevictable_bytes, "bytes in memory that are held, reserved or pinned")               \
    X(GAUGE, unevictable_regions, "chunks of memory that hold some of them")                       \
    X(GAUGE, guaranteed_regions, "chunks of memory that guaranteed shares need")                   \
    X(GAUGE, reservations, "reservations")                                                         \
    X(GAUGE, lease_oldest_ms, "age of the oldest lease")                                           \
    X(GAUGE, reservation_oldest_ms, "age of the oldest reservation")                               \
    X(GAUGE, commits_in_flight, "commits in flight")                                               \
    X(GAUGE, pins, "pins")                                                                         \
    X(GAUGE, pinned_blocks, "blocks pinned")                                                       \
    X(GAUGE, pinned_bytes, "payload bytes pinned, each block counted once")                        \
    X(GAUGE, quotas, "quotas")                                                                     \
    X(COUNTER, names_put, "names made or moved")                                                   \
    X(COUNTER, names_expired, "names that ended by their TTL")                                     \
    X(COUNTER, name_save_failures, "times that what a name reaches could not be saved")            \
    X(COUNTER, names_written, "names written to their journal")                                    \
    X(GAUGE, names_error, "errno that ended the journal of names: none is noted")                  \
    X(GAUGE, names, "names")                                                                       \
    X(GAUGE, named_blocks, "blocks that names reach")                                              \
    X(GAUGE, named_bytes, "payload bytes of blocks that names reach")                              \
    X(COUNTER, hbm_verified, "blocks in memory checked before devices copied them")                \
    X(COUNTER, hbm_hits, "blocks that fills found on their device")                                \
    X(COUNTER, hbm_only_hits, "blocks leased in slots alone, not loaded from disk")                \
    X(COUNTER, hbm_fills, "blocks copied into slots of devices")                                   \
    X(COUNTER, hbm_failures, "blocks that could not be copied into slots of devices")              \
    X(COUNTER, hbm_drops, "copies on devices let go of for others")                                \
    X(COUNTER, hbm_lost, "copies on devices that were lost with their device")                     \
    X(COUNTER, hbm_corrupt, "copies on devices found not as stored: dropped")                      \
    X(COUNTER, sends, "leases copied to workers' pages")                                           \
    X(COUNTER, send_blocks, "blocks that arrived in workers' pages")                               \
    X(COUNTER, send_bytes, "payload bytes that arrived in workers' pages")                         \
    X(COUNTER, send_blocks_hbm, "blocks sent to pages out of slots of the device")                 \
    X(COUNTER, blocks_from_pages, "shards stored out of workers' pages")                           \
    X(COUNTER, bytes_from_pages, "payload bytes of shards stored out of workers' pages")           \
    X(GAUGE, hbm_blocks, "copies of blocks on devices")                                            \
    X(GAUGE, hbm_bytes, "payload bytes of copies of blocks on devices")                            \
    X(GAUGE, sends_in_flight, "leases on their way to workers' pages")                             \
    X(GAUGE, transfers_waiting, "sends, and commits out of pages, that have not begun")            \
    X(GAUGE, host_bytes_per_s, "rate at which host memory is copied, as the last hit was weighed") \
    X(GAUGE, namespaces, "namespaces")

#define NVME_METRICS(X)                                                                         \
    X(COUNTER, bytes_accepted, "payload bytes put")                                             \
    X(COUNTER, bytes_written, "bytes written: payload, tables, superblocks")                    \
    X(COUNTER, bytes_kept, "payload bytes that reclaim wrote again")                            \
    X(COUNTER, bytes_journal, "bytes of journal values committed")                              \
    X(COUNTER, bytes_read, "bytes read")                                                        \
    X(COUNTER, puts, "blocks put")                                                              \
    X(COUNTER, gets, "blocks read")                                                             \
    X(COUNTER, writes, "write I/Os of extents")                                                 \
    X(COUNTER, reads, "read I/Os")                                                              \
    X(COUNTER, syncs, "syncs")                                                                  \
    X(COUNTER, commits, "journal commits")                                                      \
    X(COUNTER, segments_reclaimed, "segments emptied for reuse")                                \
    X(COUNTER, blocks_kept, "blocks that reclaim wrote again")                                  \
    X(COUNTER, blocks_lost, "blocks lost to I/O errors")                                        \
    X(COUNTER, blocks_corrupt, "blocks found not as stored: dropped")                           \
    X(COUNTER, budget_refused, "blocks that the write budget refused")                          \
    X(GAUGE, budget_spent_bytes, "bytes written since the budget's day began")                  \
    X(GAUGE, budget_left_bytes, "bytes that the write budget allows now")                       \
    X(GAUGE, write_amplification_percent, "all bytes written, of the payload bytes put")        \
    X(GAUGE, blocks, "blocks on disk")                                                          \
    X(GAUGE, used_bytes, "bytes of blocks on disk, in whole pages")                             \
    X(GAUGE, durable_bytes, "bytes of blocks that were promised to be durable")                 \
    X(GAUGE, limit_bytes, "bytes that may be written to the paths in all")                      \
    X(GAUGE, segments_free, "segments free")                                                    \
    X(GAUGE, paths_up, "paths in service")                                                      \
    X(GAUGE, paths_out, "paths taken out")                                                      \
    X(GAUGE, journal_error, "errno that ended the journal: nothing is written until a restart") \
    X(HISTO, read_ns, "a read I/O, from its begin to its end, over all paths")                  \
    X(HISTO, write_ns, "a write I/O, from its begin to its end, over all paths")

/* What a device's thread counts itself (gpu.h). */
#define GPU_METRICS(X)                                                 \
    X(GAUGE, memory_bytes, "memory allocated there")                   \
    X(GAUGE, imported_bytes, "workers' memory imported")               \
    X(GAUGE, inflight_bytes, "bytes of copies in flight")              \
    X(GAUGE, credit_bytes, "bytes of copies that the driver is given") \
    X(COUNTER, copies, "copies from and to it")                        \
    X(COUNTER, copy_bytes, "bytes copied from and to it")              \
    X(COUNTER, copy_frags, "fragments copied from and to it")          \
    X(COUNTER, failures, "operations that failed")                     \
    X(COUNTER, outs, "times that it was taken out")                    \
    X(HISTO, copy_ns, "a copy from or to it, from its begin to its end")

#define DEVICE_METRICS(X)                                               \
    X(GAUGE, up, "1: the device is in service, 0: it is out")           \
    X(GAUGE, limit_bytes, "limit of slots")                             \
    X(GAUGE, used_bytes, "slots in use")                                \
    X(GAUGE, held_bytes, "memory kept until workers unmap it")          \
    X(GAUGE, blocks, "copies of blocks in slots")                       \
    X(COUNTER, hits, "blocks that were there when they were asked for") \
    X(COUNTER, fills, "blocks copied there")                            \
    X(COUNTER, drops, "copies of blocks that went to make room")        \
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
