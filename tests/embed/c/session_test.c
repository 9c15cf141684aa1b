// Sessions of <rondo/c.h>, from a program in plain C.
//   session_test FOLDER: for its files
#include <math.h>

#include "check.h"

enum { most_examples = 16, columns = 4 };

// Sequences of unit vectors that stay for four frames, and a frame of nothing between.
static void make_examples(rondo_example* examples, size_t count, uint32_t seed) {
  static float frames[most_examples][100 * columns];
  static int32_t labels[most_examples][4];
  for (size_t i = 0; i < count; ++i) {
    size_t n = 0;
    memset(frames[i], 0, sizeof frames[i]);
    for (int l = 0; l < 4; ++l) {
      seed = seed * 1664525u + 1013904223u;
      labels[i][l] = 1 + (int32_t)(seed >> 24) % 3;
      for (int f = 0; f < 4; ++f) frames[i][n++ * columns + (size_t)labels[i][l]] = 1;
      ++n;
    }
    examples[i] = (rondo_example){{frames[i], (int64_t)n, columns, 0, 0}, labels[i], 4};
  }
}

static void session(void) {
  const char* const toml =
      "[model]\nhidden = 24\nlayers = 1\nsubsample = 1\ndropout = 0\n"
      "[training]\nseed = 3\n[optimizer]\nlr = 0.02\n";
  rondo_session_options o;
  rondo_session_options_init(&o, sizeof o);
  o.features = columns;
  o.alphabet = (const char* const[]){"a", "b", "c"};
  o.alphabet_size = 3;
  o.threads = 1;
  rondo_session *s, *other;
  OK(rondo_session_new(toml, "test.toml", &o, &s));
  rondo_example batch[most_examples], dev[2];
  rondo_session_result first = {.size = sizeof first}, r = {.size = sizeof r}, same = r;
  make_examples(dev, 2, 77);
  OK(rondo_session_evaluate(s, dev, 2, &first));
  CHECK(first.step == 0 && first.loss > 1 && first.gradient_norm == 0);
  make_examples(batch, most_examples, 1);
  for (uint32_t i = 0; i < 120; ++i) {
    make_examples(batch, most_examples, 100 + i);
    OK(rondo_session_train(s, batch, most_examples, &r));
    CHECK(r.step == (int64_t)i + 1 && r.gradient_norm > 0 && !r.skipped && r.infeasible == 0);
  }
  make_examples(dev, 2, 77);
  OK(rondo_session_evaluate(s, dev, 2, &r));
  CHECK(r.step == 120 && r.loss < 0.2 * first.loss);
  // A file that is a model, and the weights of another session.
  char path[700];
  path_of(path, "session.safetensors");
  OK(rondo_session_save(s, path));
  OK(rondo_session_new(toml, "test.toml", &o, &other));
  OK(rondo_session_load(other, path));
  OK(rondo_session_evaluate(other, dev, 2, &same));
  CHECK(same.loss == r.loss && same.step == 0);
  OK(rondo_session_set_learning_rate(other, 0));
  OK(rondo_session_train(other, dev, 2, &same));
  OK(rondo_session_evaluate(other, dev, 2, &same));
  CHECK(same.loss == r.loss);
  rondo_model* model;
  rondo_state* state;
  rondo_result* said;
  OK(rondo_model_open(path, NULL, &model));
  OK(rondo_state_new(model, 1, &state));
  const rondo_matrix frames = dev[0].features;
  const rondo_input input = {RONDO_FEATURES, 0, frames.data, frames.rows, frames.columns, 0, 0};
  OK(rondo_run(state, &input, 1, &said));
  char wanted[5] = "";
  for (int i = 0; i < 4; ++i) wanted[i] = (char)('a' + dev[0].labels[i] - 1);
  CHECK(strcmp(rondo_result_text(said), wanted) == 0);
  rondo_result_free(said);
  rondo_state_free(state);
  rondo_model_free(model);
  // What a batch may not be.
  const int32_t far[] = {4}, none[] = {0};
  rondo_example wrong = dev[0];
  wrong.labels = far, wrong.label_count = 1;
  FAILS(rondo_session_train(s, &wrong, 1, NULL), "example 0: label 0 is 4, expected 1 to 3");
  wrong.labels = none;
  FAILS(rondo_session_train(s, &wrong, 1, NULL), "label 0 is 0");
  wrong = dev[0];
  wrong.features.columns = 3;
  FAILS(rondo_session_train(s, &wrong, 1, NULL), "3 columns, expected at least one frame of 4");
  wrong.features.rows = 0, wrong.features.columns = columns;
  FAILS(rondo_session_train(s, &wrong, 1, NULL), "0 frames");
  FAILS(rondo_session_train(s, dev, 0, NULL), "without examples");
  wrong = dev[0];
  wrong.features.rows = 2;  // four labels do not fit
  OK(rondo_session_evaluate(s, &wrong, 1, &r));
  CHECK(r.infeasible == 1);
  FAILS(rondo_session_set_learning_rate(s, NAN), "learning rate of nan");
  FAILS(rondo_session_load(s, "nowhere"), "nowhere");
  o.alphabet = (const char* const[]){"a", "b", "d"};
  rondo_session_free(other);
  OK(rondo_session_new(toml, "test.toml", &o, &other));
  FAILS(rondo_session_load(other, path), "another alphabet");
  rondo_session_free(other);
  FAILS(rondo_session_new("[model]\nhiden = 3\n", "test.toml", &o, &other), "test.toml:2");
  o.alphabet_size = 0;
  FAILS(rondo_session_new(toml, "test.toml", &o, &other), "the alphabet is empty");
  rondo_session_free(s);
  rondo_session_free(NULL);
}

int main(int argc, char** argv) {
  CHECK(argc == 2 && strlen(argv[1]) < sizeof folder);
  strcpy(folder, argv[1]);
  session();
  puts("sessions work");
  return 0;
}
