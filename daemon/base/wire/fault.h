/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault points: a test makes the Nth call of a point fail, for N = 1, 2, ... until it is no longer
 * reached.
 *
 *   if (FAULT(alloc))
 *       return -ENOMEM;
 *
 * Code asks the system through sys.h, which has the points. FAULT() stands by itself only where a
 * foreign library makes the system call, or where no system call is made.
 *
 * Always compiled in. Off, a point costs one relaxed load of a global and a branch. Any thread may
 * pass a point; arming and resetting are for the test's own thread while no other passes one, or
 * for start.
 */
#ifndef KVC_WIRE_FAULT_H
#define KVC_WIRE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAULT_POINTS(X)                                 \
    X(alloc)  /* memory from the C library or a pool */ \
    X(send)   /* a message to a peer */                 \
    X(copy)   /* a copy worker's copy */                \
    X(map)    /* mmap, ftruncate, fallocate */          \
    X(fd)     /* whatever makes a descriptor */         \
    X(thread) /* starting a thread or process */        \
    X(read)   /* a read of the NVMe tier */             \
    X(write)  /* a write of the NVMe tier */            \
    X(sync)   /* its fdatasync, or any fsync */         \
    X(meta)   /* a call into LMDB */                    \
    X(walk)   /* the same in the child that checks */

#define FAULT__ENUM(name) FAULT_POINT_##name,
enum fault_point { FAULT_POINTS(FAULT__ENUM) FAULT_POINT_COUNT };

extern _Atomic bool fault__on;
bool fault__hit(enum fault_point point);
__attribute__((warn_unused_result)) int fault__io(enum fault_point point, uint32_t *ret_delay_ms);

/* True when this call is the one that must fail. Once per arming. */
#define FAULT(name)                                                                 \
    (__builtin_expect(atomic_load_explicit(&fault__on, memory_order_relaxed), 0) && \
     fault__hit(FAULT_POINT_##name))

/* For points of I/O, where calls can fail in more ways than one, or be late: 0, or the negative
 * errno with which this call must fail; *ret_delay_ms: how much later than now it is to begin, or
 * to fail (0: at once). */
#define FAULT_IO(name, ret_delay_ms)                                             \
    (__builtin_expect(atomic_load_explicit(&fault__on, memory_order_relaxed), 0) \
         ? fault__io(FAULT_POINT_##name, (ret_delay_ms))                         \
         : (*(ret_delay_ms) = 0, 0))

/* Lets the nth call from now (1 is the next) of the named point fail. -EINVAL: no such point, or
 * nth is 0. Other points keep what they were armed with. */
__attribute__((warn_unused_result)) int fault_arm(const char *point, uint64_t nth);
/* Disarms and forgets every count. */
void fault_reset(void);
/* Calls of the point since it was armed or, if it was not armed, since any point was. Less than
 * nth: the fault was not reached. Aborts when there is no such point. */
uint64_t fault_count(const char *point);
/* Arms what a text says, several with commas: "point:N" the Nth call, "point:N-M" the calls from N
 * to M, "point:N-" all from N on; behind it, for points of I/O, "=ENOSPC" (or EIO, which it is
 * without; EROFS, ENODEV, ETIMEDOUT) or "=2000ms": these calls begin late, and do not fail.
 * -EINVAL: the text is not of that form, and nothing is armed. */
__attribute__((warn_unused_result)) int fault_arm_text(const char *text);
/* The same from the environment, KVC_FAULT; 0 when that is unset or empty. A fault armed so writes
 * one line to stderr when it first strikes, so that nobody takes it for a real one: "fault: send:
 * call 3 fails (KVC_FAULT)". */
__attribute__((warn_unused_result)) int fault_from_env(void);

#endif
