// Streams of <rondo/c.h>, by the model that interface_test.c has trained.
//   stream_test FOLDER: with that model
#include <math.h>
#include <rondo/c.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "tones.h"

static void stream(const rondo_model* model) {
  static float sound[room];
  char said[most_letters + 1], told[200] = "";
  const char *text, *stable, *partial;
  const size_t n = make_tones(9200, said, sound);
  const rondo_input input = samples_of(sound, n);
  rondo_result *whole, *heard = NULL;
  rondo_state* state;
  OK(rondo_state_new(model, 1, &state));
  OK(rondo_run(state, &input, 1, &whole));
  rondo_stream_options o;
  rondo_stream_options_init(&o, sizeof o);
  CHECK(o.end_silence == 1 && o.longest == 30);
  o.chunk_seconds = 0.1;
  o.end_silence = o.longest = 0;
  rondo_stream *s, *other;
  OK(rondo_stream_new(state, &o, &s));
  OK(rondo_stream_new(state, &o, &other));
  for (int round = 0; round < 2; ++round) {
    told[0] = 0;
    for (size_t at = 0; at < n; at += 333) {
      OK(rondo_stream_accept(s, sound + at, n - at < 333 ? n - at : 333, &text));
      strcat(told, text);
      OK(rondo_stream_partial(s, &stable, &partial));
      CHECK(strncmp(partial, stable, strlen(stable)) == 0);
      OK(rondo_stream_accept(other, sound, 50, NULL));  // beside it, with the same state
    }
    OK(rondo_stream_next(s, &heard));
    CHECK(heard == NULL);
    OK(rondo_stream_finish(s));
    OK(rondo_stream_next(s, &heard));
    CHECK(heard && strcmp(rondo_result_text(heard), rondo_result_text(whole)) == 0);
    CHECK(strncmp(rondo_result_text(heard), told, strlen(told)) == 0 && strlen(told) > 2);
    rondo_result_free(heard);
    OK(rondo_stream_next(s, &heard));
    CHECK(heard == NULL);
  }
  OK(rondo_stream_accept(s, sound, n / 2, NULL));
  OK(rondo_stream_reset(s));
  OK(rondo_stream_finish(s));
  OK(rondo_stream_next(s, &heard));
  CHECK(heard == NULL);
  rondo_stream_free(other);
  rondo_stream_free(s);

  // Two utterances with a pause between.
  static float silence[2 * tone_rate];
  for (size_t i = 0; i < 2 * tone_rate; ++i) silence[i] = i % 2 ? 0.001f : -0.001f;
  OK(rondo_stream_new(state, NULL, &s));
  for (int i = 0; i < 2; ++i) {
    OK(rondo_stream_accept(s, sound, n, NULL));
    OK(rondo_stream_accept(s, silence, 2 * tone_rate, &text));
  }
  OK(rondo_stream_finish(s));
  double before = 0, begin, end;
  int utterances = 0;
  for (;;) {
    OK(rondo_stream_next(s, &heard));
    if (!heard) break;
    rondo_result_times(heard, &begin, &end);
    CHECK(begin >= before && end > begin && strlen(rondo_result_text(heard)) > 2);
    before = end;
    ++utterances;
    rondo_result_free(heard);
  }
  CHECK(utterances == 2);
  sound[3] = INFINITY;
  FAILS(rondo_stream_accept(s, sound, n, &text), "sample");
  o.chunk_seconds = 0;
  rondo_stream* none;
  FAILS(rondo_stream_new(state, &o, &none), "chunks of 0 seconds");
  rondo_stream_free(s);
  rondo_result_free(whole);
  rondo_state_free(state);
}

// Those of two states, in pieces of their own; each says what its sound says alone.
static void at_once(const rondo_model* model) {
  enum { count = 12 };
  static float sound[count][room];
  char said[most_letters + 1], told[count][200];
  size_t n[count], counts[count];
  const float* pieces[count];
  const char* texts[count];
  rondo_state* states[2];
  rondo_stream* streams[count];
  rondo_result* heard;
  for (int i = 0; i < 2; ++i) OK(rondo_state_new(model, 1, &states[i]));
  for (int i = 0; i < count; ++i) {
    n[i] = make_tones(9600 + (uint32_t)i, said, sound[i]);
    told[i][0] = 0;
    OK(rondo_stream_new(states[i % 2], NULL, &streams[i]));
  }
  for (size_t at = 0, left = 1; left > 0; at += 700) {
    left = 0;
    for (int i = 0; i < count; ++i) {
      counts[i] = at >= n[i] ? 0 : n[i] - at < 700 ? n[i] - at : 700;
      pieces[i] = counts[i] > 0 ? sound[i] + at : NULL;
      left += counts[i];
    }
    OK(rondo_streams_accept(streams, pieces, counts, count, at == 0 ? NULL : texts));
    for (int i = 0; i < count && at > 0; ++i) strcat(told[i], texts[i]);
  }
  for (int i = 0; i < count; ++i) {
    const rondo_input input = samples_of(sound[i], n[i]);
    rondo_result* whole;
    OK(rondo_run(states[0], &input, 1, &whole));
    OK(rondo_stream_finish(streams[i]));
    OK(rondo_stream_next(streams[i], &heard));
    CHECK(heard && strcmp(rondo_result_text(heard), rondo_result_text(whole)) == 0);
    CHECK(strncmp(rondo_result_text(heard), told[i], strlen(told[i])) == 0);
    const rondo_matrix a = rondo_result_outputs(heard), b = rondo_result_outputs(whole);
    CHECK(a.rows == b.rows && a.columns == b.columns);
    CHECK(memcmp(a.data, b.data, sizeof(float) * (size_t)(a.rows * a.columns)) == 0);
    rondo_result_free(heard);
    rondo_result_free(whole);
  }
  OK(rondo_streams_accept(NULL, NULL, NULL, 0, NULL));
  FAILS(rondo_streams_accept(streams, NULL, counts, count, NULL), "samples is NULL");
  for (int i = 0; i < count; ++i) pieces[i] = sound[i], counts[i] = 10;
  sound[5][3] = NAN;
  FAILS(rondo_streams_accept(streams, pieces, counts, count, texts), "stream 6 of 12: ");
  CHECK(strcmp(texts[0], "") == 0);
  streams[3] = streams[2];
  sound[5][3] = 0;
  FAILS(rondo_streams_accept(streams, pieces, counts, count, texts),
        "stream 4 of 12: is there twice");
  for (int i = 0; i < count; ++i)
    if (i != 3) rondo_stream_free(streams[i]);
  for (int i = 0; i < 2; ++i) rondo_state_free(states[i]);
}

int main(int argc, char** argv) {
  CHECK(argc == 2 && strlen(argv[1]) < sizeof folder);
  strcpy(folder, argv[1]);
  char path[700];
  path_of(path, "run");
  rondo_model* model;
  OK(rondo_model_open(path, NULL, &model));
  stream(model);
  at_once(model);
  rondo_model_free(model);
  puts("streams work");
  return 0;
}
