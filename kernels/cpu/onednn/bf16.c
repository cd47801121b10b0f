/* bf16.c: a product of bfloat16 matrices by oneDNN's matmul, which uses AMX or AVX512_BF16. */
#include "kernels/cpu/onednn/bf16.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <oneapi/dnnl/dnnl.h>

enum { KEPT = 256 }; /* primitives of a thread: bf16.c cuts products into few shapes */

struct kept {
    struct pst_onednn_shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
};

struct thread {
    dnnl_stream_t stream;
    struct kept kept[KEPT]; /* by a hash of the shape */
};

static dnnl_engine_t engine;
static pthread_key_t key;
static int started; /* dnnl_status_t */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget(struct kept *k)
{
    (void)dnnl_memory_destroy(k->a);
    (void)dnnl_memory_destroy(k->b);
    (void)dnnl_memory_destroy(k->c);
    (void)dnnl_primitive_destroy(k->primitive);
    memset(k, 0, sizeof *k);
}

static void end_thread(void *at)
{
    struct thread *t = at;
    for (int i = 0; i < KEPT; i++)
        forget(&t->kept[i]);
    (void)dnnl_stream_destroy(t->stream);
    free(t);
}

static void start(void)
{
    started = (int)dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (started == dnnl_success && pthread_key_create(&key, end_thread) != 0)
        started = dnnl_out_of_memory;
}

static struct thread *this_thread(void)
{
    struct thread *t = pthread_getspecific(key);
    if (t)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    if (dnnl_stream_create(&t->stream, engine, dnnl_stream_default_flags) != dnnl_success) {
        free(t);
        return NULL;
    }
    if (pthread_setspecific(key, t) != 0) {
        (void)dnnl_stream_destroy(t->stream);
        free(t);
        return NULL;
    }
    return t;
}

/* ---- making a primitive: the interfaces of oneDNN 2 and 3 differ --------------------------------- */

struct layout {
    dnnl_dims_t sizes, strides;
    dnnl_data_type_t type;
    dnnl_format_tag_t tag; /* other than undef: in place of the strides */
};

/* Rows and columns as the product sees them. ld: of the matrix as it is stored. */
static struct layout layout_of(int64_t rows, int64_t columns, int transposed, int64_t ld,
                               dnnl_data_type_t type)
{
    return (struct layout){
        .sizes = {rows, columns}, .strides = {transposed ? 1 : ld, transposed ? ld : 1}, .type = type};
}

/* bf16.h: PST_ONEDNN_ROWS by PST_ONEDNN_COLUMNS, in pairs of rows. */
static struct layout layout_of_blocks(int64_t rows, int64_t columns)
{
    return (struct layout){.sizes = {rows, columns}, .type = dnnl_bf16, .tag = dnnl_BA16a64b2a};
}

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t describe(dnnl_memory_desc_t *desc, const struct layout *l)
{
    return l->tag != dnnl_format_tag_undef
               ? dnnl_memory_desc_create_with_tag(desc, 2, l->sizes, l->type, l->tag)
               : dnnl_memory_desc_create_with_strides(desc, 2, l->sizes, l->type, l->strides);
}

static int make_primitive(struct kept *k, const struct layout layout[3], const_dnnl_primitive_attr_t attr)
{
    dnnl_memory_desc_t desc[3] = {NULL, NULL, NULL};
    dnnl_primitive_desc_t how = NULL;
    dnnl_status_t rc = dnnl_success;
    for (int i = 0; i < 3 && rc == dnnl_success; i++)
        rc = describe(&desc[i], &layout[i]);
    if (rc == dnnl_success)
        rc = dnnl_matmul_primitive_desc_create(&how, engine, desc[0], desc[1], NULL, desc[2], attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&k->primitive, how);
    dnnl_memory_t *const memory[3] = {&k->a, &k->b, &k->c};
    for (int i = 0; i < 3 && rc == dnnl_success; i++)
        rc = dnnl_memory_create(memory[i], desc[i], engine, DNNL_MEMORY_NONE);
    (void)dnnl_primitive_desc_destroy(how);
    for (int i = 0; i < 3; i++)
        (void)dnnl_memory_desc_destroy(desc[i]);
    return (int)rc;
}
#else
static dnnl_status_t describe(dnnl_memory_desc_t *desc, const struct layout *l)
{
    return l->tag != dnnl_format_tag_undef
               ? dnnl_memory_desc_init_by_tag(desc, 2, l->sizes, l->type, l->tag)
               : dnnl_memory_desc_init_by_strides(desc, 2, l->sizes, l->type, l->strides);
}

static int make_primitive(struct kept *k, const struct layout layout[3], const_dnnl_primitive_attr_t attr)
{
    dnnl_memory_desc_t desc[3];
    dnnl_matmul_desc_t what;
    dnnl_primitive_desc_t how = NULL;
    dnnl_status_t rc = dnnl_success;
    for (int i = 0; i < 3 && rc == dnnl_success; i++)
        rc = describe(&desc[i], &layout[i]);
    if (rc == dnnl_success)
        rc = dnnl_matmul_desc_init(&what, &desc[0], &desc[1], NULL, &desc[2]);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&how, &what, attr, engine, NULL);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(&k->primitive, how);
    dnnl_memory_t *const memory[3] = {&k->a, &k->b, &k->c};
    for (int i = 0; i < 3 && rc == dnnl_success; i++)
        rc = dnnl_memory_create(memory[i], &desc[i], engine, DNNL_MEMORY_NONE);
    (void)dnnl_primitive_desc_destroy(how);
    return (int)rc;
}
#endif

static int append_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return (int)dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#else
    return (int)dnnl_post_ops_append_sum(ops, 1);
#endif
}

static int make(struct kept *k, const struct pst_onednn_shape *s)
{
    const struct layout layout[3] = {layout_of(s->m, s->k, s->ta, s->ta ? s->m : s->k, dnnl_bf16),
                                     s->blocked
                                         ? layout_of_blocks(s->k, s->n)
                                         : layout_of(s->k, s->n, s->tb, s->tb ? s->k : s->n, dnnl_bf16),
                                     layout_of(s->m, s->n, 0, s->ldc, dnnl_f32)};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    int rc = (int)dnnl_primitive_attr_create(&attr);
    if (rc == 0 && s->adds) {
        rc = (int)dnnl_post_ops_create(&ops);
        if (rc == 0)
            rc = append_sum(ops);
        if (rc == 0)
            rc = (int)dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    if (rc == 0)
        rc = make_primitive(k, layout, attr);
    (void)dnnl_post_ops_destroy(ops);
    (void)dnnl_primitive_attr_destroy(attr);
    if (rc == 0)
        k->shape = *s;
    else
        forget(k);
    return rc;
}

/* The primitive of the shape. Another one with the same place makes room. NULL: *rc says why. */
static struct kept *find(struct thread *t, const struct pst_onednn_shape *s, int *rc)
{
    uint64_t hash = 0;
    const int64_t sizes[] = {s->m, s->n, s->k, s->ldc, s->blocked * 8 + s->ta * 4 + s->tb * 2 + s->adds};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        hash = (hash ^ (uint64_t)sizes[i]) * 0x9e3779b97f4a7c15u;
    struct kept *k = &t->kept[hash >> 56];
    if (memcmp(&k->shape, s, sizeof *s) == 0)
        return k;
    forget(k);
    *rc = make(k, s);
    return *rc == 0 ? k : NULL;
}

int pst_onednn_bf16(const struct pst_onednn_shape *shape, const uint16_t *a, const uint16_t *b, float *c)
{
    (void)pthread_once(&once, start);
    struct thread *t = started == dnnl_success ? this_thread() : NULL;
    if (!t)
        return started == dnnl_success ? (int)dnnl_out_of_memory : started;
    int rc = dnnl_success;
    struct kept *k = find(t, shape, &rc);
    if (!k)
        return rc;
    /* oneDNN reads A and B, though its interface has no const */
    (void)dnnl_memory_set_data_handle(k->a, (void *)(uintptr_t)a);
    (void)dnnl_memory_set_data_handle(k->b, (void *)(uintptr_t)b);
    (void)dnnl_memory_set_data_handle(k->c, c);
    const dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, k->a}, {DNNL_ARG_WEIGHTS, k->b}, {DNNL_ARG_DST, k->c}};
    rc = (int)dnnl_primitive_execute(k->primitive, t->stream, 3, args);
    return rc == dnnl_success ? (int)dnnl_stream_wait(t->stream) : rc;
}

/* oneDNN names what it would compute with: "brg:..." is what the blocks are for, and "ref:..." is slow. */
static int is_fast(const struct kept *k)
{
    const_dnnl_primitive_desc_t how = NULL;
    const char *name = NULL;
    return dnnl_primitive_get_primitive_desc(k->primitive, &how) == dnnl_success &&
           dnnl_primitive_desc_query(how, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success &&
           name != NULL && strncmp(name, "brg", 3) == 0;
}

int pst_onednn_blocks(void)
{
    static const struct pst_onednn_shape shapes[] = {
        {.m = 128, .n = 256, .k = 128, .ldc = 256, .blocked = 1},
        {.m = 1, .n = 40, .k = 50, .ldc = 40, .adds = 1, .blocked = 1},
        {.m = 128, .n = 40, .k = 512, .ldc = 40, .ta = 1, .blocked = 1}};
    (void)pthread_once(&once, start);
    int fast = started == dnnl_success;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && fast; i++) {
        struct kept k = {.primitive = NULL};
        fast = make(&k, &shapes[i]) == dnnl_success && is_fast(&k);
        forget(&k);
    }
    return fast;
}
