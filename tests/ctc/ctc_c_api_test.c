/* warp-ctc's interface from C, linked with librondo_ctc.a and the C++ runtime alone. */
#include <ctc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures = 0;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                    \
    }                                                                \
  } while (0)

enum { frames = 14, batch = 4, classes = 6, elements = frames * batch * classes };

/* Shortest first, as packed batches never are; the third does not fit into its frames. */
static const int input_lengths[batch] = {5, 14, 3, 9};
static const int label_lengths[batch] = {2, 5, 3, 0};
static const int labels[] = {1, 1, 0, 4, 4, 2, 3, 2, 2, 1};

static ctcOptions options_of(unsigned threads) {
  ctcOptions options;
  memset(&options, 0, sizeof options);
  options.loc = CTC_CPU;
  options.num_threads = threads;
  options.blank_label = classes - 1;
  return options;
}

/* The same numbers everywhere: a linear congruential generator. */
static void fill(double* x, unsigned seed) {
  for (int i = 0; i < elements; ++i) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (double)(seed >> 8) / (1 << 24) * 6 - 3;
  }
}

static void run_double(const double* x, double* grad, double* costs) {
  const ctcOptions options = options_of(2);
  size_t bytes = 0;
  CHECK(get_workspace_size_double(label_lengths, input_lengths, classes, batch, options, &bytes) ==
        CTC_STATUS_SUCCESS);
  char* workspace = malloc(bytes + 1);
  CHECK(compute_ctc_loss_double(x, grad, labels, label_lengths, input_lengths, classes, batch,
                                costs, workspace + 1, options) == CTC_STATUS_SUCCESS);
  free(workspace);
}

static void run_float(const float* x, float* grad, float* costs, unsigned threads) {
  const ctcOptions options = options_of(threads);
  size_t bytes = 0;
  CHECK(get_workspace_size(label_lengths, input_lengths, classes, batch, options, &bytes) ==
        CTC_STATUS_SUCCESS);
  char* workspace = malloc(bytes);
  CHECK(compute_ctc_loss(x, grad, labels, label_lengths, input_lengths, classes, batch, costs,
                         workspace, options) == CTC_STATUS_SUCCESS);
  free(workspace);
}

static void known_value(void) {
  /* Three of nine equally likely paths spell the label. */
  const float x[2 * 3] = {0};
  const int one = 1, label = 2, two = 2;
  ctcOptions options = options_of(1);
  options.blank_label = 0;
  size_t bytes = 0;
  CHECK(get_workspace_size(&one, &two, 3, 1, options, &bytes) == CTC_STATUS_SUCCESS);
  void* workspace = malloc(bytes);
  float cost = -1;
  CHECK(compute_ctc_loss(x, NULL, &label, &one, &two, 3, 1, &cost, workspace, options) ==
        CTC_STATUS_SUCCESS);
  CHECK(fabs(cost - log(3.0)) < 1e-6);
  free(workspace);
}

static void gradients(void) {
  static double x[elements], grad[elements];
  double costs[batch], above[batch], below[batch];
  fill(x, 1);
  for (int i = 0; i < elements; ++i) grad[i] = NAN;
  run_double(x, grad, costs);
  CHECK(costs[2] == 0);
  for (int n = 0; n < batch; ++n) CHECK(n == 2 || (costs[n] > 0 && costs[n] < 100));
  for (int i = 0; i < elements; ++i) {
    const int n = i / classes % batch, t = i / classes / batch;
    const double step = 1e-5, was = x[i];
    if (n == 2 || t >= input_lengths[n]) {
      CHECK(grad[i] == 0);
      continue;
    }
    x[i] = was + step;
    run_double(x, NULL, above);
    x[i] = was - step;
    run_double(x, NULL, below);
    x[i] = was;
    CHECK(fabs((above[n] - below[n]) / (2 * step) - grad[i]) < 1e-8);
  }
  /* In float. */
  static float xf[elements], gradf[elements];
  float costsf[batch], alone[batch];
  for (int i = 0; i < elements; ++i) xf[i] = (float)x[i];
  run_float(xf, gradf, costsf, 0);
  run_float(xf, NULL, alone, 1);
  for (int n = 0; n < batch; ++n) CHECK(fabs(costsf[n] - costs[n]) < 1e-4);
  for (int n = 0; n < batch; ++n) CHECK(fabs(costsf[n] - alone[n]) < 1e-4);
  for (int i = 0; i < elements; ++i) CHECK(fabs(gradf[i] - grad[i]) < 1e-5);
}

/* What 32 bits count by one too few, and memory whose bytes 64 bits do not count. */
static void sizes(ctcComputeLocation where) {
  ctcOptions options = options_of(1);
  const int one = 1, frames = (1 << 30) - 1, count = (1 << 27) - 1, two[2] = {frames, frames};
  const int more_frames = frames + 1, most = 0x7fffffff, more_labels = count + 1;
  size_t bytes = 0;
  options.loc = where;
  CHECK(get_workspace_size(&one, &frames, 3, 1, options, &bytes) == CTC_STATUS_SUCCESS);
  CHECK(bytes > (size_t)frames * 4);
  CHECK(get_workspace_size(&count, &one, 3, 1, options, &bytes) == CTC_STATUS_SUCCESS);
  CHECK(bytes > (size_t)count * 8);
  CHECK(get_workspace_size(&one, &more_frames, 3, 1, options, &bytes) == CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(&one, &most, 3, 1, options, &bytes) == CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(&more_labels, &one, 3, 1, options, &bytes) == CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(&most, &one, 3, 1, options, &bytes) == CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(&one, &one, most, 1, options, &bytes) == CTC_STATUS_INVALID_VALUE);
  /* 2^30 frames of two sequences with 2^27 labels; of 2^30 classes. */
  const int labels_of_two[2] = {1, count};
  CHECK(get_workspace_size(labels_of_two, two, 3, 2, options, &bytes) == CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(&one, &frames, frames, 1, options, &bytes) == CTC_STATUS_INVALID_VALUE);
}

static void invalid(void) {
  static float x[elements], grad[elements];
  static char workspace[1 << 20];
  float costs[batch];
  ctcOptions options = options_of(1);
  size_t bytes;
  const int bad_labels[] = {1, 1, 0, 4, 4, 2, 3, 2, 2, classes};
  const int negative[batch] = {5, -1, 3, 9};
  CHECK(compute_ctc_loss(NULL, grad, labels, label_lengths, input_lengths, classes, batch, costs,
                         workspace, options) == CTC_STATUS_INVALID_VALUE);
  CHECK(compute_ctc_loss(x, grad, labels, label_lengths, input_lengths, classes, batch, costs, NULL,
                         options) == CTC_STATUS_INVALID_VALUE);
  CHECK(compute_ctc_loss(x, grad, bad_labels, label_lengths, input_lengths, classes, batch, costs,
                         workspace, options) == CTC_STATUS_INVALID_VALUE);
  CHECK(compute_ctc_loss(x, grad, labels, label_lengths, negative, classes, batch, costs, workspace,
                         options) == CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(label_lengths, negative, classes, batch, options, &bytes) ==
        CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(label_lengths, input_lengths, 0, batch, options, &bytes) ==
        CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(label_lengths, input_lengths, classes, batch, options, NULL) ==
        CTC_STATUS_INVALID_VALUE);
  /* More than 2^31 rows, or labels. */
  const int most = 0x7fffffff, huge[batch] = {most, most, most, most};
  CHECK(get_workspace_size(label_lengths, huge, classes, batch, options, &bytes) ==
        CTC_STATUS_INVALID_VALUE);
  CHECK(get_workspace_size(huge, input_lengths, classes, batch, options, &bytes) ==
        CTC_STATUS_INVALID_VALUE);
  CHECK(compute_ctc_loss(x, grad, labels, label_lengths, huge, classes, batch, costs, workspace,
                         options) == CTC_STATUS_INVALID_VALUE);
  sizes(CTC_CPU);
  sizes(CTC_GPU);
  /* Without a GPU, or built without CUDA. */
  options.loc = CTC_GPU;
  if (access("/dev/nvidiactl", F_OK) != 0) {
    CHECK(compute_ctc_loss(x, grad, labels, label_lengths, input_lengths, classes, batch, costs,
                           workspace, options) == CTC_STATUS_EXECUTION_FAILED);
  }
  options.loc = CTC_CPU;
  options.blank_label = classes;
  CHECK(compute_ctc_loss(x, grad, labels, label_lengths, input_lengths, classes, batch, costs,
                         workspace, options) == CTC_STATUS_INVALID_VALUE);
}

struct Job {
  unsigned seed;
  float grad[elements], costs[batch];
};

static void* work(void* argument) {
  struct Job* job = argument;
  static const int rounds = 40;
  double x[elements];
  float xf[elements];
  fill(x, job->seed);
  for (int i = 0; i < elements; ++i) xf[i] = (float)x[i];
  for (int i = 0; i < rounds; ++i) run_float(xf, job->grad, job->costs, 2);
  return NULL;
}

static void threads(void) {
  static struct Job together[2], apart[2];
  pthread_t thread[2];
  for (unsigned i = 0; i < 2; ++i) together[i].seed = apart[i].seed = 10 + i;
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&thread[i], NULL, work, &together[i]) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(thread[i], NULL) == 0);
  for (int i = 0; i < 2; ++i) {
    work(&apart[i]);
    CHECK(memcmp(together[i].grad, apart[i].grad, sizeof apart[i].grad) == 0);
    CHECK(memcmp(together[i].costs, apart[i].costs, sizeof apart[i].costs) == 0);
  }
}

int main(void) {
  CHECK(get_warpctc_version() == 2);
  CHECK(strcmp(ctcGetStatusString(CTC_STATUS_SUCCESS), "no error") == 0);
  CHECK(strcmp(ctcGetStatusString((ctcStatus_t)77), "unknown error") == 0);
  known_value();
  gradients();
  invalid();
  threads();
  printf("%d failures\n", failures);
  return failures != 0;
}
