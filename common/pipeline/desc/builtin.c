/* builtin.c: the descriptions of built-in stages. */
#include "common/pipeline/desc/builtin.h"

#include <string.h>

static const struct pst_port_desc copy_ports[] = {
    {.name = "in",
     .dir = PST_IN,
     .help = "slots of one device",
     .type = "any",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu",
     .flags = PST_PORT_ORDERED},
    {.name = "out",
     .dir = PST_OUT,
     .help = "copies of them on another device",
     .type = "any",
     .dtype = "any",
     .rank = -1,
     .memory = "cpu",
     .requests = PST_REQUESTS_COPIES,
     .flags = PST_PORT_RETURNS},
    {0},
};

static const struct pst_stage_desc copy = {.abi = PST_STAGE_ABI,
                                           .name = PST_BUILTIN_COPY,
                                           .help = "copies slots from one device to another",
                                           .ports = copy_ports};

const struct pst_stage_desc *pst_builtin(const char *name)
{
    return strcmp(name, PST_BUILTIN_COPY) == 0 ? &copy : NULL;
}
