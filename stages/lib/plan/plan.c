/* plan.c: writes and reads a plan's files. */
#include "stages/lib/plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/util/file.h"

#define DIGEST_BYTES 17
#define ROWS_FILE "cache.npy"
#define LISTS_FILE "lists.npy"
#define SHARED_ROWS_FILE "shared_rows.npy"
#define SHARED_LISTS_FILE "shared_lists.npy"
#define OWNERS_FILE "owners.npy"

/* ---- writing ------------------------------------------------------------------------------------ */

struct chunk {
    const void *data;
    size_t bytes;
};

/* Writes dir/name whole or not at all. */
static pst_rc write_file(const char *dir, const char *name, const struct chunk *chunks, int n)
{
    char path[PST_PATH_MAX];
    struct pst_file_new f;
    uint64_t at = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return pst_fail(PST_E_LIMIT, "the path %s/%s is too long: expected at most %d bytes", dir, name,
                        PST_PATH_MAX);
    pst_rc rc = pst_file_new_begin(&f, path);
    for (int i = 0; i < n && rc == PST_OK; at += chunks[i++].bytes)
        rc = pst_file_write_at(f.fd, chunks[i].data, chunks[i].bytes, at, path);
    if (rc == PST_OK)
        return pst_file_new_commit(&f);
    pst_file_new_abandon(&f);
    return rc;
}

/* Writes an .npy file whose data begins at PST_PAGE, like every array of a dataset. */
static pst_rc write_npy(const char *dir, const char *name, enum pst_dtype dtype, int rank,
                        const int64_t shape[2], const void *data)
{
    char header[PST_PAGE];
    pst_npy_format(header, dtype, rank, shape);
    const struct chunk chunks[] = {{header, sizeof header},
                                   {data, (size_t)(shape[0] * shape[1]) * pst_dtype_bytes(dtype)}};
    return write_file(dir, name, chunks, 2);
}

#define STORED_MORE 1.25  /* times the misses of the batches that were tried: those of others may be more */
#define STORED_SHARE 0.02 /* of all rows, besides */

int64_t pst_plan_stored(const struct pst_plan *plan)
{
    const int64_t rows = plan->max.n[plan->max.hops];
    const double want = ceil(STORED_MORE * (double)plan->max_misses + STORED_SHARE * (double)rows);
    return plan->max_misses < 0 || want >= (double)rows ? rows : pst_max_i64(1, (int64_t)want);
}

static json_t *json_ints(const int64_t *values, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static void digest_text(const void *data, size_t bytes, char out[DIGEST_BYTES])
{
    (void)snprintf(out, DIGEST_BYTES, "%016" PRIx64, (uint64_t)XXH3_64bits(data, bytes));
}

static json_t *tiers_to_json(const struct pst_plan_tiers *tiers)
{
    char digest[DIGEST_BYTES];
    digest_text(tiers->ids, (size_t)tiers->n * sizeof *tiers->ids, digest);
    return json_pack("{s:I, s:I, s:s}", "n", (json_int_t)tiers->n, "gpu", (json_int_t)tiers->gpu_n, "digest",
                     digest);
}

static json_t *plan_to_json(const struct pst_plan *plan)
{
    const struct pst_plan_key *key = &plan->key;
    char seed[DIGEST_BYTES];
    (void)snprintf(seed, sizeof seed, "%016" PRIx64, plan->seed);
    return json_pack(
        "{s:i, s:s, s:I, s:s, s:o, s:s, s:I, s:s, s:s, s:b, s:s, s:s, s:s, s:I, s:I, s:I, s:{s:o, s:o, s:b, "
        "s:b}, "
        "s:{s:I, "
        "s:I, "
        "s:s, s:f, s:I, s:o, s:o}}",
        "version", PST_PLAN_VERSION, "dataset", key->dataset, "vertices", (json_int_t)plan->vertices, "split",
        key->split, "fanout", json_ints(key->fanout, key->hops), "fanouts", key->fanouts, "batch",
        (json_int_t)key->batch, "algorithm", key->algorithm, "options", key->options, "replace",
        (int)key->replace, "hotness", key->hotness, "hotness_id", key->hotness_id, "seed", seed, "epochs",
        (json_int_t)plan->epochs, "batches", (json_int_t)plan->batches, "sampled", (json_int_t)plan->sampled,
        "max", "vertices", json_ints(plan->max.n, key->hops + 1), "edges",
        json_ints(plan->max.edges, key->hops), "weights", (int)plan->max.weights, "relations",
        (int)plan->max.relations, "cache", "gpu_budget_bytes", (json_int_t)key->gpu_budget_bytes,
        "budget_bytes", (json_int_t)key->cache_budget_bytes, "policy", key->policy, "predicted_hit_rate",
        plan->predicted_hit_rate, "max_misses", (json_int_t)plan->max_misses, "rows",
        tiers_to_json(&plan->rows), "lists", tiers_to_json(&plan->lists));
}

/* begin: where each of n replicas begins. Returns how many ids each has. */
static json_t *counts_to_json(const int64_t *begin, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(begin[i + 1] - begin[i]));
    return list;
}

static json_t *caches_to_json(const struct pst_plan *plan)
{
    const struct pst_plan_caches *c = &plan->caches;
    char owners[DIGEST_BYTES] = "";
    if (c->owner != NULL)
        digest_text(c->owner, (size_t)plan->vertices, owners);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:s}", "group", json_ints(c->group, c->replicas), "rows",
                     tiers_to_json(&c->rows), "lists", tiers_to_json(&c->lists), "rows_of",
                     counts_to_json(c->rows_begin, c->replicas), "lists_of",
                     counts_to_json(c->lists_begin, c->replicas), "line_bytes", (json_int_t)c->line_bytes,
                     "owners", owners);
}

static pst_rc write_ids(const char *dir, const char *name, const struct pst_plan_tiers *tiers)
{
    return write_npy(dir, name, PST_I64, 1, (int64_t[2]){tiers->n, 1}, tiers->ids);
}

static pst_rc write_caches(const char *dir, const struct pst_plan *plan)
{
    const struct pst_plan_caches *c = &plan->caches;
    pst_rc rc = c->replicas > 0 ? write_ids(dir, SHARED_ROWS_FILE, &c->rows) : PST_OK;
    if (rc == PST_OK && c->replicas > 0)
        rc = write_ids(dir, SHARED_LISTS_FILE, &c->lists);
    return rc == PST_OK && c->owner != NULL
               ? write_npy(dir, OWNERS_FILE, PST_I8, 1, (int64_t[2]){plan->vertices, 1}, c->owner)
               : rc;
}

pst_rc pst_plan_write(const struct pst_plan *plan, const float *scores, const char *dir, char *path,
                      size_t path_bytes)
{
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create the directory %s for the plan", dir);
    if (snprintf(path, path_bytes, "%s/plan.json", dir) >= (int)path_bytes)
        return pst_fail(PST_E_LIMIT, "the path %s/plan.json is too long: expected at most %zu bytes", dir,
                        path_bytes);
    pst_rc rc =
        write_npy(dir, "hotness.npy", PST_F32, 2, (int64_t[2]){plan->key.hops + 1, plan->vertices}, scores);
    if (rc == PST_OK)
        rc = write_ids(dir, ROWS_FILE, &plan->rows);
    if (rc == PST_OK)
        rc = write_ids(dir, LISTS_FILE, &plan->lists);
    if (rc == PST_OK)
        rc = write_caches(dir, plan);
    if (rc != PST_OK)
        return rc;
    json_t *root = plan_to_json(plan);
    if (root != NULL && plan->caches.replicas > 0)
        (void)json_object_set_new(root, "caches", caches_to_json(plan));
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (text == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot write %s", path);
    const struct chunk chunks[] = {{text, strlen(text)}, {"\n", 1}};
    rc = write_file(dir, "plan.json", chunks, 2);
    free(text);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------------ */

/* Reads fields one by one. rc is the first failure; later ones are not reported. */
struct reader {
    const char *path;
    pst_rc rc;
};

static pst_rc bad(struct reader *r, const char *field, const char *expected)
{
    if (r->rc == PST_OK)
        r->rc =
            pst_fail(PST_E_FORMAT, "%s: \"%s\" is missing or invalid; expected %s", r->path, field, expected);
    return r->rc;
}

static int64_t get_int(struct reader *r, const json_t *object, const char *field, int64_t min, int64_t max)
{
    const json_t *v = json_object_get(object, field);
    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max)
        return json_integer_value(v);
    char expected[96];
    (void)snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    (void)bad(r, field, expected);
    return min;
}

static void get_str(struct reader *r, const json_t *object, const char *field, char *out, size_t bytes)
{
    const char *v = json_string_value(json_object_get(object, field));
    if (v == NULL || strlen(v) >= bytes) {
        (void)bad(r, field, "a short string");
        out[0] = '\0';
        return;
    }
    memcpy(out, v, strlen(v) + 1);
}

static uint64_t get_hex(struct reader *r, const json_t *object, const char *field)
{
    char text[DIGEST_BYTES];
    get_str(r, object, field, text, sizeof text);
    if (strlen(text) != DIGEST_BYTES - 1 || strspn(text, "0123456789abcdef") != DIGEST_BYTES - 1) {
        (void)bad(r, field, "16 hexadecimal digits");
        return 0;
    }
    return strtoull(text, NULL, 16);
}

static int get_ints(struct reader *r, const json_t *object, const char *field, int64_t *out, int want,
                    int max, int64_t lowest)
{
    const json_t *list = json_object_get(object, field);
    size_t n = json_array_size(list);
    if (n == 0 || n > (size_t)max || (want > 0 && n != (size_t)want)) {
        (void)bad(r, field, want > 0 ? "a list with one integer for each hop" : "a list of 1 to 8 integers");
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < lowest || json_integer_value(v) > INT32_MAX) {
            (void)bad(r, field, "integers in range");
            return 0;
        }
        out[i] = json_integer_value(v);
    }
    return (int)n;
}

static void parse_key(struct reader *r, const json_t *root, struct pst_plan *plan)
{
    struct pst_plan_key *key = &plan->key;
    (void)get_int(r, root, "version", PST_PLAN_VERSION, PST_PLAN_VERSION);
    get_str(r, root, "dataset", key->dataset, sizeof key->dataset);
    get_str(r, root, "split", key->split, sizeof key->split);
    plan->vertices = get_int(r, root, "vertices", 1, INT64_MAX / 64);
    key->hops = get_ints(r, root, "fanout", key->fanout, 0, PST_HOPS_MAX, -1);
    get_str(r, root, "fanouts", key->fanouts, sizeof key->fanouts);
    key->batch = get_int(r, root, "batch", 1, INT32_MAX);
    get_str(r, root, "algorithm", key->algorithm, sizeof key->algorithm);
    get_str(r, root, "options", key->options, sizeof key->options);
    const json_t *replace = json_object_get(root, "replace");
    if (!json_is_boolean(replace))
        (void)bad(r, "replace", "true or false");
    key->replace = json_is_true(replace);
    get_str(r, root, "hotness", key->hotness, sizeof key->hotness);
    get_str(r, root, "hotness_id", key->hotness_id, sizeof key->hotness_id);
    plan->seed = get_hex(r, root, "seed");
    plan->epochs = get_int(r, root, "epochs", 1, INT32_MAX);
    plan->batches = get_int(r, root, "batches", 1, INT64_MAX);
    plan->sampled = get_int(r, root, "sampled", 1, plan->batches);
}

static void parse_max(struct reader *r, const json_t *root, struct pst_plan *plan)
{
    const json_t *max = json_object_get(root, "max");
    int hops = plan->key.hops;
    plan->max.hops = hops;
    (void)get_ints(r, max, "vertices", plan->max.n, hops + 1, PST_HOPS_MAX + 1, 1);
    (void)get_ints(r, max, "edges", plan->max.edges, hops, PST_HOPS_MAX, 0);
    plan->max.weights = json_is_true(json_object_get(max, "weights"));
    plan->max.relations = json_is_true(json_object_get(max, "relations"));
    for (int h = 0; h < hops && r->rc == PST_OK; h++) {
        if (plan->max.n[h + 1] < plan->max.n[h] || plan->max.n[h + 1] > plan->vertices)
            (void)bad(r, "vertices",
                      "counts that do not decrease from hop to hop, and are at most the number of vertices");
    }
}

static void parse_tiers(struct reader *r, const json_t *cache, const char *field, int64_t vertices,
                        struct pst_plan_tiers *tiers, uint64_t *digest)
{
    const json_t *o = json_object_get(cache, field);
    tiers->n = get_int(r, o, "n", 0, vertices);
    tiers->gpu_n = get_int(r, o, "gpu", 0, tiers->n);
    *digest = get_hex(r, o, "digest");
}

/* Reads what plan.json says of the tiers. digests: of the ids of rows and of lists. */
static void parse_cache(struct reader *r, const json_t *root, struct pst_plan *plan, uint64_t digests[2])
{
    const json_t *cache = json_object_get(root, "cache");
    plan->key.cache_budget_bytes = (uint64_t)get_int(r, cache, "budget_bytes", 0, INT64_MAX);
    plan->key.gpu_budget_bytes = (uint64_t)get_int(r, cache, "gpu_budget_bytes", 0, INT64_MAX);
    get_str(r, cache, "policy", plan->key.policy, sizeof plan->key.policy);
    const json_t *rate = json_object_get(cache, "predicted_hit_rate");
    plan->predicted_hit_rate = json_number_value(rate);
    if (!json_is_number(rate) || !(plan->predicted_hit_rate >= 0 && plan->predicted_hit_rate <= 1))
        (void)bad(r, "predicted_hit_rate", "a number from 0 to 1");
    plan->max_misses = get_int(r, cache, "max_misses", -1, plan->vertices);
    parse_tiers(r, cache, "rows", plan->vertices, &plan->rows, &digests[0]);
    parse_tiers(r, cache, "lists", plan->vertices, &plan->lists, &digests[1]);
}

/* begin: where each replica's ids begin, of their counts; they are all n of them. */
static void parse_counts(struct reader *r, const json_t *caches, const char *field, int replicas, int64_t n,
                         int64_t *begin)
{
    int64_t counts[PST_PLAN_REPLICAS_MAX];
    begin[0] = 0;
    if (get_ints(r, caches, field, counts, replicas, PST_PLAN_REPLICAS_MAX, 0) != replicas)
        return;
    for (int i = 0; i < replicas; i++)
        begin[i + 1] = begin[i] + counts[i];
    if (begin[replicas] != n)
        (void)bad(r, field, "counts whose sum is the number of ids");
}

/* digests: of rows, lists and owners. */
static void parse_caches(struct reader *r, const json_t *root, struct pst_plan *plan, uint64_t digests[3])
{
    const json_t *caches = json_object_get(root, "caches");
    struct pst_plan_caches *c = &plan->caches;
    if (caches == NULL)
        return;
    c->replicas = get_ints(r, caches, "group", c->group, 0, PST_PLAN_REPLICAS_MAX, 0);
    const int64_t most = plan->vertices * c->replicas;
    parse_tiers(r, caches, "rows", most, &c->rows, &digests[0]);
    parse_tiers(r, caches, "lists", most, &c->lists, &digests[1]);
    parse_counts(r, caches, "rows_of", c->replicas, c->rows.n, c->rows_begin);
    parse_counts(r, caches, "lists_of", c->replicas, c->lists.n, c->lists_begin);
    c->line_bytes = get_int(r, caches, "line_bytes", 16, PST_PAGE);
    if ((c->line_bytes & (c->line_bytes - 1)) != 0)
        (void)bad(r, "line_bytes", "a power of two");
    const char *owners = json_string_value(json_object_get(caches, "owners"));
    if (owners == NULL || owners[0] != '\0')
        digests[2] = get_hex(r, caches, "owners");
    if (owners != NULL && owners[0] != '\0' && r->rc == PST_OK)
        c->owner = malloc((size_t)plan->vertices);
    if (owners != NULL && owners[0] != '\0' && r->rc == PST_OK && c->owner == NULL)
        r->rc = pst_fail(PST_E_NOMEM, "out of memory: cannot read the owners of %lld vertices",
                         (long long)plan->vertices);
}

/* The file that the ids of a tier are read from, for messages. */
struct ids_file {
    int fd;
    uint64_t bytes;
    char path[PST_PATH_MAX];
};

static pst_rc read_ids(const struct ids_file *f, int64_t vertices, uint64_t digest,
                       struct pst_plan_tiers *tiers)
{
    const size_t bytes = (size_t)tiers->n * sizeof *tiers->ids;
    if (f->bytes != PST_PAGE + bytes)
        return pst_fail(PST_E_FORMAT,
                        "%s has %llu bytes; expected %llu, because plan.json counts %lld cached vertices: "
                        "make a new plan",
                        f->path, (unsigned long long)f->bytes, (unsigned long long)(PST_PAGE + bytes),
                        (long long)tiers->n);
    tiers->ids = calloc((size_t)tiers->n + 1, sizeof *tiers->ids);
    if (tiers->ids == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the %lld ids of %s", (long long)tiers->n,
                        f->path);
    const pst_rc rc = pst_file_read_at(f->fd, tiers->ids, bytes, PST_PAGE, f->path);
    if (rc != PST_OK)
        return rc;
    if (XXH3_64bits(tiers->ids, bytes) != digest)
        return pst_fail(PST_E_FORMAT,
                        "%s does not belong to plan.json, which has another checksum: make a new plan",
                        f->path);
    for (int64_t i = 0; i < tiers->n; i++) {
        if (tiers->ids[i] < 0 || tiers->ids[i] >= vertices)
            return pst_fail(PST_E_FORMAT,
                            "%s: entry %lld is vertex %lld, but the graph has only %lld vertices", f->path,
                            (long long)i, (long long)tiers->ids[i], (long long)vertices);
    }
    return PST_OK;
}

/* Opens a file beside plan.json. */
static pst_rc open_beside(const char *plan_path, const char *name, struct ids_file *f)
{
    const char *slash = strrchr(plan_path, '/');
    const int dir_bytes = slash != NULL ? (int)(slash - plan_path + 1) : 0;
    if (snprintf(f->path, sizeof f->path, "%.*s%s", dir_bytes, plan_path, name) >= (int)sizeof f->path)
        return pst_fail(PST_E_LIMIT, "the path of the file %s in the directory of %s is too long", name,
                        plan_path);
    const pst_rc rc = pst_file_open(f->path, &f->fd, &f->bytes);
    return rc == PST_OK ? rc : pst_wrap(rc, "the plan %s", plan_path);
}

static pst_rc read_tiers(const char *plan_path, const char *name, int64_t vertices, uint64_t digest,
                         struct pst_plan_tiers *tiers)
{
    struct ids_file f;
    pst_rc rc = open_beside(plan_path, name, &f);
    if (rc != PST_OK)
        return rc;
    rc = read_ids(&f, vertices, digest, tiers);
    (void)close(f.fd);
    return rc;
}

static pst_rc check_owners(const struct ids_file *f, const struct pst_plan *plan, uint64_t digest)
{
    const struct pst_plan_caches *c = &plan->caches;
    if (XXH3_64bits(c->owner, (size_t)plan->vertices) != digest)
        return pst_fail(PST_E_FORMAT,
                        "%s does not belong to plan.json, which has another checksum: make a new plan",
                        f->path);
    for (int64_t v = 0; v < plan->vertices; v++)
        if (c->owner[v] < -1 || c->owner[v] >= c->replicas)
            return pst_fail(PST_E_FORMAT, "%s: entry %lld is replica %d, but there are only %d", f->path,
                            (long long)v, c->owner[v], c->replicas);
    return PST_OK;
}

static pst_rc read_owners(const char *plan_path, struct pst_plan *plan, uint64_t digest)
{
    struct ids_file f;
    pst_rc rc = open_beside(plan_path, OWNERS_FILE, &f);
    if (rc != PST_OK)
        return rc;
    if (f.bytes != PST_PAGE + (uint64_t)plan->vertices)
        rc = pst_fail(PST_E_FORMAT, "%s has %llu bytes; expected %llu: make a new plan", f.path,
                      (unsigned long long)f.bytes, (unsigned long long)(PST_PAGE + (uint64_t)plan->vertices));
    if (rc == PST_OK)
        rc = pst_file_read_at(f.fd, plan->caches.owner, (size_t)plan->vertices, PST_PAGE, f.path);
    if (rc == PST_OK)
        rc = check_owners(&f, plan, digest);
    (void)close(f.fd);
    return rc;
}

/* Each replica's ids ascend: its rows and lists lie in this order. */
static pst_rc check_order(const char *path, const char *name, const struct pst_plan_tiers *ids,
                          const int64_t *begin, int replicas)
{
    for (int r = 0; r < replicas; r++)
        for (int64_t i = begin[r] + 1; i < begin[r + 1]; i++)
            if (ids->ids[i] <= ids->ids[i - 1])
                return pst_fail(
                    PST_E_FORMAT,
                    "%s beside %s: entry %lld of replica %d is vertex %lld, after vertex %lld, but "
                    "ids must ascend: make a new plan",
                    name, path, (long long)(i - begin[r]), r, (long long)ids->ids[i],
                    (long long)ids->ids[i - 1]);
    return PST_OK;
}

static pst_rc read_caches(const char *path, struct pst_plan *plan, const uint64_t digests[3])
{
    struct pst_plan_caches *c = &plan->caches;
    pst_rc rc = PST_OK;
    if (c->replicas > 0)
        rc = read_tiers(path, SHARED_ROWS_FILE, plan->vertices, digests[0], &c->rows);
    if (rc == PST_OK && c->replicas > 0)
        rc = read_tiers(path, SHARED_LISTS_FILE, plan->vertices, digests[1], &c->lists);
    if (rc == PST_OK)
        rc = check_order(path, SHARED_ROWS_FILE, &c->rows, c->rows_begin, c->replicas);
    if (rc == PST_OK)
        rc = check_order(path, SHARED_LISTS_FILE, &c->lists, c->lists_begin, c->replicas);
    return rc == PST_OK && c->owner != NULL ? read_owners(path, plan, digests[2]) : rc;
}

pst_rc pst_plan_read(struct pst_plan *plan, const char *path)
{
    memset(plan, 0, sizeof *plan);
    char *text = NULL;
    size_t bytes = 0;
    pst_rc rc = pst_file_read(path, PST_PLAN_BYTES_MAX, &text, &bytes);
    if (rc != PST_OK)
        return pst_wrap(rc, "the plan");
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json_is_object(root)) {
        json_decref(root);
        return pst_fail(PST_E_FORMAT, "%s:%d: expected a JSON object: %s", path, root ? 1 : error.line,
                        root ? "found another kind of value" : error.text);
    }
    struct reader r = {path, PST_OK};
    parse_key(&r, root, plan);
    if (r.rc == PST_OK)
        parse_max(&r, root, plan);
    uint64_t digests[2] = {0, 0}, shared[3] = {0, 0, 0};
    if (r.rc == PST_OK)
        parse_cache(&r, root, plan, digests);
    if (r.rc == PST_OK)
        parse_caches(&r, root, plan, shared);
    json_decref(root);
    rc = r.rc;
    if (rc == PST_OK)
        rc = read_tiers(path, ROWS_FILE, plan->vertices, digests[0], &plan->rows);
    if (rc == PST_OK)
        rc = read_tiers(path, LISTS_FILE, plan->vertices, digests[1], &plan->lists);
    if (rc == PST_OK)
        rc = read_caches(path, plan, shared);
    if (rc != PST_OK)
        pst_plan_release(plan);
    return rc;
}

void pst_plan_release(struct pst_plan *plan)
{
    free(plan->rows.ids);
    free(plan->lists.ids);
    plan->rows = plan->lists = (struct pst_plan_tiers){0};
    free(plan->caches.rows.ids);
    free(plan->caches.lists.ids);
    free(plan->caches.owner);
    plan->caches = (struct pst_plan_caches){.replicas = 0};
}

/* The scores of lists, in the rows before, are not needed. */
pst_rc pst_plan_hotness(const struct pst_plan *plan, const char *path, float **hotness)
{
    char file[PST_PATH_MAX], id[PST_HOTNESS_ID_BYTES];
    const char *slash = strrchr(path, '/');
    const size_t n = (size_t)plan->vertices, hops = (size_t)plan->key.hops;
    float *scores = *hotness = malloc((hops + 1) * n * sizeof *scores + 1);
    if (scores == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the hotness of %zu vertices", n);
    (void)snprintf(file, sizeof file, "%.*shotness.npy", slash != NULL ? (int)(slash + 1 - path) : 0, path);
    const pst_rc rc = pst_hotness_read(file, plan->key.hops, plan->vertices, scores, id);
    if (rc != PST_OK)
        return rc;
    memmove(scores, scores + hops * n, n * sizeof *scores);
    float *smaller = realloc(scores, n * sizeof *scores + 1);
    *hotness = smaller != NULL ? smaller : scores;
    return PST_OK;
}
