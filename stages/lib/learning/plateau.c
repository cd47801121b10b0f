/* plateau.c: lowers the learning rate when training no longer improves. */
#include "stages/lib/learning/plateau.h"

#include <math.h>

static bool improves(const struct pst_plateau_state *s, enum pst_plateau_figure figure, double value)
{
    if (s->figure != (double)figure)
        return true;
    const double least = PST_PLATEAU_LEAST * fabs(s->best);
    return figure == PST_PLATEAU_SCORE ? value > s->best + least : value < s->best - least;
}

void pst_plateau_step(struct pst_plateau *p, enum pst_plateau_figure figure, double value)
{
    struct pst_plateau_state *s = &p->state;
    if (improves(s, figure, value)) {
        s->best = value;
        s->figure = (double)figure;
        s->waited = 0;
        return;
    }
    s->waited++;
    if (s->waited <= p->patience)
        return;
    s->waited = 0;
    s->scale = s->scale * p->factor > p->least ? s->scale * p->factor : p->least;
}
