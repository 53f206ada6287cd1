/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that does what a test tells it: a child process that speaks the protocol through codec,
 * ZeroMQ and a SEQPACKET socket, with answers made up. The test scripts it and looks into it
 * through shared memory, and may stop or kill it as a process.
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
/* On the device 0 chunk c is FAKE_HBM | c: headers as in chunk c, payload in memory of its own. */
#define FAKE_HBM          (1u << 24)
#define FAKE_LATE_BYTE    0xee
#define FAKE_STORED       8
#define FAKE_PAGES        64
#define FAKE_POOL_REGIONS 16

enum fake_what {
    FAKE_ANSWER,      /* as usual, `delay_ms` later */
    FAKE_STATUS,      /* with this status and a detail text */
    FAKE_SILENCE,     /* never; a CANCEL of it is answered */
    FAKE_GARBAGE,     /* bytes that are no message */
    FAKE_BAD_BODY,    /* a good head, then too little */
    FAKE_OTHER_OP,    /* the answer of another operation */
    FAKE_TWO_PARTS,   /* an answer in two parts */
    FAKE_STRAY_FIRST, /* an answer to nobody, then the right one */
    FAKE_AFTER_NEXT,  /* only after the next request has been answered */
    FAKE_DIE,         /* the process kills itself */
    FAKE_HANG_UP,     /* closes the attach connection, lives on */
    FAKE_CUT,         /* ends the control connections; new ones are for the next to attach */
    FAKE_DROPPED      /* says DROPPED on the attach channel */
};

enum fake_attach {
    FAKE_WELCOME,
    FAKE_DENY,
    FAKE_OTHER_VERSION,
    FAKE_MUTE,          /* reads HELLO, says nothing */
    FAKE_NO_DESCRIPTOR, /* grants staging, passes none */
    FAKE_HALF_STAGING,  /* grants half of what was asked for */
    FAKE_FULL,          /* says so and closes, before HELLO and (in turns) behind it, unread */
    FAKE_NONSENSE
};

enum fake_chunk {
    FAKE_CHUNK_GIVE,
    FAKE_CHUNK_REFUSE,
    FAKE_CHUNK_GONE,
    FAKE_CHUNK_SHORT, /* says more bytes than the file has */
    FAKE_CHUNK_MUTE
};

/* What WORDS, MEM and MAP_ON are answered. */
enum fake_words {
    FAKE_WORDS_GIVE,
    FAKE_WORDS_REFUSE, /* there are no devices */
    FAKE_WORDS_BUSY,   /* once; then they are given */
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
    FAKE_HBM_SHORT, /* says more bytes than the file has */
    FAKE_HBM_OTHER, /* says that it is on another device */
    FAKE_HBM_KIND,  /* of CUDA's kind */
    FAKE_HBM_SMALL, /* less memory than the locations need */
    /* Of whatever device the ACQUIRE_ON named, in memory as the fake CUDA driver makes it. */
    FAKE_HBM_CUDA,
    FAKE_HBM_CUDA_OTHER, /* of device 1 */
    FAKE_HBM_CUDA_SHORT  /* says more than there is */
};
/* When a PAGES_LOAD that is not answered writes FAKE_LATE_BYTE into its pages. */
enum fake_late {
    FAKE_LATE_NEVER,
    FAKE_LATE_CANCEL, /* when it is cancelled, before that is answered */
    FAKE_LATE_TIMER   /* 300 ms after it came */
};

struct fake_rule {
    uint8_t op; /* 0 = unused */
    enum fake_what what;
    uint16_t status;
    uint32_t times; /* how often it applies; then the next rule, or the usual answer */
    uint32_t delay_ms;
};

struct fake_shared {
    /* Set by the test while the daemon is idle. */
    struct fake_rule rule[FAKE_RULES];
    _Atomic int attach;
    _Atomic int chunk;
    _Atomic uint32_t hit_blocks;     /* ACQUIRE, LOOKUP: of group 0 */
    _Atomic uint32_t chunk_id;       /* first chunk of the blocks acquired */
    _Atomic uint32_t blocks_a_chunk; /* then the next one; 0 = all in one */
    _Atomic uint32_t statuses_from;  /* RESERVE, STORE: blocks from here on are EXISTS; 0 = none */
    _Atomic bool wrong_loc;          /* a location outside its chunk */
    _Atomic bool lease_without;      /* blocks but no lease */
    _Atomic uint32_t retire;         /* chunk + 1 to announce as retired before the next reply */
    _Atomic uint32_t list_pages;     /* LIST: pages of two; UINT32_MAX: the first one for ever */
    /* Devices. */
    _Atomic int words, mem, hbm, late;
    _Atomic uint32_t mem_busy;             /* so many MEMs more are answered BUSY */
    _Atomic uint32_t hbm_blocks;           /* ACQUIRE_ON: so many of the hit are on the device */
    _Atomic uint32_t load_first, load_bad; /* PAGES_LOAD: first block; the block + 1 that fails */
    _Atomic bool load_out;                 /* all of them fail */
    _Atomic uint32_t load_hit_tokens;      /* 0 = of hit_blocks */
    /* Written by the daemon. */
    _Atomic uint32_t words_asked, mems_seen, mems_known, mems_dropped, maps_on_asked, unmapped;
    _Atomic uint32_t pools_open, mem_kind, load_flags, load_from, load_wait, load_pages;
    _Atomic uint64_t mem_bytes, mem_offset;
    _Atomic uint32_t late_written;
    uint8_t stored[FAKE_STORED][FAKE_BLOCK_BYTES]; /* of the last PAGES_STORE */
    uint8_t device[KVC_UUID_BYTES];                /* of the last MEM */
    _Atomic uint32_t instance;                     /* grows with each process */
    _Atomic uint32_t requests[64];
    _Atomic uint64_t released, dropped_reservation, cancelled, last_ticket_shard;
    _Atomic uint64_t leases_released;
    _Atomic uint32_t maps_asked;
    _Atomic uint32_t deadline_ms;
    _Atomic uint8_t stored_byte; /* first byte of the last block committed */
    _Atomic uint32_t tokens_seen;
    _Atomic uint32_t attaches;
    _Atomic bool attach_open;
    _Atomic uint32_t last_ns;            /* named by a LOOKUP, ACQUIRE, RESERVE or STORE */
    _Atomic uint32_t wish_n, wish_flags; /* of the last RESERVE or STORE */
    _Atomic uint64_t wish_last; /* priority << 32 | low bits of duration_ms of its last wish */
    _Atomic uint32_t hint;      /* kind << 24 | within_ms of the last HINT */
    _Atomic uint32_t ended;     /* second HELLOs on an attach connection */
};

struct fake {
    char dir[64];
    char path[96]; /* attach socket */
    pid_t pid;     /* 0 = not running */
    pid_t launcher;
    int commands, pids;
    struct fake_shared *s;
    int chunk_fd[FAKE_CHUNKS];
    uint8_t *chunk[FAKE_CHUNKS]; /* writable, to change generations and contents */
    struct device_range hbm[FAKE_CHUNKS];
};

/* A private directory and the chunks; starts nothing. Slot i of chunk c holds generation
 * 1000 * c + i + 1 and payload bytes fake_byte(c, i). */
void fake_create(struct fake *f);
void fake_start(struct fake *f);
void fake_kill(struct fake *f);
void fake_destroy(struct fake *f);
void fake_rule(struct fake *f, uint8_t op, enum fake_what what, uint16_t status, uint32_t times);
uint8_t fake_byte(uint32_t chunk, uint32_t slot);
/* Of a block in memory on the device; of what PAGES_LOAD writes into page j of a block's list, in a
 * region. */
uint8_t fake_hbm_byte(uint32_t chunk, uint32_t slot);
uint8_t fake_page_byte(uint32_t block, uint32_t region, uint32_t j);
/* Milliseconds of the monotonic clock. */
uint64_t fake_now_ms(void);
/* Waits for something that another process does soon; false after five seconds. */
bool fake_wait_for(bool (*done)(void *), void *arg);

#endif
