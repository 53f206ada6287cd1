/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the machine's NUMA topology with hwloc, spreads chunks and copy threads over its nodes, and
 * binds threads and memory.
 */
#include "topo.h"

#include <ctype.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "sys.h"

enum { PATTERN = 1024 }; /* chunks after which the assignment repeats */

struct topo {
    hwloc_topology_t hw;
    bool synthetic;
    unsigned nodes;
    unsigned cpus;
    hwloc_obj_t *node_obj;        /* [nodes], owned by hw */
    uint16_t chunk_node[PATTERN]; /* node of chunk i % PATTERN */
};

/* --- making --------------------------------------------------------------------------------- */

static int hw_configure(struct topo *topo, const char *synthetic)
{
    if (synthetic)
        return hwloc_topology_set_synthetic(topo->hw, synthetic) < 0 ? -EINVAL : 0;
    /* hwloc's Linux component finds all that is needed here, in sysfs. The unwanted ones would load
     * GPU drivers, open X displays, or (pci) read every device's configuration space. */
    static const char *const unwanted[] = {"pci",  "opencl", "gl",       "cuda",
                                           "nvml", "rsmi",   "levelzero"};
    for (size_t i = 0; i < ARRAY_LEN(unwanted); i++) {
        /* EINVAL: this component is not installed. */
        if (hwloc_topology_set_components(topo->hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                          unwanted[i]) < 0 &&
            errno != EINVAL)
            return -errno;
    }
    int r =
        hwloc_topology_set_type_filter(topo->hw, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
    return r < 0 ? -errno : 0;
}

/* Restricts the topology to the calling thread's CPUs. hwloc's flag for the process would add the
 * masks of threads that libraries have started. */
static int hw_restrict_to_affinity(struct topo *topo)
{
    hwloc_bitmap_t allowed = FAULT(alloc) ? NULL : hwloc_bitmap_alloc();
    if (!allowed)
        return -ENOMEM;
    int r = 0;
    if (hwloc_get_cpubind(topo->hw, allowed, HWLOC_CPUBIND_THREAD) < 0 ||
        hwloc_topology_restrict(topo->hw, allowed, 0) < 0 || hwloc_topology_refresh(topo->hw) < 0)
        r = -errno;
    hwloc_bitmap_free(allowed);
    return r;
}

static int hw_load(struct topo *topo, const char *synthetic)
{
    if (FAULT(alloc) || hwloc_topology_init(&topo->hw) < 0)
        return -ENOMEM;
    int r = hw_configure(topo, synthetic);
    if (r < 0)
        return r;
    errno = 0;
    if (hwloc_topology_load(topo->hw) < 0)
        return errno ? -errno : -EIO;
    return synthetic ? 0 : hw_restrict_to_affinity(topo);
}

static int nodes_find(struct topo *topo)
{
    int all = hwloc_get_nbobjs_by_type(topo->hw, HWLOC_OBJ_NUMANODE);
    if (all < 1)
        return -ENODATA;
    topo->node_obj = sys_calloc((size_t)all, sizeof(hwloc_obj_t));
    if (!topo->node_obj)
        return -ENOMEM;
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_obj_by_type(topo->hw, HWLOC_OBJ_NUMANODE, obj))) {
        if (!hwloc_bitmap_iszero(obj->cpuset))
            topo->node_obj[topo->nodes++] = obj;
    }
    int cpus = hwloc_get_nbobjs_by_type(topo->hw, HWLOC_OBJ_PU);
    if (topo->nodes == 0 || topo->nodes > UINT16_MAX || cpus < 1)
        return -ENODATA;
    topo->cpus = (unsigned)cpus;
    return 0;
}

/* Each node's share of the memory, with sum 1.0. All are equal if no node states its memory. */
static int shares_make(const struct topo *topo, double **ret_shares)
{
    double *shares = sys_calloc(topo->nodes, sizeof(*shares));
    if (!shares)
        return -ENOMEM;
    double total = 0;
    for (unsigned i = 0; i < topo->nodes; i++)
        total += (double)topo->node_obj[i]->attr->numanode.local_memory;
    for (unsigned i = 0; i < topo->nodes; i++)
        shares[i] = total > 0 ? (double)topo->node_obj[i]->attr->numanode.local_memory / total
                              : 1.0 / topo->nodes;
    *ret_shares = shares;
    return 0;
}

/* Each chunk goes to the node that is furthest below its share; of equal ones, to the lower number.
 */
static int pattern_make(struct topo *topo)
{
    double *shares = NULL;
    int r = shares_make(topo, &shares);
    if (r < 0)
        return r;
    unsigned *given = sys_calloc(topo->nodes, sizeof(*given));
    if (!given) {
        free(shares);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < PATTERN; i++) {
        unsigned best = 0;
        double best_lag = -1;
        for (unsigned n = 0; n < topo->nodes; n++) {
            double lag = shares[n] * (i + 1) - given[n];
            if (lag > best_lag + 1e-9) {
                best = n;
                best_lag = lag;
            }
        }
        topo->chunk_node[i] = (uint16_t)best;
        given[best]++;
    }
    free(given);
    free(shares);
    return 0;
}

int topo_create(const char *synthetic, struct topo **ret_topo)
{
    struct topo *topo = sys_calloc(1, sizeof(*topo));
    if (!topo)
        return -ENOMEM;
    topo->synthetic = synthetic != NULL;
    int r = hw_load(topo, synthetic);
    if (r >= 0)
        r = nodes_find(topo);
    if (r >= 0)
        r = pattern_make(topo);
    if (r < 0) {
        topo_destroy(&topo);
        return r;
    }
    *ret_topo = topo;
    return 0;
}

void topo_destroy(struct topo **topo)
{
    if (!topo || !*topo)
        return;
    if ((*topo)->hw)
        hwloc_topology_destroy((*topo)->hw);
    free((*topo)->node_obj);
    free(*topo);
    *topo = NULL;
}

/* --- plan ----------------------------------------------------------------------------------- */

unsigned topo_nodes(const struct topo *topo)
{
    return topo->nodes;
}

unsigned topo_cpus(const struct topo *topo)
{
    return topo->cpus;
}

unsigned topo_chunk_node(const struct topo *topo, unsigned chunk, unsigned chunks_total)
{
    MUST(chunk < chunks_total);
    return topo->chunk_node[chunk % PATTERN];
}

unsigned topo_worker_node(const struct topo *topo, unsigned worker, unsigned workers_total)
{
    MUST(worker < workers_total);
    return worker % topo->nodes;
}

/* --- binding -------------------------------------------------------------------------------- */

int topo_bind_thread(const struct topo *topo, unsigned node)
{
    MUST(node < topo->nodes);
    if (topo->synthetic)
        return 0;
    hwloc_const_cpuset_t cpus = topo->node_obj[node]->cpuset;
    return hwloc_set_cpubind(topo->hw, cpus, HWLOC_CPUBIND_THREAD) < 0 ? -errno : 0;
}

int topo_bind_memory(const struct topo *topo, void *addr, size_t bytes, unsigned node)
{
    MUST(node < topo->nodes);
    MUST((uintptr_t)addr % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
    if (topo->synthetic || bytes == 0)
        return 0;
    /* Without HWLOC_MEMBIND_STRICT: strictly bound, a full node means SIGBUS at first touch. */
    return hwloc_set_area_membind(topo->hw, addr, bytes, topo->node_obj[node]->nodeset,
                                  HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) < 0
               ? -errno
               : 0;
}

/* --- devices -------------------------------------------------------------------------------- */

/* Reads digits_min to digits_max hex digits at *at and moves it behind them. */
static bool hex_take(const char **at, int digits_min, int digits_max, unsigned *ret_value)
{
    unsigned value = 0;
    int n = 0;
    for (; n < digits_max && isxdigit((unsigned char)**at); n++, (*at)++) {
        unsigned c = (unsigned char)tolower((unsigned char)**at);
        value = value << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *ret_value = value;
    return n >= digits_min;
}

static bool char_take(const char **at, char c)
{
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

int topo_pci_node(const struct topo *topo, const char *busid, unsigned *ret_node)
{
    unsigned domain, bus, dev, func;
    const char *at = busid;
    if (!hex_take(&at, 4, 8, &domain) || !char_take(&at, ':') || !hex_take(&at, 2, 2, &bus) ||
        !char_take(&at, ':') || !hex_take(&at, 2, 2, &dev) || !char_take(&at, '.') ||
        !hex_take(&at, 1, 1, &func) || *at != '\0')
        return -EINVAL;
    hwloc_obj_t pci = hwloc_get_pcidev_by_busid(topo->hw, domain, bus, dev, func);
    if (!pci)
        return -ENOENT;
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topo->hw, pci);
    unsigned found = 0, node = 0;
    for (unsigned i = 0; near && i < topo->nodes; i++) {
        if (hwloc_bitmap_isincluded(topo->node_obj[i]->nodeset, near->nodeset)) {
            node = i;
            found++;
        }
    }
    /* A device below several nodes (such as the whole machine) is near none of them. */
    if (found != 1)
        return -ENODATA;
    *ret_node = node;
    return 0;
}
