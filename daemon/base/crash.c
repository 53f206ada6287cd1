/* SPDX-License-Identifier: Apache-2.0 */
#include "crash.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bus.h"
#include "err.h"
#include "sys.h"

#define STACK_BYTES 65536u
#define LINE_BYTES  640u

struct fatal {
    int number;
    const char *name;
};
static const struct fatal fatal[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}};

static struct sigaction before[ARRAY_LEN(fatal)];
static void (*_Atomic crash_hook)(void);
static _Atomic long crashing;              /* id of the thread that reports its signal; 0: none */
static _Thread_local sigjmp_buf *survivor; /* where this thread goes on after a SIGBUS */
static _Alignas(64) uint8_t crash_stack[STACK_BYTES];

/* ---- text, without stdio ---- */

struct line {
    size_t len;
    char text[LINE_BYTES];
};

static void line_text(struct line *l, const char *s)
{
    const size_t n = MIN(strlen(s), sizeof(l->text) - l->len);
    memcpy(l->text + l->len, s, n);
    l->len += n;
}

static void line_hex(struct line *l, uintptr_t v)
{
    char text[2 * sizeof(v) + 3];
    char *at = text + sizeof(text) - 1;
    *at = '\0';
    do {
        *--at = "0123456789abcdef"[v % 16];
        v /= 16;
    } while (v != 0);
    *--at = 'x';
    *--at = '0';
    line_text(l, at);
}

/* ---- what is mapped at an address ---- */

static const char *take_hex(const char *s, uintptr_t *ret)
{
    *ret = 0;
    for (;; s++) {
        if (*s >= '0' && *s <= '9')
            *ret = *ret * 16 + (uintptr_t)(*s - '0');
        else if (*s >= 'a' && *s <= 'f')
            *ret = *ret * 16 + (uintptr_t)(*s - 'a') + 10;
        else
            return s;
    }
}

/* The file of a line of /proc/self/maps. "": memory without a file; NULL: the address is not in the
 * line's range. */
static const char *file_of(const char *map, uintptr_t address)
{
    uintptr_t from, to;
    const char *s = take_hex(map, &from);
    if (*s != '-')
        return NULL;
    s = take_hex(s + 1, &to);
    if (address < from || address >= to)
        return NULL;
    const char *file = strchr(s, '/');
    return file != NULL ? file : "";
}

/* Adds the name of the file that is mapped at `address`, if any. */
static void line_file(struct line *l, uintptr_t address)
{
    char map[LINE_BYTES], chunk[1024];
    size_t len = 0;
    const int fd = sys_open("/proc/self/maps", O_RDONLY, 0);
    const char *file = NULL;
    ssize_t n;
    while (fd >= 0 && file == NULL && (n = read(fd, chunk, sizeof(chunk))) > 0) {
        for (ssize_t i = 0; i < n && file == NULL; i++) {
            if (chunk[i] != '\n') {
                map[len] = chunk[i];
                len += len < sizeof(map) - 1;
                continue;
            }
            map[len] = '\0';
            len = 0;
            file = file_of(map, address);
        }
    }
    if (fd >= 0)
        (void)close(fd);
    if (file != NULL && file[0] != '\0') {
        line_text(l, ", in the map of ");
        line_text(l, file);
    }
}

/* ---- the signal ---- */

static void crash_tell(const struct fatal *f, const siginfo_t *info)
{
    char thread[17] = "?";
    struct line l = {.len = 0};
    (void)prctl(PR_GET_NAME, thread);
    line_text(&l, "fatal: ");
    line_text(&l, f->name);
    if (info->si_code > 0) { /* sent by the kernel, not by a process */
        line_text(&l, " at ");
        line_hex(&l, (uintptr_t)info->si_addr);
    }
    line_text(&l, " in thread ");
    line_text(&l, thread);
    if (info->si_code > 0)
        line_file(&l, (uintptr_t)info->si_addr);
    if (f->number == SIGBUS && info->si_code == BUS_ADRERR)
        line_text(&l, ": the file has been cut, or has no room for this page");
    l.len = MIN(l.len, sizeof(l.text) - 1);
    l.text[l.len++] = '\n';
    (void)!write(STDERR_FILENO, l.text, l.len); /* an error cannot be reported */
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    const int saved = errno;
    const long self = syscall(SYS_gettid);
    long none = 0;
    size_t i = 0;
    (void)context;
    if (number == SIGBUS && info->si_code > 0 && survivor != NULL)
        siglongjmp(*survivor, 1);
    if (number == SIGBUS && info->si_code > 0 && bus_is_mended(info->si_addr)) {
        errno = saved;
        return;
    }
    while (i < ARRAY_LEN(fatal) - 1 && fatal[i].number != number)
        i++;
    if (atomic_compare_exchange_strong(&crashing, &none, self)) {
        crash_tell(&fatal[i], info);
        void (*hook)(void) = atomic_exchange(&crash_hook, NULL);
        if (hook != NULL)
            hook();
    } else {
        while (none != self) /* until the reporting thread ends the process */
            (void)pause();
    }
    /* A fault that the kernel sent is raised again when the instruction is repeated. */
    (void)sigaction(number, &before[i], NULL);
    if (info->si_code <= 0)
        (void)raise(number);
    errno = saved;
}

int crash_survive(int (*fn)(void *ctx), void *ctx)
{
    sigjmp_buf back;
    MUST(survivor == NULL);
    if (sigsetjmp(back, 1) != 0) {
        survivor = NULL;
        return -EFAULT;
    }
    survivor = &back;
    const int r = fn(ctx);
    survivor = NULL;
    return r;
}

void crash_signals(sigset_t *ret_set)
{
    (void)sigemptyset(ret_set);
    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        (void)sigaddset(ret_set, fatal[i].number);
}

void crash_init(void (*hook)(void))
{
    const stack_t stack = {.ss_sp = crash_stack, .ss_size = sizeof(crash_stack)};
    struct sigaction action = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&action.sa_mask);
    atomic_store(&crash_hook, hook);
    atomic_store(&crashing, 0);
    MUST(sigaltstack(&stack, NULL) == 0);
    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        MUST(sigaction(fatal[i].number, &action, &before[i]) == 0);
}
