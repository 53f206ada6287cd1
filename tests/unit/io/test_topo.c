/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "topo.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct topo *make(const char *synthetic)
{
    struct topo *topo = NULL;
    ck_assert_int_eq(topo_create(synthetic, &topo), 0);
    ck_assert_ptr_nonnull(topo);
    return topo;
}

CASE(counts_nodes_and_hardware_threads)
{
    struct topo *topo = make("node:2 core:4 pu:2");
    ck_assert_uint_eq(topo_nodes(topo), 2);
    ck_assert_uint_eq(topo_cpus(topo), 16);
    topo_destroy(&topo);
    ck_assert_ptr_null(topo);
    topo_destroy(&topo);
}

CASE(a_machine_without_numa_is_one_node)
{
    struct topo *topo = make("core:4 pu:1");
    ck_assert_uint_eq(topo_nodes(topo), 1);
    for (unsigned i = 0; i < 10; i++) {
        ck_assert_uint_eq(topo_chunk_node(topo, i, 10), 0);
        ck_assert_uint_eq(topo_worker_node(topo, i, 10), 0);
    }
    topo_destroy(&topo);
}

CASE(equal_nodes_take_turns)
{
    struct topo *topo = make("node:4(memory=64GB) core:2 pu:1");
    for (unsigned i = 0; i < 4000; i++)
        ck_assert_uint_eq(topo_chunk_node(topo, i, 4000), i % 4);
    topo_destroy(&topo);
}

/* One node of 64 GB above two of 16 GB: shares of 4/6, 1/6 and 1/6. */
#define UNEVEN "[numa(memory=64GB)] pack:2 [numa(memory=16GB)] core:2 pu:1"

CASE(chunks_follow_memory_in_every_prefix)
{
    struct topo *topo = make(UNEVEN);
    ck_assert_uint_eq(topo_nodes(topo), 3);
    unsigned given[3] = {0};
    unsigned big = topo_chunk_node(topo, 0, 6000);
    for (unsigned i = 0; i < 6000; i++) {
        unsigned node = topo_chunk_node(topo, i, 6000);
        ck_assert_uint_lt(node, 3);
        given[node]++;
        for (unsigned n = 0; n < 3; n++) {
            /* In sixths of a chunk; beyond chunk 1023 the pattern's rounding adds to it. */
            int lag = (int)(i + 1) * (n == big ? 4 : 1) - 6 * (int)given[n];
            int bound = 6 * (1 + (int)(i / 1024 + 1));
            ck_assert_msg(abs(lag) <= bound, "chunk %u: node %u is %d/6 chunks off", i, n, lag);
        }
    }
    topo_destroy(&topo);
}

CASE(the_plan_is_the_same_in_every_run)
{
    struct topo *one = make(UNEVEN);
    struct topo *two = make(UNEVEN);
    for (unsigned i = 0; i < 3000; i++)
        ck_assert_uint_eq(topo_chunk_node(one, i, 3000), topo_chunk_node(two, i, 3000));
    topo_destroy(&one);
    topo_destroy(&two);
}

CASE(workers_go_round_the_nodes)
{
    struct topo *topo = make("node:3 core:2 pu:1");
    for (unsigned i = 0; i < 7; i++)
        ck_assert_uint_eq(topo_worker_node(topo, i, 7), i % 3);
    topo_destroy(&topo);
}

CASE(refuses_a_description_that_is_none)
{
    struct topo *topo = NULL;
    ck_assert_int_eq(topo_create("node:two", &topo), -EINVAL);
    ck_assert_int_eq(topo_create("", &topo), -EINVAL);
    ck_assert_ptr_null(topo);
}

CASE(synthetic_topology_binds_nothing)
{
    struct topo *topo = make("node:8 core:8 pu:2");
    cpu_set_t before, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    ck_assert_int_eq(topo_bind_thread(topo, 7), 0);
    ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    ck_assert_int_eq(topo_bind_memory(topo, NULL, 4096, 7), 0);
    topo_destroy(&topo);
}

CASE_DIES(a_node_that_is_not_there_is_a_bug, 6)
{
    struct topo *topo = make("node:2 core:1 pu:1");
    (void)!topo_bind_thread(topo, 2);
}

CASE_DIES(a_chunk_beyond_the_total_is_a_bug, 6)
{
    struct topo *topo = make("node:2 core:1 pu:1");
    (void)topo_chunk_node(topo, 5, 5);
}

/* --- this machine --------------------------------------------------------------------------- */

CASE(this_machine_counts_only_cpus_that_we_may_use)
{
    cpu_set_t allowed;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    struct topo *topo = make(NULL);
    ck_assert_uint_ge(topo_nodes(topo), 1);
    ck_assert_uint_le(topo_cpus(topo), (unsigned)CPU_COUNT(&allowed));
    topo_destroy(&topo);

    int first = 0;
    while (!CPU_ISSET(first, &allowed))
        first++;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    topo = make(NULL);
    ck_assert_uint_eq(topo_cpus(topo), 1);
    ck_assert_uint_eq(topo_nodes(topo), 1);
    topo_destroy(&topo);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(allowed), &allowed), 0);
}

CASE(binding_a_thread_stays_within_what_it_had)
{
    cpu_set_t before, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    struct topo *topo = make(NULL);
    unsigned cpus = 0;
    for (unsigned node = 0; node < topo_nodes(topo); node++) {
        ck_assert_int_eq(topo_bind_thread(topo, node), 0);
        ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
        cpu_set_t both;
        CPU_AND(&both, &before, &after);
        ck_assert_msg(CPU_EQUAL(&both, &after), "node %u: bound to CPUs outside the mask", node);
        ck_assert_int_ge(CPU_COUNT(&after), 1);
        cpus += (unsigned)CPU_COUNT(&after);
    }
    ck_assert_uint_ge(cpus, topo_cpus(topo));
    ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
    topo_destroy(&topo);
}

CASE(bound_memory_is_usable)
{
    struct topo *topo = make(NULL);
    size_t bytes = 1 << 20;
    char *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(mem, MAP_FAILED);
    for (unsigned node = 0; node < topo_nodes(topo); node++) {
        int r = topo_bind_memory(topo, mem, bytes, node);
        /* Containers without CAP_SYS_NICE refuse mbind, kernels without NUMA do not have it. */
        ck_assert_msg(r == 0 || r == -EPERM || r == -ENOSYS, "node %u: %d", node, r);
    }
    for (size_t i = 0; i < bytes; i += 4096)
        mem[i] = 1;
    munmap(mem, bytes);
    topo_destroy(&topo);
}

CASE(pci_address_of_another_form_is_refused)
{
    static const char *const wrong[] = {
        "",
        "17:00.0",
        "0000:17:00",
        "0000:17:00.0 ",
        "0000:17:00.",
        "xyz",
        "000:17:00.0",
        "0000:1:00.0",
        "000000000:17:00.0",
        "0000:17:00.00",
        "0000-17-00.0",
        "0000:17:00.g",
    };
    struct topo *topo = make(NULL);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        unsigned node = 77;
        ck_assert_msg(topo_pci_node(topo, wrong[i], &node) == -EINVAL, "'%s'", wrong[i]);
        ck_assert_uint_eq(node, 77);
    }
    topo_destroy(&topo);
}

CASE(pci_device_that_is_not_there)
{
    struct topo *topo = make(NULL);
    unsigned node = 77;
    ck_assert_int_eq(topo_pci_node(topo, "fffe:fe:1e.7", &node), -ENOENT);
    ck_assert_int_eq(topo_pci_node(topo, "0000FFFE:fe:1e.7", &node), -ENOENT);
    ck_assert_uint_eq(node, 77);
    topo_destroy(&topo);
}

/* Is there another node's memory below this directory entry of sysfs? -1: the firmware does not
 * say. */
static int sysfs_node(const char *busid)
{
    char path[320];
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", busid);
    FILE *f = fopen(path, "r");
    int node = -1;
    if (f) {
        if (fscanf(f, "%d", &node) != 1)
            node = -1;
        fclose(f);
    }
    return node;
}

CASE(pci_devices_of_this_machine_are_found)
{
    DIR *dir = opendir("/sys/bus/pci/devices");
    if (!dir)
        return; /* no PCI here: the case above still ran */
    struct topo *topo = make(NULL);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (!isxdigit((unsigned char)e->d_name[0]))
            continue;
        unsigned node = 77;
        int r = topo_pci_node(topo, e->d_name, &node);
        if (topo_nodes(topo) == 1) {
            ck_assert_msg(r == 0 && node == 0, "%s: %d, node %u", e->d_name, r, node);
        } else if (r == 0) {
            ck_assert_uint_lt(node, topo_nodes(topo));
        } else {
            /* Not placed by us: then not placed by the firmware, or on a node without CPUs of ours.
             */
            ck_assert_msg(r == -ENODATA, "%s: %d (sysfs says node %d)", e->d_name, r,
                          sysfs_node(e->d_name));
        }
    }
    closedir(dir);
    topo_destroy(&topo);
}
