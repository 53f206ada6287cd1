/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls each of the eight counted functions once; frees everything. */
void own_allocate_eight_times(void);
