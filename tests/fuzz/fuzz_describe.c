/* What an external program answers to --describe. */
#include "common/pipeline/desc/desc.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct pst_stage_desc *desc = NULL;
    json_t *j = json_loadb((const char *)data, bytes, 0, NULL);
    if (j && pst_desc_from_json(&desc, j, "odd") == PST_OK) {
        json_t *again = pst_desc_json(desc); /* an accepted description can be written again */
        fuzz_check(again && pst_desc_ports(desc) <= PST_PORTS_MAX);
        json_decref(again);
    }
    pst_desc_free(desc);
    json_decref(j);
    return 0;
}
