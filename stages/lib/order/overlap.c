/* overlap.c: which exchanges are hidden behind training, with the edges that each bucket has. */
#include "stages/lib/order/orders.h"

void pst_order_overlap(const struct pst_order *o, const int64_t *bucket_edges, double partition_bytes,
                       const struct pst_order_machine *m, struct pst_order_overlap *out)
{
    *out = (struct pst_order_overlap){.exchange_s = partition_bytes * (1 / m->write + 1 / m->read)};
    if (o->reload)
        out->exchange_s *= o->buffer;
    for (int64_t i = 1; i <= o->exchanges; i++) {
        int64_t edges = 0;
        for (int64_t b = o->cut[2 * i - 1]; b < o->cut[2 * i]; b++)
            edges += bucket_edges[(int64_t)o->bucket[b].source * o->partitions + o->bucket[b].destination];
        const double train_s = (double)edges * m->edge_s;
        out->hidden += train_s >= out->exchange_s;
        out->waited_s += train_s < out->exchange_s ? out->exchange_s - train_s : 0;
        if (i == 1 || edges < out->least_edges)
            out->least_edges = edges;
    }
}

double pst_order_density(double dim, double buffer_bytes, const struct pst_order_machine *m)
{
    return 96 * dim * dim * (m->write + m->read) / (m->edge_s * buffer_bytes * m->write * m->read);
}
