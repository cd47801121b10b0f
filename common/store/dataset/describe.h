/* describe.h: statistics of a dataset: degrees, hot rows, the values of features and labels.
 * Owner: the caller; plain memory, nothing to release. Threads: one. */
#ifndef PST_DESCRIBE_H
#define PST_DESCRIBE_H

#include "common/util/progress.h"
#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_DEGREE_BUCKETS 65 /* degree 0, then 2^(k-1) to 2^k - 1 */
#define PST_HOT_SHARES 6
#define PST_HOT_TARGETS 3
#define PST_DESCRIBE_SAMPLE_BYTES                                                                            \
    (256ull << 20) /* of features, a second or less, unless all are asked for                                \
                    */

struct pst_describe_degrees {
    int64_t least, most;
    double median, mean;
    int64_t bucket[PST_DEGREE_BUCKETS];
};

/* Which rows a cache should hold: a row is read about as often as its vertex is somebody's in-neighbour. */
struct pst_describe_hotness {
    struct pst_describe_degrees out;
    double
        served[PST_HOT_SHARES]; /* share of edges whose source is among so many of the rows, hottest first */
    double rows_for[PST_HOT_TARGETS]; /* share of the rows that serves so many of the edges */
};
PST_API extern const double pst_hot_shares[PST_HOT_SHARES], pst_hot_targets[PST_HOT_TARGETS];

struct pst_feature_stats {
    int64_t rows; /* that were read */
    bool whole;   /* all of them; else blocks of rows, evenly apart */
    int64_t values, zeros, not_finite;
    double min, max, mean; /* of the finite ones; 0 if there are none */
};

/* In-degrees, from indptr alone. PST_E_FORMAT: it falls. */
PST_API PST_MUST_USE pst_rc pst_describe_degrees(const struct pst_dataset *ds,
                                                 struct pst_describe_degrees *out);
/* Reads all of indices; 4 bytes of memory a vertex. PST_E_FORMAT: an id out of range. */
PST_API PST_MUST_USE pst_rc pst_describe_hotness(const struct pst_dataset *ds,
                                                 struct pst_describe_hotness *out,
                                                 struct pst_progress *progress);
/* Of `rows` rows of dim values, stride_bytes apart, in so many files (see rows.h). whole: reads all of them.
 */
PST_API PST_MUST_USE pst_rc pst_describe_features(const struct pst_array *features, int files, int64_t rows,
                                                  int64_t dim, uint64_t stride_bytes, bool whole,
                                                  struct pst_feature_stats *out,
                                                  struct pst_progress *progress);

PST_END_DECLS
#endif
