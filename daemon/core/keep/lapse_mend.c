/* SPDX-License-Identifier: Apache-2.0 */
/* Promises that have lapsed are made again, whoever asks. */
#include "keep.h"
#include "lapse.h"

/* Records that are looked at in a call: some 20 us. */
#define LAPSE_STEP 1024u
/* All are looked at again so much later, while some block has lapsed. */
#define LAPSE_AGAIN_MS 10000u
/* It goes on so much later where storage has refused. */
#define LAPSE_PAUSE_MS 1000u

/* False: little more can be begun now; it, too, is looked at again. */
static bool lapse_mend(struct core *c, struct block *b)
{
    const int err = promise_make(c, b, b->flags & BLOCK_F_SAFE ? SAVE_PROMISE : SAVE_PIN);
    const bool is_refused = c->now_ms < c->pause_ms;
    c->m.demotion_failures += err != 0 && err != KVC_E_BUSY;
    if (is_refused)
        c->lapse->next_ms = c->now_ms + LAPSE_PAUSE_MS;
    if (!is_refused && err != KVC_E_BUSY)
        return true;
    c->lapse->left = c->blocks_high;
    return false;
}

bool lapse_step(struct core *c)
{
    if (c->lapse->blocks == 0 || c->now_ms < MAX(c->lapse->next_ms, c->pause_ms))
        return false;
    if (c->lapse->left == 0)
        c->lapse->left = c->blocks_high;
    for (uint32_t n = 0; n < LAPSE_STEP && c->lapse->left > 0; n++) {
        struct block *b = &c->blocks[c->lapse->at];
        c->lapse->at = c->lapse->at + 1 < c->blocks_high ? c->lapse->at + 1 : 0;
        c->lapse->left--;
        if (block_lapsed(c, b) && !lapse_mend(c, b))
            return false;
    }
    if (c->lapse->left == 0)
        c->lapse->next_ms = c->now_ms + LAPSE_AGAIN_MS;
    return c->lapse->left > 0;
}
