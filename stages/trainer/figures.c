/* figures.c: the figures of steps: when they are read, and what is made of them. */
#include "stages/trainer/trainer.h"

#include <inttypes.h>
#include <math.h>

#include "common/error.h"

bool pst_trainer_later(struct pst_stage *self, const struct trainer *t)
{
    const struct pst_trainer_targets *targets = &t->targets;
    return t->inputs.staging && pst_overlap(self) && t->grains.grains == 1 && !t->config.head &&
           !pst_trainer_is_typed(t) && !targets->degrees.host && !targets->multilabels.host &&
           !targets->numbers.host; /* the next batch overwrites these, from which copies may be queued */
}

void pst_trainer_spent(struct trainer *t, double before)
{
    const double took = pst_now() - before;
    t->device_s += t->inputs.staging ? took : 0;
    t->total.train_s += took;
}

pst_rc pst_trainer_put(struct trainer *t, const struct pst_trainer_step *step,
                       const struct pst_gnn_batch *batch)
{
    t->open[t->model.open.put % PST_GNN_OPEN_MAX] = *step;
    return pst_gnn_model_put(&t->model, batch);
}

pst_rc pst_trainer_check_loss(const struct trainer *t, const struct pst_trainer_step *step,
                              const struct pst_gnn_figures *figures)
{
    if (isfinite(figures->loss))
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "epoch %u (its batch %" PRIu64
                    "): the loss is %g, so training has diverged; lower `rate` (it is %g), "
                    "or look for huge features with `penstock verify`",
                    step->epoch, step->batch_in_epoch, figures->loss, t->recipe.schedule.rate);
}

static void add(struct pst_gnn_training *p, const struct pst_trainer_step *step,
                const struct pst_gnn_figures *figures)
{
    p->loss += figures->loss * (double)step->batch_seeds;
    p->correct += figures->correct;
    p->counted += figures->counted;
}

pst_rc pst_trainer_note(struct trainer *t, const struct pst_trainer_step *step,
                        const struct pst_gnn_figures *figures)
{
    const pst_rc rc = pst_trainer_check_loss(t, step, figures);
    if (rc != PST_OK)
        return rc;
    add(&t->now, step, figures);
    if (step->batch < t->done.next_batch) /* its batch has ended before the figures came */
        add(&t->done, step, figures);
    return PST_OK;
}

pst_rc pst_trainer_settle(struct trainer *t, uint64_t most)
{
    const struct pst_gnn_open *open = &t->model.open;
    pst_rc rc = PST_OK;
    while (rc == PST_OK && open->put - open->taken > most) {
        const double before = pst_now();
        const struct pst_trainer_step *step = &t->open[open->taken % PST_GNN_OPEN_MAX];
        struct pst_gnn_figures figures = {0};
        rc = pst_gnn_model_take(&t->model, &figures);
        pst_trainer_spent(t, before);
        if (rc == PST_OK)
            rc = pst_trainer_note(t, step, &figures);
        if (rc == PST_OK)
            continue;
        t->named_batch = true;
        rc = pst_wrap(rc, "batch %" PRIu64 ", micro-batch %u", step->batch, step->micro);
    }
    return rc;
}

/* The timer fires once before the runtime has looked for frames. */
pst_rc pst_trainer_on_timer(struct pst_stage *self, struct trainer *t)
{
    const struct pst_gnn_open *open = &t->model.open;
    if (open->put == open->taken)
        return PST_OK;
    if (!t->idle) {
        t->idle = true;
        pst_timer(self, 0);
        return PST_OK;
    }
    const uint64_t batch = t->open[open->taken % PST_GNN_OPEN_MAX].batch;
    const double begin = pst_now();
    const pst_rc rc = pst_trainer_settle(t, 0);
    pst_span_of(self, "T", batch, -1, begin, pst_now());
    return rc;
}
