/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>

#include "cpu.h"

uint64_t cpu_process_ns(int pid)
{
    char path[300];
    uint64_t sum = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", pid, entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        unsigned long long ns;
        if (f && fscanf(f, "%llu", &ns) == 1)
            sum += ns;
        if (f)
            fclose(f);
    }
    closedir(dir);
    return sum;
}

uint64_t cpu_family_ns(int pid)
{
    char path[64];
    uint64_t sum = cpu_process_ns(pid);
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    int child;
    while (f && fscanf(f, "%d", &child) == 1)
        sum += cpu_process_ns(child);
    if (f)
        fclose(f);
    return sum;
}
