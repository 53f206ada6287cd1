/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded by test_refused.py: memory that the extension asks for, or Python on its behalf, is
 * refused once. What both have is counted. All else is served as ever: libzmq and Python 3.11 (it
 * crashes when a generator finds no memory) end the process, and libkvcache's own is in
 * tests/fault.
 *
 * Whose malloc() is next is found at run time: libc's, or AddressSanitizer's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

int refuse_begin(void);
void refuse_at(long n);
long refuse_count(void);
long refuse_live(void);

enum { MODULES_MAX = 128, FRAMES_MAX = 128 };

static struct {
    uintptr_t from, to;
    bool is_extension;
} module[MODULES_MAX];
static int modules;
/* Found without __tls_get_addr(), which AddressSanitizer replaces and needs memory for. */
#define STATIC_TLS static _Thread_local __attribute__((tls_model("initial-exec")))
STATIC_TLS bool is_watched;
STATIC_TLS long refused, count;

/* What the watched thread has for Python or the extension; whoever gives it back. */
enum { SLOTS = 1 << 20, SLOTS_AROUND = 64 };
static _Atomic(void *) slot[SLOTS];
static atomic_long live;

static void *(*next_malloc)(size_t bytes);
static void *(*next_calloc)(size_t n, size_t bytes);
static void *(*next_realloc)(void *at, size_t bytes);
static void (*next_free)(void *at);

static void find_next(void)
{
    *(void **)&next_free = dlsym(RTLD_NEXT, "free");
    *(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next_calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
}

static int take_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    const char *name = info->dlpi_name;
    bool python = name[0] == '\0' || strstr(name, "libpython") != NULL ||
                  strstr(name, "/lib-dynload/") != NULL;
    bool is_extension = strstr(name, "_kvc.abi3") != NULL;
    if (!python && !is_extension)
        return 0;
    for (int i = 0; i < info->dlpi_phnum && modules < MODULES_MAX; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || (p->p_flags & PF_X) == 0)
            continue;
        module[modules].from = info->dlpi_addr + p->p_vaddr;
        module[modules].to = module[modules].from + p->p_memsz;
        module[modules].is_extension = is_extension;
        modules++;
    }
    return 0;
}

/* This thread is watched from here on. Returns how many pieces of code are. */
int refuse_begin(void)
{
    void *frame[4];
    modules = 0;
    (void)dl_iterate_phdr(take_module, NULL);
    (void)backtrace(frame, 4); /* the first one asks for memory itself */
    is_watched = true;
    return modules;
}

/* The n-th allocation from here on is refused; 0: none. */
void refuse_at(long n)
{
    refused = n;
    count = 0;
}

long refuse_count(void)
{
    return count;
}

/* Pieces of memory that were asked for and not given back. */
long refuse_live(void)
{
    return live;
}

static bool refuse_is_in(const void *code, bool of_extension)
{
    for (int i = 0; is_watched && i < modules; i++)
        if ((uintptr_t)code >= module[i].from && (uintptr_t)code < module[i].to)
            return !of_extension || module[i].is_extension;
    return false;
}

static bool is_for_extension(void)
{
    void *frame[FRAMES_MAX];
    int n = backtrace(frame, FRAMES_MAX);
    for (int i = 0; i < n; i++)
        if (refuse_is_in(frame[i], true))
            return true;
    return false;
}

static bool is_refused(const void *caller)
{
    if (refused == 0 || !refuse_is_in(caller, false) || !is_for_extension() || ++count != refused)
        return false;
    errno = ENOMEM;
    return true;
}

static size_t refuse_slot_of(const void *at)
{
    return ((uintptr_t)at >> 4) * 0x9E3779B97F4A7C15u >> 44;
}

static void *counted(const void *caller, void *made)
{
    if (made == NULL || !refuse_is_in(caller, false))
        return made;
    size_t first = refuse_slot_of(made);
    for (size_t i = 0; i < SLOTS_AROUND; i++) {
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&slot[(first + i) % SLOTS], &none, made))
            continue;
        atomic_fetch_add(&live, 1);
        break;
    }
    return made;
}

static void refuse_forget(void *at)
{
    size_t first = refuse_slot_of(at);
    for (size_t i = 0; at != NULL && i < SLOTS_AROUND; i++) {
        _Atomic(void *) *here = &slot[(first + i) % SLOTS];
        if (atomic_load_explicit(here, memory_order_relaxed) != at)
            continue;
        atomic_store(here, NULL); /* nobody else has `at` */
        atomic_fetch_sub(&live, 1);
        break;
    }
}

void *malloc(size_t bytes)
{
    const void *caller = __builtin_return_address(0);
    if (next_malloc == NULL)
        find_next();
    return is_refused(caller) ? NULL : counted(caller, next_malloc(bytes));
}

void *calloc(size_t n, size_t bytes)
{
    const void *caller = __builtin_return_address(0);
    if (next_malloc == NULL)
        find_next();
    return is_refused(caller) ? NULL : counted(caller, next_calloc(n, bytes));
}

void *realloc(void *at, size_t bytes)
{
    const void *caller = __builtin_return_address(0);
    if (next_malloc == NULL)
        find_next();
    if (is_refused(caller))
        return NULL;
    refuse_forget(at);
    return counted(caller, next_realloc(at, bytes)); /* which does not fail here */
}

void free(void *at)
{
    if (next_malloc == NULL)
        find_next();
    refuse_forget(at);
    next_free(at);
}
