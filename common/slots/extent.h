/* extent.h: the positions of bytes that are divided into units and distributed, round robin, over several
 * places. It describes both an array in files (a unit is a row, a place is a file) and a file on drives (a
 * unit is some rows that fill whole blocks, a place is a drive). The disk engine, its drives and the GPU's
 * kernels all use it.
 *
 * Unit u begins at byte (from + u x unit) of the whole. It lies in place (first + u mod over), where it
 * begins at byte (base + u / over x unit).
 *
 * Owner: none; these are plain values. Threads: any. It is for host and device. */
#ifndef PST_EXTENT_H
#define PST_EXTENT_H

#include "common/base.h"

struct pst_extent {
    uint64_t from; /* bytes before this one have no place */
    uint64_t unit; /* bytes, at least 1 */
    uint64_t base;
    uint32_t first, over; /* over: number of places; 0: none, and no byte has a place */
    uint32_t nsid;        /* for drives: the namespace on each */
};

struct pst_extent_place {
    uint32_t place;
    uint64_t at;  /* byte in that place */
    uint64_t run; /* contiguous bytes from there on, including this one */
};

/* Finds the place of a byte of the whole. False: it has none. */
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
