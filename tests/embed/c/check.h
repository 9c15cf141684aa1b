// What the programs that test <rondo/c.h> share: checks, and the folder for their files.
#pragma once

#include <rondo/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                 \
  do {                                                                              \
    if (!(what)) {                                                                  \
      fprintf(stderr, "%s:%d: %s\n  last message: %s\n", __FILE__, __LINE__, #what, \
              rondo_message());                                                     \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)
#define OK(call) CHECK((call) == RONDO_OK)
#define FAILS(call, text) CHECK((call) == RONDO_INVALID && strstr(rondo_message(), text) != NULL)

static char folder[600];

static inline void path_of(char* path, const char* name) {
  snprintf(path, 700, "%s/%s", folder, name);
}
