/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that does what a test tells it: a child process that speaks the protocol through codec,
 * ZeroMQ and a SEQPACKET socket. Its answers are invented. The test sets rules and reads results in
 * shared memory, and may stop or kill the process.
 */
#ifndef KVC_TEST_CLIENT_FAKE_H
#define KVC_TEST_CLIENT_FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvcache/kvcache.h>

#include "device_range.h"

#define FAKE_RULES       16
#define FAKE_CHUNKS      4
#define FAKE_CHUNK_BYTES 65536u
/* A slot is a generation, then the payload at FAKE_PAYLOAD_AT. */
#define FAKE_SLOT_BYTES  8192u
#define FAKE_PAYLOAD_AT  4096u
#define FAKE_BLOCK_BYTES 4096u
#define FAKE_SLOTS       (FAKE_CHUNK_BYTES / FAKE_SLOT_BYTES)
/* Chunk c on device 0 is FAKE_HBM | c: its headers are those of chunk c, its payload is in other
 * memory. */
#define FAKE_HBM          (1u << 24)
#define FAKE_LATE_BYTE    0xee
#define FAKE_STORED       8
#define FAKE_PAGES        64
#define FAKE_POOL_REGIONS 16

enum fake_what {
    FAKE_ANSWER,      /* the usual answer, `delay_ms` late */
    FAKE_STATUS,      /* with this status and a detail text */
    FAKE_SILENCE,     /* no answer; a CANCEL of the request is answered */
    FAKE_GARBAGE,     /* bytes that are no message */
    FAKE_BAD_BODY,    /* a valid head, then too few bytes */
    FAKE_OTHER_OP,    /* the answer of another operation */
    FAKE_TWO_PARTS,   /* an answer in two parts */
    FAKE_STRAY_FIRST, /* an answer that belongs to no request, then the right one */
    FAKE_AFTER_NEXT,  /* the answer comes after that of the next request */
    FAKE_DIE,         /* the process kills itself */
    FAKE_HANG_UP,     /* closes the attach connection and goes on */
    FAKE_CUT,    /* closes the control connections; new ones are for clients that attach later */
    FAKE_DROPPED /* says DROPPED on the attach channel */
};

enum fake_attach {
    FAKE_WELCOME,
    FAKE_DENY,
    FAKE_OTHER_VERSION,
    FAKE_MUTE,          /* reads HELLO and does not answer */
    FAKE_NO_DESCRIPTOR, /* grants staging and sends no descriptor */
    FAKE_HALF_STAGING,  /* grants half of what was asked for */
    /* Says LIMIT and closes: before HELLO, and in turns after HELLO without reading it. */
    FAKE_FULL,
    FAKE_NONSENSE
};

enum fake_chunk {
    FAKE_CHUNK_GIVE,
    FAKE_CHUNK_REFUSE,
    FAKE_CHUNK_GONE,
    FAKE_CHUNK_SHORT, /* announces more bytes than the file has */
    FAKE_CHUNK_MUTE
};

/* Answers to WORDS, MEM and MAP_ON. */
enum fake_words {
    FAKE_WORDS_GIVE,
    FAKE_WORDS_REFUSE, /* refuses: no devices */
    FAKE_WORDS_BUSY,   /* refuses once, then gives the words */
    FAKE_WORDS_MUTE,
    FAKE_WORDS_NO_DESCRIPTOR,
    FAKE_WORDS_FILE,     /* a regular file */
    FAKE_WORDS_UNSEALED, /* a memfd that can be cut */
    FAKE_WORDS_SHORT     /* a memfd of 8 bytes */
};
enum fake_mem { FAKE_MEM_TAKE, FAKE_MEM_REFUSE, FAKE_MEM_BUSY, FAKE_MEM_MUTE };
enum fake_hbm {
    FAKE_HBM_GIVE,
    FAKE_HBM_GONE,
    FAKE_HBM_OUT, /* TIER */
    FAKE_HBM_MUTE,
    FAKE_HBM_NO_DESCRIPTOR,
    FAKE_HBM_FILE,
    FAKE_HBM_UNSEALED,
    FAKE_HBM_SHORT, /* announces more bytes than the file has */
    FAKE_HBM_OTHER, /* names another device */
    FAKE_HBM_KIND,  /* a handle of CUDA's kind */
    FAKE_HBM_SMALL, /* less memory than the locations need */
    /* Memory as the fake CUDA driver makes it, on the device that ACQUIRE_ON named. */
    FAKE_HBM_CUDA,
    FAKE_HBM_CUDA_OTHER, /* the same on device 1 */
    FAKE_HBM_CUDA_SHORT  /* the same with more bytes announced than it has */
};
/* When a PAGES_LOAD without an answer writes FAKE_LATE_BYTE to its pages. */
enum fake_late {
    FAKE_LATE_NEVER,
    FAKE_LATE_CANCEL, /* when it is cancelled, before the CANCEL is answered */
    FAKE_LATE_TIMER   /* 300 ms after its arrival */
};

struct fake_rule {
    uint8_t op; /* 0 = unused */
    enum fake_what what;
    uint16_t status;
    /* How often the rule applies; then the next rule does, or the usual answer comes. */
    uint32_t times;
    uint32_t delay_ms;
};

struct fake_shared {
    /* The test sets these while the daemon is idle. */
    struct fake_rule rule[FAKE_RULES];
    _Atomic int attach;
    _Atomic int chunk;
    _Atomic uint32_t hit_blocks; /* ACQUIRE, LOOKUP: blocks of group 0 that are hit */
    _Atomic uint32_t chunk_id;   /* first chunk of the acquired blocks */
    /* So many blocks are in a chunk, then the next one follows; 0 = all are in one. */
    _Atomic uint32_t blocks_a_chunk;
    _Atomic uint32_t statuses_from; /* RESERVE, STORE: from this block on EXISTS; 0 = never */
    _Atomic bool wrong_loc;         /* a location lies outside of its chunk */
    _Atomic bool lease_without;     /* the reply has blocks and no lease */
    _Atomic uint32_t retire;        /* chunk + 1 to announce as retired before the next reply */
    /* LIST: number of pages of two rows; UINT32_MAX: the first page comes again and again. */
    _Atomic uint32_t list_pages;
    /* About devices. */
    _Atomic int words, mem, hbm, late;
    _Atomic uint32_t mem_busy;   /* so many more MEMs are answered with BUSY */
    _Atomic uint32_t hbm_blocks; /* ACQUIRE_ON: so many of the hit blocks are on the device */
    /* PAGES_LOAD: load_first: the first block; load_bad: the block + 1 that fails. */
    _Atomic uint32_t load_first, load_bad;
    _Atomic bool load_out;            /* PAGES_LOAD: all blocks fail */
    _Atomic uint32_t load_hit_tokens; /* PAGES_LOAD: hit_tokens; 0 = those of hit_blocks */
    /* The daemon writes these. */
    _Atomic uint32_t words_asked, mems_seen, mems_known, mems_dropped, maps_on_asked, unmapped;
    _Atomic uint32_t pools_open, mem_kind, load_flags, load_from, load_wait, load_pages;
    _Atomic uint64_t mem_bytes, mem_offset;
    _Atomic uint32_t late_written;
    uint8_t stored[FAKE_STORED][FAKE_BLOCK_BYTES]; /* blocks of the last PAGES_STORE */
    uint8_t device[KVC_UUID_BYTES];                /* uuid of the last MEM */
    _Atomic uint32_t instance;                     /* grows with each process that is started */
    _Atomic uint32_t requests[64];
    _Atomic uint64_t released, dropped_reservation, cancelled, last_ticket_shard;
    _Atomic uint64_t leases_released;
    _Atomic uint32_t maps_asked;
    _Atomic uint32_t deadline_ms;
    _Atomic uint8_t stored_byte; /* first byte of the last committed block */
    _Atomic uint32_t tokens_seen;
    _Atomic uint32_t attaches;
    _Atomic bool attach_open;
    _Atomic uint32_t last_ns; /* namespace of the last LOOKUP, ACQUIRE, RESERVE or STORE */
    _Atomic uint32_t wish_n, wish_flags; /* wishes and flags of the last RESERVE or STORE */
    _Atomic uint64_t wish_last; /* priority << 32 | low bits of duration_ms, of its last wish */
    _Atomic uint32_t hint;      /* kind << 24 | within_ms of the last HINT */
    _Atomic uint32_t ended;     /* number of second HELLOs on an attach connection */
};

struct fake {
    char dir[64];
    char path[96]; /* attach socket */
    pid_t pid;     /* 0 = not running */
    pid_t launcher;
    int commands, pids;
    struct fake_shared *s;
    int chunk_fd[FAKE_CHUNKS];
    /* Writable, so that the test can change generations and contents. */
    uint8_t *chunk[FAKE_CHUNKS];
    struct device_range hbm[FAKE_CHUNKS];
};

/* Makes a private directory and the chunks; starts no daemon. Slot i of chunk c has generation 1000
 * * c + i + 1 and payload bytes fake_byte(c, i). */
void fake_create(struct fake *f);
void fake_start(struct fake *f);
void fake_kill(struct fake *f);
void fake_destroy(struct fake *f);
void fake_rule(struct fake *f, uint8_t op, enum fake_what what, uint16_t status, uint32_t times);
uint8_t fake_byte(uint32_t chunk, uint32_t slot);
/* The byte of a block in device memory; the byte that PAGES_LOAD writes to page j of a block's
 * list, in a region. */
uint8_t fake_hbm_byte(uint32_t chunk, uint32_t slot);
uint8_t fake_page_byte(uint32_t block, uint32_t region, uint32_t j);
/* Milliseconds of the monotonic clock. */
uint64_t fake_now_ms(void);
/* Waits until `done` is true, which another process soon causes; false after five seconds. */
bool fake_wait_for(bool (*done)(void *), void *arg);

#endif
