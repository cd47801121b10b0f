/* owner_report.c: what the owner of embeddings adds to the report. */
#include "stages/lib/vectors/owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

enum { FIGURES_MAX = PST_COMMIT_FIGURES_MAX };

double pst_vectors_owner_loss(const struct pst_row_batch *b)
{
    const double ends = (b->flags & PST_EDGE_BATCH_TURNED ? 1 : 2) * (double)b->trained;
    return b->trained > 0 ? b->loss / ends : 0;
}

/* figures: of the evaluation, or "". */
pst_rc pst_vectors_owner_report_epoch(const struct pst_vectors_owner *s, const struct pst_row_batch *b,
                                      const char *figures)
{
    const uint64_t trained = b->flags & PST_EDGE_BATCH_TURNED ? b->trained / 2 : b->trained;
    const double edges = (double)trained;
    char rate[FIGURES_MAX] = "";
    if (s->schedule != PST_VECTORS_CONSTANT)
        (void)snprintf(rate, sizeof rate, "\"rate\":%.9g,", s->rate * (double)s->vectors.scale);
    return pst_report(s->stage, "epochs",
                      "{\"epoch\":%u,\"seconds\":%.6f,\"loss\":%.17g,%s%s\"edges\":%" PRIu64
                      ",\"edges_per_second\":%.1f}",
                      b->epoch, b->seconds, pst_vectors_owner_loss(b), rate, figures, trained,
                      b->seconds > 0 ? edges / b->seconds : 0.0);
}

/* ranks: of the last epoch. The test figures are those of the best epoch, if epochs were evaluated. */
pst_rc pst_vectors_owner_report_result(const struct pst_vectors_owner *s, const struct pst_row_batch *b,
                                       const char *carried, const char *val, const char *test,
                                       const struct pst_embed_ranks ranks[2])
{
    char best[FIGURES_MAX + 128] = "";
    if (s->best.batch != UINT64_MAX)
        (void)snprintf(
            best, sizeof best, "\"best_epoch\":%" PRIu64 ",\"best_val_mrr\":%.17g,\"final_test_mrr\":%.17g,",
            s->best.epoch, s->best.mrr, ranks[1].n > 0 ? ranks[1].reciprocal / (double)ranks[1].n : 0.0);
    static const char *const ties[] = {"mean", "optimistic", "pessimistic"}; /* as enum pst_embed_tie */
    const char *consistency = s->consistency == PST_VECTORS_BOUNDED ? "bounded" : "exact";
    const struct pst_vectors *v = &s->vectors;
    const size_t real = sizeof(pst_real), n = (size_t)v->vertices;
    uint64_t digest;
    if (s->partitions > 1) {
        digest = XXH3_64bits(s->exchange.table.sum, (size_t)s->partitions * sizeof *s->exchange.table.sum);
    } else {
        digest = XXH3_64bits(pst_vectors_rows(v, 0), n * (size_t)v->dim * real);
        digest = XXH3_64bits_withSeed(pst_vectors_state(v, 0), n * (size_t)v->state_dim * real, digest);
    }
    digest = XXH3_64bits_withSeed(carried, pst_row_batch_carried(b), digest);
    return pst_report(s->stage, "result",
                      "{%s%s%s\"tie\":\"%s\",\"ranks\":\"%s\",\"ranked_among\":%" PRId64
                      ",\"relations\":\"%s\",\"consistency\":\"%s\",\"updates_lacked\":%.9g"
                      ",\"weights_digest\":\"%016" PRIx64 "\"}",
                      val, s->best.batch != UINT64_MAX ? s->best.test : test, best, ties[s->tie],
                      s->evaluate_among > 0 ? "sampled" : "filtered",
                      s->evaluate_among > 0 ? s->evaluate_among : v->vertices,
                      v->relations ? "async" : "sync", consistency,
                      s->gathered > 0 ? (double)s->lacked / (double)s->gathered : 0.0, digest);
}

pst_rc pst_vectors_owner_report(const struct pst_vectors_owner *s)
{
    const struct pst_vectors_mover *m = &s->exchange.mover;
    const pst_rc rc = s->partitions > 1 ? pst_report(s->stage, "exchange",
                                                     "{\"partition_bytes\":%" PRIu64 ",\"swaps\":%" PRIu64
                                                     ",\"read_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64
                                                     ",\"busy_s\":%.6f,"
                                                     "\"waited_s\":%.6f}",
                                                     s->vectors.block_bytes, s->exchange.swaps, m->read,
                                                     m->written, m->busy_s, s->waited_s)
                                        : PST_OK;
    if (rc != PST_OK)
        return rc;
    return pst_report(s->stage, "store",
                      "{\"updates\":%" PRIu64 ",\"edges\":%" PRIu64 ",\"rows\":%" PRIu64
                      ",\"checkpoints\":%" PRIu64
                      ",\"gather_s\":%.6f,\"update_s\":%.6f,\"checkpoint_s\":%.6f,\"evaluate_s\":%.6f}",
                      s->vectors.updates, s->edges, s->nodes, s->commits, s->gather_s, s->update_s,
                      s->commit_s, s->evaluate_s);
}
