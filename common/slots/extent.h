/* extent.h: where bytes lie that are cut into units and dealt out, round robin, over several places. It
 * describes both how an array lies in files (a unit is a row, a place is a file) and how a file lies on
 * drives (a unit is some rows that fill blocks, a place is a drive). The disk engine, its drives and the
 * GPU's kernels all use it.
 *
 *   Unit u begins at byte from + u x unit of the whole. It lies in place first + u mod over, from byte
 * base + u / over x unit of that place on.
 *
 * Owner: none; plain values. Threads: any. Host and device. */
#ifndef PST_EXTENT_H
#define PST_EXTENT_H

#include "common/base.h"

struct pst_extent {
    uint64_t from; /* what comes before this byte lies nowhere */
    uint64_t unit; /* bytes, at least 1 */
    uint64_t base;
    uint32_t first, over; /* over: how many places; 0: it lies nowhere */
    uint32_t nsid;        /* of drives: the namespace in which it lies on each */
};

struct pst_extent_place {
    uint32_t place;
    uint64_t at;  /* byte in that place */
    uint64_t run; /* bytes that follow there without a break, this one included */
};

/* Where a byte of the whole lies. False: nowhere. */
static PST_HD bool pst_extent_find(const struct pst_extent *e, uint64_t byte, struct pst_extent_place *to)
{
    if (e->over == 0 || byte < e->from)
        return false;
    byte -= e->from;
    to->place = e->first;
    to->at = e->base + byte;
    to->run = UINT64_MAX;
    if (e->over > 1) {
        const uint64_t unit = byte / e->unit, rest = byte % e->unit;
        to->place = e->first + (uint32_t)(unit % e->over);
        to->at = e->base + unit / e->over * e->unit + rest;
        to->run = e->unit - rest;
    }
    return true;
}

#endif
