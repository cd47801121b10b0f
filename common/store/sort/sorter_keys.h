/* sorter_keys.h: functions for 64-bit and 128-bit keys. partition.c includes it once for each, with KEY and
 * FN(name) defined. Owner: partition.c. Threads: pure functions of their arguments. */

/* Where the next digit begins: bits that are the same in all keys are passed over. */
static unsigned FN(next_digit)(KEY varies, unsigned from)
{
    while (from < 8 * sizeof(KEY) && ((varies >> from) & 1) == 0)
        from++;
    return from;
}

/* Least significant digit first; each pass counts the next one's digits. The result is in a or b. */
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
    if (sorted)
        return a;
    const KEY varies = any ^ all, mask = (1 << DIGIT_BITS) - 1;
    size_t at[2][1 << DIGIT_BITS] = {{0}}, *now = at[0], *then = at[1];
    unsigned shift = FN(next_digit)(varies, 0);
    for (size_t i = 0; i < n; i++)
        now[(size_t)((a[i] >> shift) & mask)]++;
    while (shift < 8 * sizeof(KEY)) {
        unsigned next = FN(next_digit)(varies, shift + DIGIT_BITS);
        unsigned counted = next < 8 * sizeof(KEY) ? next : shift; /* after the last nobody looks */
        size_t sum = 0;
        for (int d = 0; d < 1 << DIGIT_BITS; d++) {
            size_t count = now[d];
            now[d] = sum;
            sum += count;
            then[d] = 0;
        }
        for (size_t i = 0; i < n; i++) {
            KEY key = a[i];
            then[(size_t)((key >> counted) & mask)]++;
            b[now[(size_t)((key >> shift) & mask)]++] = key;
        }
        size_t *counts = now;
        KEY *keys = a;
        a = b;
        b = keys;
        now = then;
        then = counts;
        shift = next;
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

/* At most want splitters from sorted keys, rising. A key that is more than a share is between two of its own,
 * so that equal keys alone can fill a bucket. */
static unsigned FN(split)(const KEY *sample, size_t n, KEY *splitter, unsigned want)
{
    unsigned m = 0;
    for (unsigned i = 1; i <= want; i++) {
        KEY v = sample[i * n / (want + 1)];
        if (m == 0 || splitter[m - 1] < v)
            splitter[m++] = v;
        else if (splitter[m - 1] == v)
            splitter[m++] = v + 1;
    }
    return m;
}

/* For each cell of the keys' range, how many splitters are below it: where the search for a bucket begins. */
static void FN(make_cells)(struct cells *cells, const KEY *splitter, unsigned m)
{
    unsigned i = 0;
    cells->shift = 0;
    while (m > 0 && splitter[m - 1] >> cells->shift >= CELLS - 1)
        cells->shift++;
    for (unsigned c = 0; c < CELLS; c++) {
        while (i < m && splitter[i] >> cells->shift < c)
            i++;
        cells->first[c] = (uint16_t)i;
    }
    cells->first[CELLS] = (uint16_t)m;
}

/* Each key to its bucket: few cells have a splitter in them. */
static pst_rc FN(scatter)(struct scatter *s, const KEY *keys, size_t n, const KEY *splitter,
                          const struct cells *cells)
{
    const struct partition *p = s->to;
    KEY *mine = s->keys;
    for (size_t i = 0; i < n; i++) {
        KEY key = keys[i], above = key >> cells->shift;
        size_t cell = above < CELLS - 1 ? (size_t)above : CELLS - 1;
        unsigned b = cells->first[cell], end = cells->first[cell + 1];
        while (b < end) {
            unsigned middle = (b + end) / 2;
            if (splitter[middle] <= key)
                b = middle + 1;
            else
                end = middle;
        }
        mine[b * p->pack_keys + s->count[b]++] = key;
        if (s->count[b] < p->pack_keys)
            continue;
        s->count[b] = 0;
        pst_rc rc = pst_sorter_bucket_add(p->spill, &p->bucket[b], mine + b * p->pack_keys, p->pack_keys,
                                          sizeof(KEY) == sizeof(wide_key));
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}
