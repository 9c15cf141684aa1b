// Two versions of the library in one process, as when two plugins of a host bring one each.
//   copies_test LIBRARY OTHER MODEL: two files of librondo.so, and a model that it can stream with
#include <dlfcn.h>
#include <rondo/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tones.h"

struct library {
  __typeof__(&rondo_model_open) model_open;
  __typeof__(&rondo_model_free) model_free;
  __typeof__(&rondo_state_new) state_new;
  __typeof__(&rondo_state_free) state_free;
  __typeof__(&rondo_run) run;
  __typeof__(&rondo_result_text) text;
  __typeof__(&rondo_result_free) result_free;
  __typeof__(&rondo_message) message;
  rondo_model* model;
  rondo_state* state;
};

static void* named(void* file, const char* name) {
  void* found = dlsym(file, name);
  CHECK(found);
  return found;
}

static void* open_library(const char* path, struct library* l) {
  void* file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!file) fprintf(stderr, "%s\n", dlerror());
  CHECK(file);
  *(void**)&l->model_open = named(file, "rondo_model_open");
  *(void**)&l->model_free = named(file, "rondo_model_free");
  *(void**)&l->state_new = named(file, "rondo_state_new");
  *(void**)&l->state_free = named(file, "rondo_state_free");
  *(void**)&l->run = named(file, "rondo_run");
  *(void**)&l->text = named(file, "rondo_result_text");
  *(void**)&l->result_free = named(file, "rondo_result_free");
  *(void**)&l->message = named(file, "rondo_message");
  return file;
}

int main(int argc, char** argv) {
  CHECK(argc == 4);
  struct library of[2];
  void* files[2];
  for (int i = 0; i < 2; ++i) {
    files[i] = open_library(argv[1 + i], &of[i]);
    CHECK(of[i].model_open(argv[3], NULL, &of[i].model) == RONDO_OK);
    CHECK(of[i].state_new(of[i].model, 2, &of[i].state) == RONDO_OK);
  }
  CHECK(of[0].run != of[1].run);

  // Each has a message of its own.
  rondo_model* none;
  CHECK(of[1].model_open("/none/there", NULL, &none) == RONDO_INVALID);
  CHECK(strstr(of[1].message(), "/none/there") && of[0].message()[0] == 0);

  static float sound[room];
  char text[most_letters + 1], first[100] = "";
  const rondo_input input = samples_of(sound, make_tones(9000, text, sound));
  for (int turn = 0; turn < 6; ++turn) {
    struct library* l = &of[turn % 2];
    rondo_result* result;
    CHECK(l->run(l->state, &input, 1, &result) == RONDO_OK);
    CHECK(strlen(l->text(result)) > 2 && strlen(l->text(result)) < sizeof first);
    if (turn == 0) strcpy(first, l->text(result));
    CHECK(strcmp(l->text(result), first) == 0);
    l->result_free(result);
    if (turn < 4) continue;
    // One of them goes, and the other works on.
    l->state_free(l->state);
    l->model_free(l->model);
    CHECK(dlclose(files[turn % 2]) == 0);
  }
  puts("two copies work beside each other");
  return 0;
}
