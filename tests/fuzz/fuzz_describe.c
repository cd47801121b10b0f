/* What a foreign stage answers to --describe. */
#include "common/pipeline/caps_foreign.c"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char file[] = "odd";
    struct pst_caps caps = {.file = file, .foreign = true};
    caps.described = json_loadb((const char *)data, bytes, 0, NULL);
    if (caps.described && desc_from_json(&caps, caps.described) == PST_OK) {
        json_t *again = pst_caps_json(caps.desc); /* what is accepted can be told again */
        fuzz_check(again && pst_desc_ports(caps.desc) <= PST_PORTS_MAX);
        json_decref(again);
    }
    caps.file = NULL;
    pst_caps_release(&caps);
    return 0;
}
