/* reader.h: reads the embeddings of a run's newest or best checkpoint, in blocks, whether they are in the
 * checkpoint or in the run's array of partitions.
 *
 * Owner: open fills what the caller owns; close releases it. Threads: one. */
#ifndef PST_VECTORS_READER_H
#define PST_VECTORS_READER_H

#include "common/store/checkpoint.h"
#include "stages/lib/parts/parts.h"
#include "stages/lib/vectors/exchange.h"

struct pst_vectors_reader {
    int64_t vertices, dim;
    int64_t relations, relation_dim; /* inverse relations count; 0: the model has none */
    char model[PST_NAME_MAX];        /* "": an old checkpoint, which does not name it */
    bool inverse;                    /* relations have a second embedding, for sources */
    uint64_t next_batch;             /* the checkpoint's number */
    /* the rest is private */
    struct pst_checkpoint ck;
    uint64_t vertices_at, relations_at; /* bytes of the checkpoint */
    int array;                          /* the file of the partitions; -1: there is none */
    char array_path[PST_PATH_MAX];
    struct pst_parts parts;
    struct pst_vectors_table table;
    uint64_t block_bytes;
};

/* Opens the newest checkpoint of the run in a directory; best: or that of the epoch with the best MRR of the
 * validation edges, if epochs were evaluated. PST_E_STATE: it is not there; PST_E_FORMAT: it is of another
 * kind of run. */
PST_API PST_MUST_USE pst_rc pst_vectors_reader_open(struct pst_vectors_reader *r, const char *run_dir,
                                                    bool best);
/* The directory of the run's dataset, as RUN/report.json says. PST_E_ARG: it does not say so. */
PST_API PST_MUST_USE pst_rc pst_vectors_reader_dataset(const char *run_dir, char dir[PST_PATH_MAX]);
PST_API void pst_vectors_reader_close(struct pst_vectors_reader *r);

/* How many blocks there are, and the bytes of memory that one needs. */
PST_API int64_t pst_vectors_reader_blocks(const struct pst_vectors_reader *r);
PST_API uint64_t pst_vectors_reader_room(const struct pst_vectors_reader *r);
/* Reads a block: *rows rows of dim floats, at the beginning of `to`. PST_E_FORMAT: a partition is damaged;
 * PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_vectors_reader_read(const struct pst_vectors_reader *r, int64_t block,
                                                    void *to, int64_t *rows);
/* Reads the row of a vertex: dim floats, without a checksum. */
PST_API PST_MUST_USE pst_rc pst_vectors_reader_row(const struct pst_vectors_reader *r, int64_t vertex,
                                                   void *to);
/* The vertex of a row of a block. */
PST_API int64_t pst_vectors_reader_vertex(const struct pst_vectors_reader *r, int64_t block, int64_t row);
/* Reads all embeddings of relations. */
PST_API PST_MUST_USE pst_rc pst_vectors_reader_relations(const struct pst_vectors_reader *r, void *to);

#endif
