/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISK_REPORT_H
#define DISK_REPORT_H

#include <stdio.h>

#include "disk_peer.h"

#define DISK_PEERS    4
#define DISK_SETTINGS 2

struct disk_table {
    struct disk_result cell[DISK_PEERS][DISK_SETTINGS];
};

/* Peer 0 is kvcache-daemon; the others are compared with it. */
struct disk_report {
    const struct disk_plan *plan;
    const struct disk_ops *ops[DISK_PEERS];
    const char *setting[DISK_SETTINGS];
    bool wanted[DISK_PEERS], wanted_setting[DISK_SETTINGS];
    const struct disk_table *results;
};

void disk_report_json(const struct disk_report *report);
void disk_report_table(FILE *to, const struct disk_report *report);

#endif
