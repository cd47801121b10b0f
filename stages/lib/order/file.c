/* file.c: orders as JSON files, which both pipelines of embeddings read. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/file.h"
#include "stages/lib/order/orders_impl.h"

#define FILE_BYTES_MAX (64u << 20) /* 256 partitions and a buffer of 2 take 2 MiB */
#define EXCHANGES_MAX (PST_ORDER_PARTITIONS_MAX * PST_ORDER_PARTITIONS_MAX) /* more than any kind makes */

/* ---- writing ------------------------------------------------------------------------------------ */

static json_t *states_to_json(const struct pst_order *o)
{
    json_t *states = json_array();
    for (int64_t i = 0; i <= o->exchanges; i++) {
        json_t *state = json_array();
        for (int place = 0; place < o->buffer; place++)
            json_array_append_new(state, json_integer(o->state[i * o->buffer + place]));
        json_array_append_new(states, state);
    }
    return states;
}

static json_t *groups_to_json(const struct pst_order *o)
{
    json_t *groups = json_array();
    for (int64_t g = 0; g <= 2 * o->exchanges; g++) {
        json_t *group = json_array();
        for (int64_t b = o->cut[g]; b < o->cut[g + 1]; b++)
            json_array_append_new(group, json_pack("[i, i]", o->bucket[b].source, o->bucket[b].destination));
        json_array_append_new(groups, group);
    }
    return groups;
}

json_t *pst_order_to_json(const struct pst_order *o)
{
    struct pst_order_counts n;
    pst_order_count(o, &n);
    return json_pack("{s:i, s:s, s:i, s:i, s:b, s:{s:I, s:I, s:I, s:I, s:I}, s:o, s:o}", "version",
                     PST_ORDER_VERSION, "kind", pst_order_kind_name(o->kind), "partitions", o->partitions,
                     "buffer", o->buffer, "reload", (int)o->reload, "counts", "swaps", (json_int_t)n.swaps,
                     "loads", (json_int_t)n.loads, "bound", (json_int_t)n.bound, "not_overlapped",
                     (json_int_t)n.not_overlapped, "overlap", (json_int_t)n.overlap, "states",
                     states_to_json(o), "groups", groups_to_json(o));
}

pst_rc pst_order_write(const struct pst_order *o, const char *path)
{
    json_t *root = pst_order_to_json(o);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot write %s", path);
    struct pst_file_new f;
    pst_rc rc = pst_file_new_begin(&f, path);
    if (rc == PST_OK) {
        rc = pst_file_write_at(f.fd, text, strlen(text), 0, path);
        if (rc == PST_OK)
            rc = pst_file_new_commit(&f);
        else
            pst_file_new_abandon(&f);
    }
    free(text);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static pst_rc bad(const char *field, const char *expected)
{
    return pst_fail(PST_E_FORMAT, "\"%s\" is missing or wrong; expected %s", field, expected);
}

static bool number(const json_t *value, int64_t low, int64_t high, int *out)
{
    const json_int_t n = json_integer_value(value);
    *out = (int)n;
    return json_is_integer(value) && n >= low && n <= high;
}

static pst_rc read_head(struct pst_order *o, const json_t *root)
{
    int version = 0;
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const int found = kind != NULL ? pst_order_kind_of(kind) : -1;
    if (!number(json_object_get(root, "version"), PST_ORDER_VERSION, PST_ORDER_VERSION, &version))
        return bad("version", "1");
    if (found < 0)
        return bad("kind", "the name of an order");
    if (!number(json_object_get(root, "partitions"), 1, PST_ORDER_PARTITIONS_MAX, &o->partitions))
        return bad("partitions", "a number from 1 to 256");
    if (!number(json_object_get(root, "buffer"), 1, o->partitions, &o->buffer))
        return bad("buffer", "a number from 1 to the number of partitions");
    if (!json_is_boolean(json_object_get(root, "reload")))
        return bad("reload", "true or false");
    o->kind = (enum pst_order_kind)found;
    o->reload = json_is_true(json_object_get(root, "reload"));
    return PST_OK;
}

static pst_rc read_states(struct pst_order *o, const json_t *states)
{
    const size_t n = json_array_size(states);
    if (n == 0 || n > EXCHANGES_MAX)
        return bad("states", "a list of buffer states");
    o->exchanges = (int64_t)n - 1;
    o->state = malloc(n * (size_t)o->buffer * sizeof *o->state);
    if (o->state == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %zu states", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *state = json_array_get(states, i);
        for (int place = 0; place < o->buffer; place++) {
            int id = 0;
            if (json_array_size(state) != (size_t)o->buffer ||
                !number(json_array_get(state, (size_t)place), 0, o->partitions - 1, &id))
                return pst_fail(PST_E_FORMAT, "state %zu of the buffer: expected %d partitions from 0 to %d",
                                i, o->buffer, o->partitions - 1);
            o->state[i * (size_t)o->buffer + (size_t)place] = (uint16_t)id;
        }
    }
    return PST_OK;
}

static pst_rc read_group(struct pst_order *o, const json_t *group, int64_t g, int64_t *n)
{
    const int64_t all = (int64_t)o->partitions * o->partitions;
    o->cut[g] = *n;
    for (size_t i = 0; i < json_array_size(group); i++) {
        const json_t *bucket = json_array_get(group, i);
        int source, destination;
        if (json_array_size(bucket) != 2 ||
            !number(json_array_get(bucket, 0), 0, o->partitions - 1, &source) ||
            !number(json_array_get(bucket, 1), 0, o->partitions - 1, &destination) || *n == all)
            return pst_fail(PST_E_FORMAT,
                            "group %lld, bucket %zu: expected a pair of partitions from 0 to %d, and at most "
                            "%lld buckets in all groups",
                            (long long)g, i, o->partitions - 1, (long long)all);
        o->bucket[(*n)++] = (struct pst_order_bucket){(uint16_t)source, (uint16_t)destination};
    }
    return PST_OK;
}

static pst_rc read_groups(struct pst_order *o, const json_t *groups)
{
    const int64_t want = 2 * o->exchanges + 1;
    int64_t n = 0;
    o->bucket = malloc((size_t)o->partitions * (size_t)o->partitions * sizeof *o->bucket);
    o->cut = malloc((size_t)(want + 1) * sizeof *o->cut);
    if (o->bucket == NULL || o->cut == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read the buckets");
    if (json_array_size(groups) != (size_t)want)
        return pst_fail(PST_E_FORMAT,
                        "\"groups\" has %zu groups; expected %lld for the %lld states of the buffer",
                        json_array_size(groups), (long long)want, (long long)o->exchanges + 1);
    pst_rc rc = PST_OK;
    for (int64_t g = 0; g < want && rc == PST_OK; g++)
        rc = read_group(o, json_array_get(groups, (size_t)g), g, &n);
    o->cut[want] = n;
    return rc;
}

pst_rc pst_order_read(struct pst_order *o, const char *path)
{
    *o = (struct pst_order){0};
    char *text = NULL;
    size_t bytes = 0;
    pst_rc rc = pst_file_read(path, FILE_BYTES_MAX, &text, &bytes);
    if (rc != PST_OK)
        return pst_wrap(rc, "the order");
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (root == NULL)
        return pst_fail(PST_E_FORMAT, "%s:%d: %s", path, error.line, error.text);
    rc = read_head(o, root);
    if (rc == PST_OK)
        rc = read_states(o, json_object_get(root, "states"));
    if (rc == PST_OK)
        rc = read_groups(o, json_object_get(root, "groups"));
    if (rc == PST_OK)
        rc = pst_order_verify(o);
    json_decref(root);
    if (rc == PST_OK)
        return PST_OK;
    pst_order_release(o);
    return pst_wrap(rc, "%s", path);
}
