/* products.h: oneDNN, which is loaded with the first product. To load and to relocate it takes half of the
 * time in which a command starts, and most processes make no product. Owner: none. Threads: any. */
#ifndef PST_PRODUCTS_H
#define PST_PRODUCTS_H

/* A function of libpenstock-onednn.so, or of oneDNN. Ends the process with a message if it is not there. */
void *pst_products_load(const char *symbol);

#endif
