/* discard.c: releases every slot at once, so that the stages before it can be measured alone. */
#include "common/stage.h"

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    if (event->kind != PST_EV_FRAME || !(event->frame->flags & PST_LAST_PART))
        return PST_OK;
    return pst_consume(self, event->frame);
}

static const struct pst_port_desc ports[] = {{.name = "in",
                                              .dir = PST_IN,
                                              .help = "anything",
                                              .type = "any",
                                              .dtype = "any",
                                              .rank = -1,
                                              .memory = "cpu,cuda",
                                              .flags = PST_PORT_ASIDE | PST_PORT_IN_PLACE},
                                             {0}};
static const struct pst_param_desc params[] = {{0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "discard",
                                         .help =
                                             "releases every slot at once, to measure the stages before it",
                                         .ports = ports,
                                         .params = params,
                                         .replicas = PST_REPLICAS_EACH,
                                         .on_event = on_event};
