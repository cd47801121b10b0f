/* install.h: where the programs and stages of this installation are. Owner: none. Threads: any. */
#ifndef PST_INSTALL_H
#define PST_INSTALL_H

#include "common/base.h"

/* The path of a program that is installed beside the running one, for example "penstock-stage". The
 * environment variable PENSTOCK_BIN overrides the directory. */
PST_MUST_USE pst_rc pst_install_program_path(const char *name, char out[PST_PATH_MAX]);

/* The path of the installed pipeline `name`: NAME.json in the pipelines of the source tree or of an
 * installation. False: there is none. */
bool pst_install_pipeline_path(const char *name, char out[PST_PATH_MAX]);

/* Directory `index` (0, 1, ...) of those that have installed stages. The environment variable PENSTOCK_STAGES
 * lists them, separated by colons. In this list, an empty name stands for the directory of this installation,
 * which is the only one without the variable. An empty `out`: there are not so many directories. */
PST_MUST_USE pst_rc pst_install_stage_dir(int index, char out[PST_PATH_MAX]);

#endif
