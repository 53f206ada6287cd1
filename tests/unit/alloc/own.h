/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One call of each function that is counted, eight in all; everything is freed again. */
void own_allocate_eight_times(void);
