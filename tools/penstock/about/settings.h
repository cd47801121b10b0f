/* settings.h: completion of --set PATH=VALUE, from the stages of the pipeline at hand. Owner: none. Threads:
 * one. */
#ifndef PST_SETTINGS_H
#define PST_SETTINGS_H

/* Prints what the text `current` of a --set can become in the pipeline `file`, each with `before` in front.
 * word: the n words of the command line so far; --with and --set among them are read. */
void settings_offer(const char *file, char *const *word, int n, const char *before, const char *current);

#endif
