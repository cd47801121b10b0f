/* curve.h: how long a read of each size takes on a drive that has many reads in flight, and the gap that
 * follows. A gap between two rows can be read, or skipped with one more read. In the time of a read of b
 * bytes, the drive reads t(b) x rate bytes if its reads are large. So one read of both rows costs less
 * than two reads as long as
 *
 *     gap <= t(b) x rate - b
 *
 * t(b) is 1 / IOPS of reads of b bytes, and rate is that of large reads: the drive's two limits.
 *
 * Owner: the caller. Threads: any; processes that measure one drive do so one after the other. */
#ifndef PST_CURVE_H
#define PST_CURVE_H

#include <stdbool.h>

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_CURVE_POINTS_MAX 8
#define PST_CURVE_KEY_BYTES 1024

struct pst_curve {
    int n;
    struct pst_curve_point {
        uint64_t bytes; /* ascending */
        double seconds; /* of one read, if many are in flight: 1 / (reads a second); not descending */
    } point[PST_CURVE_POINTS_MAX];
    uint64_t span; /* bytes of the files that were read: a drive may be faster if few bytes are read */
};

/* Appends a point. A larger read is not faster, so its time is at least that of the point before.
 * False: bytes do not ascend, seconds are not above 0 and finite, or there are PST_CURVE_POINTS_MAX. */
PST_API bool pst_curve_add(struct pst_curve *c, uint64_t bytes, double seconds);
/* The time of a read of so many bytes. Of at least one point. */
PST_API double pst_curve_seconds(const struct pst_curve *c, uint64_t bytes);
/* The rate of the fastest reads, in bytes a second. Of at least one point. */
PST_API double pst_curve_rate(const struct pst_curve *c);
/* The largest gap between two reads of read_bytes bytes that costs no more than another read: a multiple of
 * PST_SECTOR, and small enough for one read of at most `most` bytes to have both. */
PST_API uint64_t pst_curve_gap(const struct pst_curve *c, uint64_t read_bytes, uint64_t most);

/* What is measured: reads of these files, in the way that a run will make them. */
struct pst_curve_files {
    const char *backend; /* "file" or "pread" */
    const char *const *paths;
    uint32_t n;
    int depth;   /* reads in flight */
    int threads; /* pread */
};

/* Measures with random reads of several sizes, in about half a second on an SSD. PST_E_UNSUPPORTED: the
 * files are too small, or reads of them go through the page cache, so that the drive cannot be measured. */
PST_API PST_MUST_USE pst_rc pst_curve_measure(struct pst_curve *c, const struct pst_curve_files *files);

/* Text that names the drive and the way in which it is read. PST_E_IO: a file is not there. */
PST_API PST_MUST_USE pst_rc pst_curve_key(char key[PST_CURVE_KEY_BYTES], const struct pst_curve_files *files);
/* The curve from the file `path`, if it has one for this key that was measured over as many bytes; else it
 * is measured, and kept in that file. *measured_s: how long that took; 0: it was kept. A file that cannot be
 * written does no harm: the curve is measured each time. Errors as pst_curve_measure. */
PST_API PST_MUST_USE pst_rc pst_curve_find(struct pst_curve *c, const struct pst_curve_files *files,
                                           const char *path, double *measured_s);

PST_END_DECLS
#endif
