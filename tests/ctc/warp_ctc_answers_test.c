/* What warp-ctc's own tests of its CPU code ask for (tests/test_cpu.cpp there: small_test,
 * options_test, inf_test and the comparison of gradients with differences of costs), asked of
 * librondo_ctc. The numbers are that project's; those of options_test it had from TensorFlow. */
#include <ctc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                    \
    }                                                                \
  } while (0)

struct Batch {
  int classes, sequences, blank;
  const int *labels, *label_lengths, *input_lengths;
};

static void run(const struct Batch* b, const float* x, float* grad, float* costs) {
  ctcOptions options;
  memset(&options, 0, sizeof options);
  options.loc = CTC_CPU;
  options.num_threads = 1;
  options.blank_label = b->blank;
  size_t bytes = 0;
  CHECK(get_workspace_size(b->label_lengths, b->input_lengths, b->classes, b->sequences, options,
                           &bytes) == CTC_STATUS_SUCCESS);
  void* workspace = malloc(bytes);
  CHECK(compute_ctc_loss(x, grad, b->labels, b->label_lengths, b->input_lengths, b->classes,
                         b->sequences, costs, workspace, options) == CTC_STATUS_SUCCESS);
  free(workspace);
}

/* In [0, 1): the same numbers everywhere. */
static unsigned state = 1;
static float uniform(void) {
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (1 << 24);
}

static void draw_labels(int* labels, int count, int classes) {
  for (int i = 0; i < count; ++i) labels[i] = 1 + (int)(uniform() * (float)(classes - 1));
  if (count < 3) return;
  labels[count / 2] = labels[count / 2 + 1]; /* three alike */
  labels[count / 2 - 1] = labels[count / 2];
}

static void small(void) {
  const float x[2 * 5] = {0.1f, 0.6f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.6f, 0.1f, 0.1f};
  const int labels[] = {1, 2}, two = 2;
  const struct Batch b = {5, 1, 0, labels, &two, &two};
  float cost = -1;
  run(&b, x, NULL, &cost);
  /* One path of one alignment: both labels, each at its frame's likeliest class. */
  const double probability = exp(0.6) / (exp(0.6) + 4 * exp(0.1));
  CHECK(fabs(exp(-cost) - probability * probability) < 1e-6);
}

static void options(void) {
  enum { classes = 6, elements = 5 * 2 * classes };
  /* By frame, then sequence. */
  static const float p[elements] = {
      0.633766f,  0.221185f, 0.0917319f, 0.0129757f,  0.0142857f,  0.0260553f,  /* 0, 0 */
      0.30176f,   0.28562f,  0.0831517f, 0.0862751f,  0.0816851f,  0.161508f,   /* 0, 1 */
      0.111121f,  0.588392f, 0.278779f,  0.0055756f,  0.00569609f, 0.010436f,   /* 1, 0 */
      0.24082f,   0.397533f, 0.0557226f, 0.0546814f,  0.0557528f,  0.19549f,    /* 1, 1 */
      0.0357786f, 0.633813f, 0.321418f,  0.00249248f, 0.00272882f, 0.0037688f,  /* 2, 0 */
      0.230246f,  0.450868f, 0.0389607f, 0.038309f,   0.0391602f,  0.202456f,   /* 2, 1 */
      0.0663296f, 0.643849f, 0.280111f,  0.00283995f, 0.0035545f,  0.00331533f, /* 3, 0 */
      0.280884f,  0.429522f, 0.0326593f, 0.0339046f,  0.0326856f,  0.190345f,   /* 3, 1 */
      0.458235f,  0.396634f, 0.123377f,  0.00648837f, 0.00903441f, 0.00623107f, /* 4, 0 */
      0.423286f,  0.315517f, 0.0338439f, 0.0393744f,  0.0339315f,  0.154046f};  /* 4, 1 */
  /* The gradient is p, less what the only path of each sequence takes of its frame's class. */
  static const int path[5][2] = {{0, 0}, {1, 1}, {2, 5}, {1, 1}, {0, 0}};
  static const float at_path[5][2] = {{-0.366234f, -0.69824f},
                                      {-0.411608f, -0.602467f},
                                      {-0.678582f, -0.797544f},
                                      {-0.356151f, -0.570478f},
                                      {-0.541765f, -0.576714f}};
  const int labels[] = {0, 1, 2, 1, 0, 0, 1, 1, 0}, label_lengths[] = {5, 4};
  const int input_lengths[] = {5, 5};
  const struct Batch b = {classes, 2, 5, labels, label_lengths, input_lengths};
  float x[elements], grad[elements], costs[2];
  for (int i = 0; i < elements; ++i) x[i] = logf(p[i]);
  run(&b, x, grad, costs);
  for (int i = 0; i < elements; ++i) {
    const int class = i % classes, n = i / classes % 2, t = i / classes / 2;
    const float expected = class == path[t][n] ? at_path[t][n] : p[i];
    CHECK(fabs(grad[i] - expected) < 1e-4);
  }
  CHECK(fabs(costs[0] + log(0.633766 * 0.588392 * 0.321418 * 0.643849 * 0.458235)) < 1e-4);
  CHECK(fabs(costs[1] - 5.42262) < 1e-4);
}

/* A label that has probability zero at every frame, and with it all alignments. */
static void infinite(float logit) {
  enum { classes = 15, frames = 50, count = 10 };
  int labels[count];
  const int length = count, input_length = frames;
  draw_labels(labels, count, classes);
  labels[0] = 2;
  float x[frames * classes], grad[frames * classes], cost = 0, alone = 0;
  for (int i = 0; i < frames * classes; ++i) {
    x[i] = i % classes == 2 ? logit : uniform();
    grad[i] = NAN;
  }
  const struct Batch b = {classes, 1, 0, labels, &length, &input_length};
  run(&b, x, grad, &cost);
  run(&b, x, NULL, &alone);
  CHECK(isinf(cost) && cost > 0);
  CHECK(isinf(alone) && alone > 0);
  for (int i = 0; i < frames * classes; ++i) CHECK(isinf(logit) ? grad[i] == 0 : isfinite(grad[i]));
}

/* What is unlikely and no more keeps its cost, where warp-ctc's softmax is 0 already. */
static void unlikely(void) {
  float x[50 * 3] = {0}, cost = 0;
  const int label = 2, one = 1, frames = 50;
  for (int t = 0; t < 50; ++t) x[t * 3 + 2] = -1000;
  const struct Batch b = {3, 1, 0, &label, &one, &frames};
  run(&b, x, NULL, &cost);
  CHECK(cost > 1000 && cost < 1100);
}

/* Too few frames cost 0, beside a sequence of probability zero, which costs infinity. */
static void too_few_frames(void) {
  enum { classes = 4, frames = 3, sequences = 3 };
  const int labels[] = {1, 1, 2, 3, 1, 2}, label_lengths[] = {3, 1, 2};
  const int input_lengths[] = {3, 3, 3};
  float x[frames * sequences * classes] = {0}, grad[frames * sequences * classes], costs[3];
  for (int t = 0; t < frames; ++t) x[(t * sequences + 1) * classes + 3] = -INFINITY;
  const struct Batch b = {classes, sequences, 0, labels, label_lengths, input_lengths};
  run(&b, x, grad, costs);
  CHECK(costs[0] == 0);
  CHECK(isinf(costs[1]) && costs[1] > 0);
  CHECK(costs[2] > 0 && costs[2] < 10);
}

static double total(const struct Batch* b, const float* x) {
  float costs[65];
  double sum = 0;
  run(b, x, NULL, costs);
  for (int n = 0; n < b->sequences; ++n) sum += costs[n];
  return sum;
}

/* The gradient beside differences of costs, of batches of that project's sizes; its measure. */
static void gradients(int classes, int frames, int count, int sequences, double most) {
  const int elements = frames * sequences * classes;
  float *const x = malloc((size_t)elements * sizeof *x), *const grad =
                                                             malloc((size_t)elements * sizeof *x);
  int labels[15 * 65], label_lengths[65], input_lengths[65];
  for (int n = 0; n < sequences; ++n) {
    draw_labels(labels + n * count, count, classes);
    label_lengths[n] = count;
    input_lengths[n] = frames;
  }
  for (int i = 0; i < elements; ++i) x[i] = uniform();
  const struct Batch b = {classes, sequences, 0, labels, label_lengths, input_lengths};
  float costs[65];
  run(&b, x, grad, costs);
  double difference = 0, norm = 0;
  for (int i = 0; i < elements; ++i) {
    const float step = 1e-2f, was = x[i];
    x[i] = was + step;
    const double above = total(&b, x);
    x[i] = was - step;
    const double below = total(&b, x);
    x[i] = was;
    const double d = grad[i] - (above - below) / (2 * (double)step);
    difference += d * d;
    norm += grad[i] * (double)grad[i];
  }
  CHECK(norm > 0 && difference / norm < most);
  free(x);
  free(grad);
}

/* Unlike there: a blank among the labels is refused, and nothing is written. */
static void blank_among_labels(void) {
  const float x[3 * 3] = {0};
  const int labels[] = {1, 0}, two = 2, three = 3;
  ctcOptions options;
  memset(&options, 0, sizeof options);
  static char workspace[1 << 16];
  float cost = -7;
  CHECK(compute_ctc_loss(x, NULL, labels, &two, &three, 3, 1, &cost, workspace, options) ==
        CTC_STATUS_INVALID_VALUE);
  CHECK(cost == -7);
}

int main(void) {
  small();
  options();
  infinite(-1e30f);
  infinite(-INFINITY);
  unlikely();
  too_few_frames();
  gradients(20, 50, 15, 1, 1e-5);
  gradients(5, 10, 5, 65, 1e-4);
  blank_among_labels();
  printf("%d failures\n", failures);
  return failures != 0;
}
