#include "common/util/tempname.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"

pst_rc pst_tempname(char *out, size_t size, const char *path, const char *mark)
{
    const int n = snprintf(out, size, "%s%s%ld", path, mark, (long)getpid());
    return n >= 0 && (size_t)n < size ? PST_OK : pst_fail(PST_E_ARG, "the path is too long: %.200s...", path);
}

long pst_tempname_pid(const char *name, const char *of, const char *mark)
{
    const size_t length = strlen(mark), n = of != NULL ? strlen(of) : 0;
    const char *at = of == NULL ? strstr(name, mark) : name + n;
    if (at == NULL || (of != NULL && strncmp(name, of, n) != 0) || strncmp(at, mark, length) != 0)
        return 0;
    const char *digits = at + length;
    const size_t count = strspn(digits, "0123456789");
    return count > 0 && count < 10 && digits[count] == '\0' ? strtol(digits, NULL, 10) : 0;
}
