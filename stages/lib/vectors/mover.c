/* mover.c: sends pieces, and takes them home. */
#include "stages/lib/vectors/mover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

pst_rc pst_vectors_mover_open(struct pst_vectors_mover *m)
{
    m->slots = pst_slots(m->stage, m->port);
    m->credit = calloc(m->slots, sizeof *m->credit);
    for (int i = 0; i < PST_VECTORS_MOVES_MAX; i++)
        m->move[i].hash = NULL;
    return m->credit ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot list %u slots", m->slots);
}

void pst_vectors_mover_close(struct pst_vectors_mover *m)
{
    for (int i = 0; i < PST_VECTORS_MOVES_MAX; i++)
        (void)XXH3_freeState(m->move[i].hash);
    free(m->credit);
    m->credit = NULL;
}

static struct pst_vectors_move *at(struct pst_vectors_mover *m, uint32_t i)
{
    return &m->move[(m->first + i) % PST_VECTORS_MOVES_MAX];
}

static pst_rc hash(struct pst_vectors_move *move, const char *bytes, uint64_t n)
{
    return XXH3_64bits_update(move->hash, bytes, n) == XXH_OK
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "cannot compute the checksum of a partition: this is a fault of Penstock");
}

/* ---- sending --------------------------------------------------------------------------------------- */

static pst_rc send_piece(struct pst_vectors_mover *m, struct pst_vectors_move *move,
                         const struct pst_credit *credit)
{
    char *slot = pst_slot(m->stage, credit->ref, NULL);
    if (!slot)
        return PST_E_STATE;
    *(struct pst_request *)(void *)slot = (struct pst_request){.op = (uint16_t)move->op,
                                                               .array = m->array,
                                                               .rows = 1,
                                                               .row = move->row + move->sent,
                                                               .offset = PST_PAGE,
                                                               .tag = (uint64_t)move->partition};
    pst_rc rc = PST_OK;
    if (move->op == PST_REQUEST_WRITE) {
        rc = pst_vectors_get(m->vectors, move->block, move->sent * m->piece, slot + PST_PAGE, m->piece);
        if (rc == PST_OK)
            rc = hash(move, slot + PST_PAGE, m->piece);
    }
    move->sent++;
    const struct pst_frame frame = {.batch = credit->batch,
                                    .flags = PST_LAST_PART | PST_LAST_MICRO,
                                    .nrefs = 1,
                                    .refs = {credit->ref},
                                    .arg = {0, 1}};
    return rc == PST_OK ? pst_send(m->stage, m->port, &frame) : rc;
}

/* Sends as many pieces as there are slots. */
static pst_rc pump(struct pst_vectors_mover *m)
{
    uint32_t used = 0;
    pst_rc rc = PST_OK;
    while (rc == PST_OK && used < m->credits && m->sending < m->n) {
        struct pst_vectors_move *move = at(m, m->sending);
        rc = send_piece(m, move, &m->credit[used++]);
        m->sending += move->sent == move->rows;
    }
    m->credits -= used;
    memmove(m->credit, m->credit + used, m->credits * sizeof *m->credit);
    return rc;
}

pst_rc pst_vectors_mover_add(struct pst_vectors_mover *m, enum pst_request_op op, int partition, uint64_t row,
                             uint64_t rows, int block)
{
    if (m->n == PST_VECTORS_MOVES_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "cannot move more than %d partitions at once: use a smaller buffer, or a lower `ahead`",
            PST_VECTORS_MOVES_MAX);
    struct pst_vectors_move *move = at(m, m->n);
    XXH3_state_t *state = move->hash ? move->hash : XXH3_createState();
    if (!state || XXH3_64bits_reset(state) != XXH_OK)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot compute a checksum");
    *move = (struct pst_vectors_move){
        .op = op, .partition = partition, .row = row, .rows = rows, .block = block, .hash = state};
    if (m->n++ == 0)
        m->since = pst_now();
    return pump(m);
}

/* ---- coming home ------------------------------------------------------------------------------------- */

static pst_rc finish(struct pst_vectors_mover *m, struct pst_vectors_move *move)
{
    const struct pst_vectors_move ended = *move;
    *(ended.op == PST_REQUEST_WRITE ? &m->written : &m->read) += ended.rows * m->piece;
    m->first = (m->first + 1) % PST_VECTORS_MOVES_MAX;
    m->n--;
    m->sending--;
    if (m->n == 0)
        m->busy_s += pst_now() - m->since;
    return m->done(m->arg, &ended, XXH3_64bits_digest(ended.hash));
}

/* Pieces come home in the order in which they were sent, so this one is of the oldest move. */
static pst_rc take_home(struct pst_vectors_mover *m, const struct pst_credit *credit)
{
    struct pst_vectors_move *move = at(m, 0);
    const char *slot = pst_slot(m->stage, credit->ref, NULL);
    if (!slot)
        return PST_E_STATE;
    if (m->n == 0 || move->home == move->sent)
        return pst_fail(PST_E_PEER, "the port \"parts\" received a slot that this stage had not sent: link "
                                    "it to a disk stage, and the disk stage's output only to this stage");
    if (!credit->dirty)
        return pst_fail(PST_E_PEER,
                        "a piece of partition %d came back, but no stage has read or written it: link the "
                        "port parts to a disk stage",
                        move->partition);
    pst_rc rc = PST_OK;
    if (move->op == PST_REQUEST_READ) {
        rc = pst_vectors_put(m->vectors, move->block, move->home * m->piece, slot + PST_PAGE, m->piece);
        if (rc == PST_OK)
            rc = hash(move, slot + PST_PAGE, m->piece);
    }
    move->home++;
    return rc == PST_OK && move->home == move->rows ? finish(m, move) : rc;
}

pst_rc pst_vectors_mover_credit(struct pst_vectors_mover *m, const struct pst_credit *credit, bool last)
{
    pst_rc rc = credit->previous_batch != UINT64_MAX ? take_home(m, credit) : PST_OK;
    if (rc != PST_OK || last)
        return rc;
    if (m->credits == m->slots)
        return pst_fail(PST_E_STATE,
                        "the runtime returned more free slots than there are: this is a fault of Penstock");
    m->credit[m->credits++] = *credit;
    return pump(m);
}
