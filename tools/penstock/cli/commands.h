/* commands.h: the subcommands of penstock. argv[0] is the subcommand's name.
 * They return the process's exit code: 0 ok, 1 failed at run time, 2 the user's input is wrong.
 * Owner: none. Threads: one. */
#ifndef PST_COMMANDS_H
#define PST_COMMANDS_H

int cmd_gen(int argc, char **argv);
int cmd_import(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_split(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_features(int argc, char **argv);
int cmd_reorder(int argc, char **argv);
int cmd_inspect_reorder(int argc, char **argv); /* inspect, with --reorder */
int cmd_rm(int argc, char **argv);
int cmd_infer(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_graph(int argc, char **argv);
int cmd_stages(int argc, char **argv);
int cmd_disks(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_tpc(int argc, char **argv);
int cmd_scale(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_experiment(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_caches(int argc, char **argv);
int cmd_order(int argc, char **argv);
int cmd_partition(int argc, char **argv);
int cmd_export_run(int argc, char **argv); /* export, if its first argument is a run */
int cmd_neighbours(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_page(int argc, char **argv);
int cmd_runs(int argc, char **argv);
int cmd_schema(int argc, char **argv);
int cmd_complete(int argc, char **argv);
int cmd_man(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_gc(int argc, char **argv);

#endif
