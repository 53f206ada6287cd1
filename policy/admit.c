/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which blocks storage is written for: admit_write() when a block leaves memory,
 * admit_keep() when its place on disk is reclaimed. The rule is in admit.h: two thresholds, each a
 * quantile of the last worths that were offered.
 */
#include "admit.h"

#include <stddef.h>
#include <string.h>

#define LOOK_EVERY   64u  /* values */
#define STRIKE_EVERY 256u /* offers */
#define OLDER        0.75f
#define CATCH_UP     0.25f /* of what is saved too much or too little, in one balance */
/* Of what was granted lately: what is to be saved, so that nothing is owed, and at most. */
#define RESERVE   0.25f
#define SAVED_MAX 4.0f

/* ---- quantile ---- */

static void swap(float *a, float *b)
{
    const float t = *a;
    *a = *b;
    *b = t;
}

/* The k-th smallest of n, which it moves about. */
static float select_kth(float *v, size_t n, size_t k)
{
    size_t low = 0, end = n;
    for (;;) {
        const float pivot = v[low + (end - low) / 2];
        size_t less = low, at = low, more = end; /* [low, less) < pivot, [more, end) > pivot */
        while (at < more) {
            if (v[at] < pivot)
                swap(&v[at++], &v[less++]);
            else if (v[at] > pivot)
                swap(&v[at], &v[--more]);
            else
                at++;
        }
        if (k < less)
            end = less;
        else if (k >= more)
            low = more;
        else
            return pivot;
    }
}

static void admit_look_up(struct quantile *q)
{
    float v[QUANTILE_WINDOW];
    const size_t n = q->seen < QUANTILE_WINDOW ? q->seen : QUANTILE_WINDOW;
    memcpy(v, q->value, n * sizeof(v[0]));
    const float below = q->share * (float)n;
    size_t k = (size_t)below;
    if (k >= n)
        k = n - 1;
    q->at = select_kth(v, n, k);
    float less = 0, equal = 0;
    for (size_t i = 0; i < n; i++) {
        less += v[i] < q->at;
        equal += !(v[i] < q->at || v[i] > q->at);
    }
    q->equal = (less + equal - below) / equal;
}

void quantile_init(struct quantile *q, float share)
{
    *q = (struct quantile){.share = share};
}

void quantile_add(struct quantile *q, float value)
{
    q->value[q->seen % QUANTILE_WINDOW] = value;
    q->seen++;
    if (q->seen == 2 * QUANTILE_WINDOW)
        q->seen = QUANTILE_WINDOW;
    if (q->seen % LOOK_EVERY == 0 || q->seen < LOOK_EVERY)
        admit_look_up(q);
}

bool quantile_above(struct quantile *q, float value)
{
    if (q->seen == 0 || q->share <= 0)
        return true;
    if (q->share >= 1 || value < q->at)
        return false;
    if (value > q->at)
        return true;
    q->credit += q->equal;
    if (q->credit < 1)
        return false;
    q->credit -= 1;
    return true;
}

/* ---- admission ---- */

void admit_init(struct admit *a, unsigned keep_percent)
{
    *a = (struct admit){.limited = false};
    quantile_init(&a->write, 0);
    quantile_init(&a->keep, (float)keep_percent / 100);
}

void admit_grant(struct admit *a, float bytes)
{
    a->limited = true;
    a->granted += bytes;
    a->saved += bytes;
}

/* Computes the part of the offered bytes that the budget pays for: what was granted, less what
 * reclaim writes and what must be written. */
static void strike_balance(struct admit *a)
{
    if (a->saved > SAVED_MAX * a->granted)
        a->saved = SAVED_MAX * a->granted;
    if (a->saved < -SAVED_MAX * a->granted)
        a->saved = -SAVED_MAX * a->granted;
    const float pays = a->granted - a->again + CATCH_UP * (a->saved - RESERVE * a->granted);
    if (a->offered > 0) {
        const float share = 1 - pays / a->offered;
        a->write.share = share < 0 ? 0 : share > 1 ? 1 : share;
    }
    a->granted *= OLDER;
    a->offered *= OLDER;
    a->again *= OLDER;
}

bool admit_write(struct admit *a, float worth, float chance, uint32_t bytes, bool must)
{
    if (!must && chance < ADMIT_CHANCE)
        return false;
    if (must) {
        a->again += (float)bytes;
    } else {
        quantile_add(&a->write, worth);
        a->offered += (float)bytes;
    }
    const bool write = must || quantile_above(&a->write, worth);
    if (write)
        a->saved -= (float)bytes;
    if (a->limited && ++a->offers % STRIKE_EVERY == 0)
        strike_balance(a);
    return write;
}

void admit_sample(struct admit *a, float worth)
{
    quantile_add(&a->keep, worth);
}

bool admit_keep(struct admit *a, float worth, float chance, uint32_t bytes, bool must)
{
    const bool worthy = chance >= ADMIT_CHANCE && quantile_above(&a->keep, worth) &&
                        !(a->limited && a->saved < -a->granted);
    const bool keep = must || worthy;
    if (keep) {
        a->again += (float)bytes;
        a->saved -= (float)bytes;
    }
    return keep;
}
