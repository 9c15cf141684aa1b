// <rondo/c.h> from a program in plain C: trains a model on tones, and uses it.
//   interface_test FOLDER: an empty one, for its files
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <rondo/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "tones.h"

static void write_file(const char* name, const char* content) {
  char path[700];
  path_of(path, name);
  FILE* f = fopen(path, "w");
  CHECK(f && fputs(content, f) >= 0 && fclose(f) == 0);
}

// ---- Training

static void write_corpus(const char* manifest, int count, uint32_t seed) {
  char path[700];
  static float sound[room];
  path_of(path, manifest);
  FILE* f = fopen(path, "w");
  CHECK(f);
  for (int i = 0; i < count; ++i) {
    char text[most_letters + 1], name[32];
    const size_t n = make_tones(seed + (uint32_t)i, text, sound);
    snprintf(name, sizeof name, "%u.wav", seed + (uint32_t)i);
    path_of(path, name);
    write_wav(path, sound, n);
    fprintf(f, "{\"audio_filepath\": \"%s\", \"text\": \"%s\"}\n", name, text);
  }
  CHECK(fclose(f) == 0);
}

struct heard {
  int messages, steps, validations, best;
  int stop_at;
};
static void on_message(void* user, const char* text) {
  CHECK(text[0] != 0);
  ((struct heard*)user)->messages++;
}
static void on_step(void* user, const rondo_training_step* step) {
  CHECK(step->step > 0 && isfinite(step->loss) && step->learning_rate > 0);
  ((struct heard*)user)->steps++;
}
static void on_validation(void* user, const rondo_validation* v) {
  CHECK(v->step > 0 && isfinite(v->loss));
  ((struct heard*)user)->validations++;
  ((struct heard*)user)->best += v->best;
}
static int wants_stop(void* user) {
  const struct heard* h = user;
  return h->stop_at > 0 && h->steps >= h->stop_at;
}

static void train(void) {
  char toml[3000];
  snprintf(toml, sizeof toml,
           "[data]\ntrain = \"%s/train.jsonl\"\ndev = \"%s/dev.jsonl\"\nbatch_frames = 1500\n"
           "[features]\nrate = 8000\nbins = 20\ncmvn = \"global\"\n"
           "[model]\nhidden = 48\nlayers = 1\nbidirectional = false\n"
           "[training]\nepochs = 20\ncheckpoint_dir = \"%s/run\"\nthreads = 1\n"
           "[optimizer]\ntype = \"adam\"\nlr = 0.01\n",
           folder, folder, folder);
  struct heard heard = {.stop_at = 3};
  rondo_train_options o;
  rondo_train_options_init(&o, sizeof o);
  o.user = &heard;
  o.message = on_message;
  o.stepped = on_step;
  o.validated = on_validation;
  o.stop = wants_stop;
  rondo_training result = {.size = sizeof result};
  OK(rondo_train(toml, "test.toml", &o, &result));
  // What has been begun is ended.
  CHECK(result.stopped == 1 && result.steps >= 3 && result.steps < 8);
  CHECK(heard.steps == result.steps);
  heard.stop_at = 0;
  o.resume = 1;
  OK(rondo_train(toml, "test.toml", &o, &result));
  CHECK(result.stopped == 0 && result.epochs == 20 && heard.steps == result.steps);
  CHECK(heard.messages > 0 && heard.validations == 20 && heard.best > 0);
  CHECK(result.best_metric >= 0 && result.best_metric < 0.1 && result.seconds > 0);
  FAILS(rondo_train("[training]\nepoch = 3\n", "test.toml", NULL, NULL), "test.toml");
  FAILS(rondo_train(NULL, NULL, NULL, NULL), "toml is NULL");
}

// ---- Models

static rondo_model* open_model(void) {
  char path[700];
  path_of(path, "run");
  rondo_model *model = NULL, *other = NULL;
  OK(rondo_model_open(path, NULL, &model));
  rondo_model_info info;
  OK(rondo_model_get_info(model, &info, sizeof info));
  CHECK(info.task == RONDO_CTC && info.kind == RONDO_SAMPLES && info.sample_rate == tone_rate);
  CHECK(info.features == 20 && info.outputs == 6 && info.can_stream == 1 && info.weights > 1000);
  CHECK(info.frame_seconds > 0.009 && info.frame_seconds < 0.1);
  CHECK(strcmp(rondo_model_class(model, 0), "") == 0 &&
        strcmp(rondo_model_class(model, 9), "") == 0);
  CHECK(strlen(rondo_model_class(model, 2)) == 1);

  // A structure of an older program is filled as far as it goes.
  rondo_model_info old;
  memset(&old, 0x55, sizeof old);
  OK(rondo_model_get_info(model, &old, offsetof(rondo_model_info, outputs)));
  CHECK(old.features == 20 && old.outputs == 0x55555555);

  path_of(path, "run/model.safetensors");
  FILE* f = fopen(path, "rb");
  CHECK(f && fseek(f, 0, SEEK_END) == 0);
  const size_t size = (size_t)ftell(f);
  rewind(f);
  char* bytes = malloc(size);
  CHECK(bytes && fread(bytes, 1, size, f) == size && fclose(f) == 0);
  OK(rondo_model_from_memory(bytes, size, "mine", "cpu", &other));
  rondo_model_free(model);
  bytes[size - 100] ^= 1;
  model = other;
  FAILS(rondo_model_from_memory(bytes, size, "mine", NULL, &other), "mine: is damaged");
  CHECK(other == NULL);
  for (size_t cut = 0; cut < size; cut += size / 7) {
    CHECK(rondo_model_from_memory(bytes, cut, "mine", NULL, &other) == RONDO_INVALID);
  }
  free(bytes);
  FAILS(rondo_model_open("/none/there", NULL, &other), "/none/there");
  FAILS(rondo_model_open(path, "gpu", &other), "device 'gpu'");
  FAILS(rondo_model_open(NULL, NULL, &other), "path is NULL");
  FAILS(rondo_model_open(path, NULL, NULL), "NULL");
  return model;
}

static double character_errors(const char* said, const char* heard) {
  size_t row[most_letters * 4] = {0};
  const size_t n = strlen(heard);
  CHECK(n < most_letters * 4 - 1);
  for (size_t j = 0; j <= n; ++j) row[j] = j;
  for (size_t i = 1; i <= strlen(said); ++i) {
    size_t corner = row[0];
    row[0] = i;
    for (size_t j = 1; j <= n; ++j) {
      size_t best = corner + (said[i - 1] != heard[j - 1]);
      corner = row[j];
      if (row[j] + 1 < best) best = row[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  return (double)row[n];
}

static void transcribe(const rondo_model* model) {
  static float sound[8][room], spread[2 * room];
  char text[8][most_letters + 1];
  rondo_input inputs[8];
  rondo_result *results[8], *one;
  rondo_state* state;
  OK(rondo_state_new(model, 1, &state));
  size_t n[8];
  for (int i = 0; i < 8; ++i) {
    n[i] = make_tones(9000 + (uint32_t)i, text[i], sound[i]);
    inputs[i] = samples_of(sound[i], n[i]);
  }
  OK(rondo_run(state, inputs, 8, results));
  double errors = 0, letters = 0;
  for (int i = 0; i < 8; ++i) {
    errors += character_errors(text[i], rondo_result_text(results[i]));
    letters += (double)strlen(text[i]);
    OK(rondo_run(state, &inputs[i], 1, &one));
    const rondo_matrix a = rondo_result_outputs(results[i]), b = rondo_result_outputs(one);
    CHECK(a.rows == b.rows && a.rows > 20 && a.columns == 6 && b.columns == 6);
    CHECK(memcmp(a.data, b.data, (size_t)(a.rows * a.columns) * sizeof(float)) == 0);
    rondo_result_free(one);
  }
  printf("%g errors in %g letters\n", errors, letters);
  CHECK(errors <= 0.1 * letters);

  // Characters and words have times in order, and the words are the text.
  size_t words, characters;
  const rondo_piece* word = rondo_result_words(results[0], &words);
  CHECK(rondo_result_characters(results[0], &characters) != NULL);
  CHECK(words > 0 && characters >= 4);
  char joined[100] = "";
  double begin, end, last = 0;
  rondo_result_times(results[0], &begin, &end);
  for (size_t i = 0; i < words; ++i) {
    CHECK(word[i].begin >= last && word[i].end > word[i].begin && word[i].end <= end);
    CHECK(word[i].probability > 0 && word[i].probability <= 1);
    last = word[i].end;
    strcat(strcat(joined, i > 0 ? " " : ""), word[i].text);
  }
  CHECK(strcmp(joined, rondo_result_text(results[0])) == 0 && begin == 0);

  // With strides, of features, at another rate.
  for (size_t i = 0; i < n[0]; ++i) spread[2 * i] = sound[0][i], spread[2 * i + 1] = 9;
  rondo_input strided = samples_of(spread, n[0]);
  strided.row_stride = 2;
  OK(rondo_run(state, &strided, 1, &one));
  CHECK(strcmp(rondo_result_text(one), rondo_result_text(results[0])) == 0);
  rondo_result_free(one);
  for (size_t i = 0; i < n[0]; ++i) spread[2 * i] = spread[2 * i + 1] = sound[0][i];
  rondo_input doubled = samples_of(spread, 2 * n[0]);
  doubled.sample_rate = 2 * tone_rate;
  OK(rondo_run(state, &doubled, 1, &one));
  CHECK(character_errors(text[0], rondo_result_text(one)) <= 2);
  rondo_result_free(one);

  OK(rondo_state_trim(state));
  OK(rondo_run(state, inputs, 1, &one));
  CHECK(strcmp(rondo_result_text(one), rondo_result_text(results[0])) == 0);
  rondo_result_free(one);
  for (int i = 0; i < 8; ++i) rondo_result_free(results[i]);

  sound[1][17] = NAN;
  FAILS(rondo_run(state, inputs, 2, results), "input 1: ");
  CHECK(results[0] == NULL && results[1] == NULL);
  rondo_input wrong = samples_of(sound[0], n[0]);
  wrong.columns = 2;
  FAILS(rondo_run(state, &wrong, 1, &one), "2 channels");
  wrong = (rondo_input){RONDO_FEATURES, 0, sound[0], 10, 19, 0, 0};
  FAILS(rondo_run(state, &wrong, 1, &one), "19 columns");
  wrong = (rondo_input){RONDO_IMAGE, 0, sound[0], 10, 10, 0, 0};
  FAILS(rondo_run(state, &wrong, 1, &one), "recordings");
  wrong.kind = (rondo_kind)7;
  FAILS(rondo_run(state, &wrong, 1, &one), "kind 7");
  FAILS(rondo_run(NULL, &wrong, 1, &one), "state is NULL");
  OK(rondo_run(state, NULL, 0, NULL));
  rondo_state* none;
  FAILS(rondo_state_new(model, -1, &none), "threads: -1");
  rondo_state_free(state);
}

// ---- Threads with small stacks share a model.

struct worker {
  const rondo_model* model;
  uint32_t seed;
  char text[most_letters * 2];
};

static void* work(void* argument) {
  struct worker* w = argument;
  char said[most_letters + 1];
  float* sound = malloc(room * sizeof *sound);
  const size_t n = make_tones(w->seed, said, sound);
  const rondo_input input = samples_of(sound, n);
  rondo_state* state;
  OK(rondo_state_new(w->model, 1, &state));
  for (int i = 0; i < 20; ++i) {
    rondo_result* r;
    OK(rondo_run(state, &input, 1, &r));
    CHECK(i == 0 || strcmp(w->text, rondo_result_text(r)) == 0);
    snprintf(w->text, sizeof w->text, "%s", rondo_result_text(r));
    rondo_result_free(r);
  }
  rondo_state_free(state);
  free(sound);
  return NULL;
}

static void share(const rondo_model* model) {
  enum { workers = 8 };
  struct worker alone[workers], together[workers];
  pthread_t thread[workers];
  pthread_attr_t small;
  CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 128 * 1024) == 0);
  for (int i = 0; i < workers; ++i) {
    alone[i] = together[i] = (struct worker){model, 9100 + (uint32_t)i, ""};
    work(&alone[i]);
  }
  for (int i = 0; i < workers; ++i)
    CHECK(pthread_create(&thread[i], &small, work, &together[i]) == 0);
  for (int i = 0; i < workers; ++i) {
    CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(strcmp(alone[i].text, together[i].text) == 0);
  }
  pthread_attr_destroy(&small);
}

// In a process made by fork() the parent's model and state go on, and training is refused.
static void after_fork(const rondo_model* model) {
  static float sound[room];
  char said[most_letters + 1];
  const size_t n = make_tones(9200, said, sound);
  const rondo_input input = samples_of(sound, n);
  rondo_state *state, *other;
  rondo_result *before, *after;
  OK(rondo_state_new(model, 2, &state));
  OK(rondo_run(state, &input, 1, &before));
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    OK(rondo_run(state, &input, 1, &after));
    CHECK(strcmp(rondo_result_text(before), rondo_result_text(after)) == 0);
    rondo_result_free(after);
    OK(rondo_state_new(model, 2, &other));
    OK(rondo_run(other, &input, 1, &after));
    CHECK(strcmp(rondo_result_text(before), rondo_result_text(after)) == 0);
    FAILS(rondo_train("", "test.toml", NULL, NULL), "training: this process was forked");
    rondo_result_free(after);
    rondo_state_free(other);
    rondo_state_free(state);
    _exit(0);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  OK(rondo_run(state, &input, 1, &after));
  CHECK(strcmp(rondo_result_text(before), rondo_result_text(after)) == 0);
  rondo_result_free(before);
  rondo_result_free(after);
  rondo_state_free(state);
  FAILS(rondo_state_new(model, -1, &state), "threads: -1, expected 1 to ");
  FAILS(rondo_state_new(model, 100000, &state), "threads: 100000, expected 1 to ");
}

// ---- Decoding and alignment

static void decode(const rondo_model* model) {
  static float sound[room];
  char said[most_letters + 1], path[700];
  const size_t n = make_tones(9300, said, sound);
  const rondo_input input = samples_of(sound, n);
  rondo_state* state;
  rondo_result *greedy, *found, *hot, *again;
  rondo_vocabulary* vocabulary;
  rondo_language_model* lm;
  rondo_decoder *plain, *decoder, *other;
  OK(rondo_state_new(model, 1, &state));
  OK(rondo_run(state, &input, 1, &greedy));
  const rondo_matrix scores = rondo_result_outputs(greedy);
  OK(rondo_vocabulary_of_model(model, &vocabulary));

  OK(rondo_decode(vocabulary, NULL, &scores, 0.01, &found));
  CHECK(strcmp(rondo_result_text(found), rondo_result_text(greedy)) == 0);
  rondo_result_free(found);

  write_file("words.arpa",
             "\\data\\\nngram 1=6\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-1 </s>\n-0.5 ab\n-1.5 cd\n"
             "-0.75 ba\n\n\\end\\\n");
  path_of(path, "words.arpa");
  OK(rondo_language_model_open(path, &lm));
  double total, each[3];
  OK(rondo_language_model_score(lm, (const char* const[]){"ab", "cd"}, 2, 1, &total, each));
  CHECK(fabs(total + 3) < 1e-6 && fabs(each[0] + 0.5) < 1e-6 && fabs(each[2] + 1) < 1e-6);

  rondo_decoder_options o;
  rondo_decoder_options_init(&o, sizeof o);
  CHECK(o.beam == 100 && o.nbest == 1 && o.lm_weight == 0.5);
  o.nbest = 3;
  OK(rondo_decoder_new(vocabulary, &o, &plain));
  OK(rondo_decode(vocabulary, plain, &scores, 0.01, &found));
  CHECK(rondo_result_alternatives(found) == 3);
  CHECK(rondo_result_score(rondo_result_alternative(found, 0)) >=
        rondo_result_score(rondo_result_alternative(found, 1)));
  CHECK(rondo_result_alternative(found, 3) == NULL);

  // A heavy hot word comes, and what the state decodes is what rondo_decode() does.
  const rondo_hot_word heavy = {"dada", 200};
  OK(rondo_decoder_with_hot_words(plain, &heavy, 1, &decoder));
  OK(rondo_decode(vocabulary, decoder, &scores, 0.01, &hot));
  CHECK(strstr(rondo_result_text(hot), "dada") != NULL);
  OK(rondo_state_set_decoder(state, decoder));
  rondo_decoder_free(decoder);
  OK(rondo_run(state, &input, 1, &again));
  CHECK(strcmp(rondo_result_text(again), rondo_result_text(hot)) == 0);
  rondo_result_free(again);
  OK(rondo_state_set_decoder(state, NULL));
  OK(rondo_run(state, &input, 1, &again));
  CHECK(strcmp(rondo_result_text(again), rondo_result_text(greedy)) == 0);

  // Texts of given words alone, with the language model, which may go.
  o.words = (const char* const[]){"ab", "cd", "ba"};
  o.word_count = 3;
  o.language_model = lm;
  OK(rondo_decoder_new(vocabulary, &o, &other));
  rondo_language_model_free(lm);
  rondo_result_free(hot);
  OK(rondo_decode(vocabulary, other, &scores, 0.01, &hot));
  size_t words;
  const rondo_piece* word = rondo_result_words(hot, &words);
  for (size_t i = 0; i < words; ++i)
    CHECK(!strcmp(word[i].text, "ab") || !strcmp(word[i].text, "cd") ||
          !strcmp(word[i].text, "ba"));

  rondo_result* aligned;
  OK(rondo_align(vocabulary, &scores, 0.01, rondo_result_text(greedy), NULL, &aligned));
  CHECK(strcmp(rondo_result_text(aligned), rondo_result_text(greedy)) == 0);
  CHECK(rondo_result_score(aligned) > -1 && rondo_result_score(aligned) <= 0);
  rondo_result_free(aligned);
  OK(rondo_align(vocabulary, &scores, 0.01, "dcdcdcdc", NULL, &aligned));
  CHECK(rondo_result_score(aligned) < -1);
  FAILS(rondo_align(vocabulary, &scores, 0.01, "x", NULL, &found), "x");

  rondo_vocabulary* small;
  OK(rondo_vocabulary_new((const char* const[]){"<blank>", "a", "b"}, 3, RONDO_FIND_BLANK, NULL,
                          &small));
  FAILS(rondo_decode(small, NULL, &scores, 0.01, &again), "6 classes, expected the 3");
  const float three[] = {0, 5, 0, 5, 0, 0, 0, 0, 5}, none[] = {0, NAN, 0};
  const rondo_matrix spoken = {three, 3, 3, 0, 0}, wrong = {none, 1, 3, 0, 0};
  FAILS(rondo_decode(small, plain, &spoken, 0.01, &again), "a decoder of 6 classes");
  FAILS(rondo_decode(small, NULL, &wrong, 0.01, &again), "frame 0 holds NaN");
  FAILS(rondo_decode(small, NULL, &spoken, 0, &again), "frame_seconds 0");
  OK(rondo_decode(small, NULL, &spoken, 0.5, &again));
  CHECK(strcmp(rondo_result_text(again), "ab") == 0);
  rondo_vocabulary* blankless;
  OK(rondo_vocabulary_new((const char* const[]){"a", "b"}, 2, RONDO_FIRST_BLANK, NULL, &blankless));
  rondo_result* same;
  OK(rondo_decode(blankless, NULL, &spoken, 0.5, &same));
  CHECK(strcmp(rondo_result_text(same), "ab") == 0);
  rondo_result_free(same);
  rondo_vocabulary_free(blankless);
  const rondo_piece* letters = rondo_result_characters(again, &words);
  CHECK(words == 2 && letters[1].begin == 1 && letters[1].end == 1.5);
  o.beam = 0;
  decoder = plain;
  FAILS(rondo_decoder_new(vocabulary, &o, &decoder), "a beam of 0");
  CHECK(decoder == NULL);

  // Of a program with more settings than this library knows.
  struct {
    rondo_decoder_options known;
    double unknown;
  } newer;
  rondo_decoder_options_init(&newer.known, sizeof newer);
  CHECK(newer.unknown == 0 && newer.known.beam == 100);
  OK(rondo_decoder_new(vocabulary, &newer.known, &decoder));
  rondo_decoder_free(decoder);
  newer.unknown = 1;
  FAILS(rondo_decoder_new(vocabulary, &newer.known, &decoder), "does not know");

  rondo_result_free(again);
  rondo_result_free(hot);
  rondo_result_free(aligned);
  rondo_result_free(greedy);
  rondo_decoder_free(plain);
  rondo_decoder_free(other);
  rondo_vocabulary_free(small);
  rondo_vocabulary_free(vocabulary);
  rondo_state_free(state);
}

// ---- CTC loss

static void ctc(void) {
  // Three frames, two sequences, uniform over three classes: "a" has six alignments of 27 in three
  // frames, "ab" one of nine in two.
  float logits[3 * 2 * 3] = {0}, gradient[3 * 2 * 3];
  const int32_t labels[] = {1, 1, 2}, label_lengths[] = {1, 2}, lengths[] = {3, 2};
  double loss[2], mean;
  rondo_ctc b;
  rondo_ctc_init(&b, sizeof b);
  b.threads = 1;
  b.frames = 3, b.sequences = 2, b.classes = 3;
  b.logits = logits;
  b.lengths = lengths;
  b.labels = labels;
  b.label_lengths = label_lengths;
  b.gradient = gradient;
  OK(rondo_ctc_loss(&b, loss));
  CHECK(fabs(loss[0] - log(27.0 / 6)) < 1e-6 && fabs(loss[1] - log(9.0)) < 1e-6);
  for (int c = 0; c < 3; ++c) CHECK(gradient[2 * 6 + 3 + c] == 0);  // padding
  b.reduction = RONDO_MEAN;
  OK(rondo_ctc_loss(&b, &mean));
  CHECK(fabs(mean - (log(27.0 / 6) + log(9.0) / 2) / 2) < 1e-6);

  // The gradient by differences, in double, with [sequence][class][frame] in memory.
  double moved[2 * 3 * 3], slope[2 * 3 * 3], up, down;
  for (int i = 0; i < 18; ++i) moved[i] = sin(7.0 * i);
  b.dtype = RONDO_F64;
  b.logits = moved;
  b.gradient = slope;
  const int64_t strides[] = {1, 9, 3};
  memcpy(b.strides, strides, sizeof strides);
  memcpy(b.gradient_strides, strides, sizeof strides);
  OK(rondo_ctc_loss(&b, &mean));
  b.gradient = NULL;
  for (int i = 0; i < 18; ++i) {
    const double old = moved[i], h = 1e-5;
    moved[i] = old + h;
    OK(rondo_ctc_loss(&b, &up));
    moved[i] = old - h;
    OK(rondo_ctc_loss(&b, &down));
    moved[i] = old;
    CHECK(fabs((up - down) / (2 * h) - slope[i]) < 1e-8);
  }

  const int32_t wrong[] = {1, 0, 2}, many[] = {1, 4};
  b.labels = wrong;
  FAILS(rondo_ctc_loss(&b, loss), "sequence 1");
  b.labels = labels;
  b.label_lengths = many;
  const int32_t five[] = {1, 1, 2, 1, 2};
  b.labels = five;
  b.reduction = RONDO_NONE;
  OK(rondo_ctc_loss(&b, loss));
  CHECK(isinf(loss[1]) && isfinite(loss[0]));
  b.zero_infinity = 1;
  OK(rondo_ctc_loss(&b, loss));
  CHECK(loss[1] == 0);
  b.blank = 3;
  FAILS(rondo_ctc_loss(&b, loss), "blank 3");
  b.blank = 0;
  b.classes = 0;
  FAILS(rondo_ctc_loss(&b, loss), "classes 0");
}

struct told {
  int calls;
  double last, whole, stop_at;
};
static int on_progress(void* user, double done, double whole) {
  struct told* t = user;
  CHECK(done >= t->last && done <= whole);
  t->calls++;
  t->last = done;
  t->whole = whole;
  return t->stop_at > 0 && done >= t->stop_at;
}

// Of a recording of more than a minute, and of a short one beside it.
static void progress(const rondo_model* model) {
  enum { most = 70 * tone_rate + room };
  static float sound[most], small[room];
  char text[most_letters + 1];
  size_t n = 0;
  for (uint32_t i = 0; n < 70 * tone_rate; ++i) n += make_tones(7000 + i, text, sound + n);
  const rondo_input inputs[2] = {samples_of(sound, n),
                                 samples_of(small, make_tones(9000, text, small))};
  rondo_state* state;
  rondo_result *plain[2], *found[2];
  OK(rondo_state_new(model, 1, &state));
  OK(rondo_run(state, inputs, 2, plain));
  struct told told = {0};
  OK(rondo_state_set_progress(state, on_progress, &told));
  OK(rondo_run(state, inputs, 2, found));
  CHECK(told.calls > 2 && told.last > 30 && told.last < 75);
  CHECK(fabs(told.whole - (double)(inputs[0].rows + inputs[1].rows) / tone_rate) < 1e-9);
  for (int i = 0; i < 2; ++i) {
    CHECK(strcmp(rondo_result_text(plain[i]), rondo_result_text(found[i])) == 0);
    rondo_result_free(found[i]);
  }
  told = (struct told){.stop_at = 20};
  CHECK(rondo_run(state, inputs, 2, found) == RONDO_STOPPED && !found[0] && !found[1]);
  CHECK(told.last >= 20 && told.last < 75);
  OK(rondo_state_set_progress(state, NULL, NULL));
  OK(rondo_run(state, inputs, 1, found));
  CHECK(strcmp(rondo_result_text(plain[0]), rondo_result_text(found[0])) == 0);
  FAILS(rondo_state_set_progress(NULL, on_progress, NULL), "state is NULL");
  rondo_result_free(found[0]);
  for (int i = 0; i < 2; ++i) rondo_result_free(plain[i]);
  rondo_state_free(state);
}

int main(int argc, char** argv) {
  CHECK(argc == 2 && strlen(argv[1]) < sizeof folder);
  strcpy(folder, argv[1]);
  if (getenv("LOCPATH")) CHECK(setlocale(LC_ALL, "") && localeconv()->decimal_point[0] == ',');
  printf("rondo %s\n", rondo_version());
  ctc();
  write_corpus("train.jsonl", 150, 1);
  write_corpus("dev.jsonl", 20, 5000);
  train();
  rondo_model* model = open_model();
  transcribe(model);
  progress(model);
  share(model);
  after_fork(model);
  decode(model);
  rondo_model_free(model);
  rondo_model_free(NULL);
  puts("all of it works");
  return 0;
}
