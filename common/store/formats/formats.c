/* formats.c: the table of formats. */
#include "common/store/formats/formats.h"

#include <string.h>

#define DECLARE(name) extern const struct pst_import_format pst_format_##name;
PST_FORMATS(DECLARE)

#define ADDRESS(name) &pst_format_##name,
static const struct pst_import_format *const formats[] = {PST_FORMATS(ADDRESS)};

const struct pst_import_format *pst_formats_at(unsigned index)
{
    return index < sizeof formats / sizeof formats[0] ? formats[index] : NULL;
}

const struct pst_import_format *pst_formats_find(const char *name)
{
    for (unsigned i = 0; pst_formats_at(i) != NULL; i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}
