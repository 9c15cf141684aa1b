/* The C interface of librondo_ctc.a: connectionist temporal classification, loss and gradient.
 *
 * Names, types and the meaning of every argument are those of warp-ctc's interface, version 2, so
 * that programs written for it can be relinked. What is not stated there is stated here.
 *
 * Batches are padded: element (t, n, v) of activations and gradients is at
 * [(t * minibatch + n) * alphabet_size + v], t below the largest input length. Activations are
 * taken before softmax; gradients are with respect to them, and 0 in frames past a sequence's
 * length.
 *
 * Costs that are not ordinary numbers, as in warp-ctc where nothing else is said:
 *   labels that do not fit into the frames    cost 0, gradient 0: the sequence does not count
 *   labels of probability 0: a class that     cost +infinity, gradient 0 (there: the softmax);
 *     every alignment needs has activation    who sums costs looks for isinf()
 *     -infinity
 *   the same by finite activations: the cost  cost +infinity, gradient that of the finite cost
 *     per frame is above 103.98 (double:      (there: the softmax)
 *     745.14), what a softmax can be
 *   NaN in a sequence's activations           its cost and gradient are NaN, and no other's
 *
 * Labels must lie in [0, alphabet_size) and must not be the blank: CTC_STATUS_INVALID_VALUE, and
 * nothing is written. warp-ctc does not look: it reads beyond the activations for the former, and
 * for the latter takes the cost of alignments that pass through one more blank there, which no
 * text has. There is no limit on the length of labels.
 *
 * Memory: activations, gradients and workspace are host memory with CTC_CPU, device memory of the
 * current device with CTC_GPU. Labels, lengths and costs are always host memory. The caller owns
 * all of it; gradients and activations must not overlap. Functions return when everything is done
 * (CTC_GPU: the stream has been waited for).
 *
 * Threads: every function may be called from several threads at once, with memory of their own and,
 * for CTC_GPU, streams of their own. Results do not depend on the number of threads.
 *
 * CTC_GPU needs a library that was built with CUDA and a GPU; otherwise it is
 * CTC_STATUS_EXECUTION_FAILED. With CTC_GPU, the functions for double compute on the host.
 *
 * Links with the C++ runtime and, if built with CUDA, with CUDA's. No function throws.
 */
#ifndef RONDO_WARP_CTC_H_
#define RONDO_WARP_CTC_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaStream_t, without CUDA's headers. */
typedef struct CUstream_st* CUstream;

typedef enum {
  CTC_STATUS_SUCCESS = 0,
  CTC_STATUS_MEMOPS_FAILED = 1,
  CTC_STATUS_INVALID_VALUE = 2,
  CTC_STATUS_EXECUTION_FAILED = 3,
  CTC_STATUS_UNKNOWN_ERROR = 4
} ctcStatus_t;

typedef enum { CTC_CPU = 0, CTC_GPU = 1 } ctcComputeLocation;

/* Clear it (memset, or ctcOptions options{} in C++) before setting members. */
typedef struct ctcOptions {
  ctcComputeLocation loc;
  union {
    unsigned int num_threads; /* CTC_CPU: at most so many threads; 0: as many as there are CPUs */
    CUstream stream;          /* CTC_GPU: where kernels run */
  };
  int blank_label;
} ctcOptions;

/* 2, the version of the interface. */
int get_warpctc_version(void);

/* A few words, in memory that is never freed. */
const char* ctcGetStatusString(ctcStatus_t status);

/* costs[n]: the loss of sequence n. gradients may be NULL. The workspace has the size given by
 * get_workspace_size() for the same lengths and options, any alignment, and is scratch. */
ctcStatus_t compute_ctc_loss(const float* activations, float* gradients, const int* flat_labels,
                             const int* label_lengths, const int* input_lengths, int alphabet_size,
                             int minibatch, float* costs, void* workspace, ctcOptions options);

ctcStatus_t compute_ctc_loss_double(const double* activations, double* gradients,
                                    const int* flat_labels, const int* label_lengths,
                                    const int* input_lengths, int alphabet_size, int minibatch,
                                    double* costs, void* workspace, ctcOptions options);

/* Bytes of workspace, at *size_bytes. */
ctcStatus_t get_workspace_size(const int* label_lengths, const int* input_lengths,
                               int alphabet_size, int minibatch, ctcOptions options,
                               size_t* size_bytes);

ctcStatus_t get_workspace_size_double(const int* label_lengths, const int* input_lengths,
                                      int alphabet_size, int minibatch, ctcOptions options,
                                      size_t* size_bytes);

#ifdef __cplusplus
}
#endif

#endif
