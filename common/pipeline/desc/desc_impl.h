/* desc_impl.h: what the files of this room share. */
#ifndef PST_DESC_IMPL_H
#define PST_DESC_IMPL_H

#include "common/pipeline/desc/desc.h"

/* bind.c: does the parameter fit the member of the state that it is stored in? */
PST_MUST_USE pst_rc pst_desc_check_into(const struct pst_stage_desc *desc, const char *file,
                                        const struct pst_param_desc *param);

#endif
