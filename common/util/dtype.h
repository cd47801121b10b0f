/* dtype.h: the types of numbers that arrays hold. Owner: none. Threads: pure functions. */
#ifndef PST_DTYPE_H
#define PST_DTYPE_H

#include "common/base.h"

PST_BEGIN_DECLS

enum pst_dtype { PST_F32, PST_F16, PST_BF16, PST_F64, PST_I32, PST_I64, PST_U8 };

PST_API size_t pst_dtype_bytes(enum pst_dtype dtype);
PST_API const char *pst_dtype_name(enum pst_dtype dtype); /* as dataset.json spells it: "float32" */
/* PST_E_FORMAT: there is no type of this name. */
PST_API PST_MUST_USE pst_rc pst_dtype_parse(const char *name, enum pst_dtype *out);

PST_END_DECLS
#endif
