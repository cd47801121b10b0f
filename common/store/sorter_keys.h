/* sorter_keys.h: what is the same for 64-bit and 128-bit keys, included by sorter.c once for each, with KEY
 * and FN(name) defined. Owner: sorter.c. Threads: pure functions of their arguments. */

/* Least significant byte first; bytes that are the same in all keys cost nothing. The result is in a or b. */
static KEY *FN(radix)(KEY *a, KEY *b, size_t n)
{
    KEY any = 0, all = ~(KEY)0, last = 0;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        any |= a[i];
        all &= a[i];
        sorted &= a[i] >= last;
        last = a[i];
    }
    KEY varies = any ^ all;
    for (unsigned shift = 0; shift < 8 * sizeof(KEY) && !sorted; shift += 8) {
        if (((varies >> shift) & 255) == 0)
            continue;
        size_t at[256] = {0}, sum = 0;
        for (size_t i = 0; i < n; i++)
            at[(a[i] >> shift) & 255]++;
        for (int d = 0; d < 256; d++) {
            size_t count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            b[at[(a[i] >> shift) & 255]++] = a[i];
        KEY *swap = a;
        a = b;
        b = swap;
    }
    return a;
}

static size_t FN(unique)(KEY *keys, size_t n)
{
    size_t out = n > 0;
    for (size_t i = 1; i < n; i++) {
        KEY key = keys[i];
        keys[out] = key; /* stays if the last that was kept is another */
        out += key != keys[out - 1];
    }
    return out;
}

/* Plays the game at node: the loser stays, the winner goes up. An exhausted input holds END and loses. */
static unsigned FN(build_tree)(struct merge *m, unsigned node)
{
    if (node >= m->width)
        return node - m->width;
    unsigned left = FN(build_tree)(m, 2 * node), right = FN(build_tree)(m, 2 * node + 1);
    bool left_wins = ((KEY *)m->head)[left] <= ((KEY *)m->head)[right];
    m->loser[node] = left_wins ? right : left;
    return left_wins ? left : right;
}

/* Up to room keys into out, ascending; 0 at the end. */
static pst_rc FN(merge_fill)(struct merge *m, KEY *out, size_t room, size_t *got)
{
    KEY *head = m->head;
    size_t n = 0;
    assert(out != NULL);
    unsigned winner = m->winner;
    KEY last = (KEY)m->last;
    bool any = m->any && m->dedupe;
    while (n < room && head[winner] != ~(KEY)0) {
        KEY key = head[winner];
        out[n] = key;
        n += !any || key != last;
        last = key;
        any = m->dedupe;
        struct cursor *c = &m->cursor[winner];
        if (c->at == c->end) {
            pst_rc rc = refill(m, c);
            if (rc != PST_OK)
                return rc;
        }
        head[winner] = c->at < c->end ? ((KEY *)c->keys)[c->at++] : ~(KEY)0;
        key = head[winner];
        for (unsigned node = (winner + m->width) / 2; node > 0; node /= 2) {
            unsigned other = m->loser[node];
            KEY theirs = head[other];
            bool lost = theirs < key;
            m->loser[node] = lost ? winner : other;
            winner = lost ? other : winner;
            key = lost ? theirs : key;
        }
    }
    m->winner = winner;
    m->last = last;
    m->any = any;
    *got = n;
    return PST_OK;
}

static pst_rc FN(merge_start)(struct merge *m)
{
    KEY *head = m->head;
    for (unsigned i = 0; i < m->width; i++) {
        struct cursor *c = &m->cursor[i];
        pst_rc rc = i < m->inputs ? refill(m, c) : PST_OK;
        if (rc != PST_OK)
            return rc;
        head[i] = i < m->inputs && c->at < c->end ? ((KEY *)c->keys)[c->at++] : ~(KEY)0;
    }
    m->winner = m->width > 1 ? FN(build_tree)(m, 1) : 0;
    return PST_OK;
}
