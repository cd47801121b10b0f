/* write.c: writes the arrays names and names_at. */
#include "common/error.h"
#include "common/store/names/names.h"

struct writing {
    struct pst_array_writer at, text;
    int64_t begin, until, early;
};

static pst_rc write_name(void *ctx, int64_t mention, struct pst_name name)
{
    struct writing *w = ctx;
    w->begin += name.bytes;
    w->early += mention < w->until;
    pst_rc rc = pst_array_write(&w->at, &w->begin, sizeof w->begin);
    return rc == PST_OK ? pst_array_write(&w->text, name.text, name.bytes) : rc;
}

pst_rc pst_names_write(struct pst_names *n, struct pst_build *b, enum pst_array_id at_id,
                       enum pst_array_id bytes_id, int64_t until, int64_t *early)
{
    struct writing w = {.at = {.fd = -1}, .text = {.fd = -1}, .until = until};
    uint64_t text_bytes;
    const int64_t names = pst_names_count(n, &text_bytes);
    const int64_t at_shape[2] = {names + 1, 1}, text_shape[2] = {(int64_t)text_bytes, 1};
    pst_rc rc = pst_build_array(b, at_id, PST_I64, 1, at_shape, &w.at);
    if (rc == PST_OK)
        rc = pst_build_array(b, bytes_id, PST_U8, 1, text_shape, &w.text);
    if (rc == PST_OK)
        rc = pst_array_write(&w.at, &w.begin, sizeof w.begin);
    if (rc == PST_OK)
        rc = pst_names_order(n, write_name, &w);
    if (rc == PST_OK)
        rc = pst_build_array_end(b, at_id, &w.at);
    if (rc == PST_OK)
        rc = pst_build_array_end(b, bytes_id, &w.text);
    pst_array_writer_release(&w.at);
    pst_array_writer_release(&w.text);
    if (early != NULL)
        *early = w.early;
    return rc;
}
