// rondo in plain C: recognition, streams, decoding, alignment, language models, CTC loss, training.
//
//   rondo_model *model = NULL;
//   rondo_state *state = NULL;
//   rondo_result *result = NULL;
//   rondo_input input = {RONDO_SAMPLES, 16000, samples, count, 1, 0, 0};
//   if (rondo_model_open("model.safetensors", NULL, &model) != RONDO_OK ||
//       rondo_state_new(model, 1, &state) != RONDO_OK ||
//       rondo_run(state, &input, 1, &result) != RONDO_OK)
//     fprintf(stderr, "%s\n", rondo_message());
//   else
//     puts(rondo_result_text(result));
//
// What holds for all of it:
//
// Errors. A function that may fail returns a rondo_status. Where that is not RONDO_OK,
//   rondo_message() has a sentence that names the file or argument, its value and what was
//   expected, and what the function was to make is left as NULL. No C++ exception comes out.
// Ownership. What ..._new(), ..._open() and the like make is the caller's, to be freed by the
//   ..._free() of its kind, which takes NULL, too. A model, vocabulary, language model or decoder
//   may be freed while others still use it: they hold what they need. A stream must be freed
//   before its state. What an accessor returns belongs to its object. Arguments are not needed
//   when a call has returned.
// Threads. Models, vocabularies, language models and decoders never change, so any number of
//   threads may use one at once. A state, a stream or a result is used by one thread at a time.
//   A stack of 128 KiB is enough.
// Text is UTF-8 that ends with a zero byte.
// Options. ..._options_init() fills in the defaults; its `size` is sizeof of the structure, by
//   which a program and a newer library agree. NULL in place of options means the defaults.
// The process. The library writes nothing to the terminal and installs no signal handlers. After
//   fork() the child may use all that was made before, if no other thread was within a call; only
//   training is refused there.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RONDO_API __attribute__((visibility("default")))

typedef enum rondo_status {
  RONDO_OK = 0,
  RONDO_INVALID = 1,    // what came from outside is wrong: a file, data, an argument
  RONDO_NO_MEMORY = 2,  // of the host or of a device
  RONDO_FAILED = 3,     // anything else
  RONDO_STOPPED = 4     // because a function of the caller's said so
} rondo_status;

// Of the last call in this thread that failed.
RONDO_API const char* rondo_message(void);
RONDO_API const char* rondo_version(void);

typedef struct rondo_model rondo_model;
typedef struct rondo_state rondo_state;
typedef struct rondo_stream rondo_stream;
typedef struct rondo_result rondo_result;
typedef struct rondo_vocabulary rondo_vocabulary;
typedef struct rondo_language_model rondo_language_model;
typedef struct rondo_decoder rondo_decoder;

// Numbers in rows: features [frames, columns], or scores of a CTC model [frames, classes]. Strides
// are elements from a row to the next and from a column to the next; 0 means without gaps.
typedef struct rondo_matrix {
  const float* data;
  int64_t rows, columns;
  int64_t row_stride, column_stride;
} rondo_matrix;

// ---- Models: what rondo train has made.

typedef enum rondo_task { RONDO_CTC = 0, RONDO_CLASSIFY = 1, RONDO_REGRESS = 2 } rondo_task;
typedef enum rondo_kind {
  RONDO_FEATURES = 0,  // f32 [frames, columns]
  RONDO_SAMPLES = 1,   // f32 [samples, 1] of one channel, full scale [-1, 1]
  RONDO_IMAGE = 2      // u8 [height, width] of one line, rows from the top; 0 black, 255 white
} rondo_kind;

typedef struct rondo_model_info {
  size_t size;
  rondo_task task;
  rondo_kind kind;       // of its inputs; each model takes features, too
  int32_t sample_rate;   // of samples, in Hz; 0 for other inputs
  int32_t features;      // columns that it reads
  int32_t outputs;       // columns that it writes: classes of CTC, the blank at 0
  int32_t can_stream;    // 1: rondo_stream_new() takes it
  double frame_seconds;  // from an output to the next; of images, pixels of the scaled line
  int64_t weights;
} rondo_model_info;

// `path`: a model file or the folder of a run. `device`: NULL or "cpu"; "cuda", "cuda:1".
RONDO_API rondo_status rondo_model_open(const char* path, const char* device, rondo_model** model);
// The bytes of a model file; `name` stands for it in messages.
RONDO_API rondo_status rondo_model_from_memory(const void* bytes, size_t size, const char* name,
                                               const char* device, rondo_model** model);
RONDO_API void rondo_model_free(rondo_model* model);
// `size`: sizeof(rondo_model_info).
RONDO_API rondo_status rondo_model_get_info(const rondo_model* model, rondo_model_info* info,
                                            size_t size);
// What output `index` stands for: a character, a class; "" for the blank and where there is none.
RONDO_API const char* rondo_model_class(const rondo_model* model, int32_t index);

// ---- States: what computes with a model, in one thread at a time, with memory of its own.

// `threads` that it computes with; 0: as many as there are processors, and never more.
RONDO_API rondo_status rondo_state_new(const rondo_model* model, int32_t threads,
                                       rondo_state** state);
RONDO_API void rondo_state_free(rondo_state* state);
// How the texts of a ctc model are found: by this decoder, which must be of the model's vocabulary;
// NULL: by the best class of each frame. For rondo_run(), and streams that are made afterwards.
RONDO_API rondo_status rondo_state_set_decoder(rondo_state* state, const rondo_decoder* decoder);
// Gives back the memory that long inputs have taken, which otherwise stays for the next.
RONDO_API rondo_status rondo_state_trim(rondo_state* state);

// Called by rondo_run() when it begins, and between the pieces of recordings of more than a minute:
// `done` seconds of sound are computed, of `whole`. Not 0 ends rondo_run() with RONDO_STOPPED.
typedef int (*rondo_progress)(void* user, double done, double whole);
// NULL: nobody wants to know.
RONDO_API rondo_status rondo_state_set_progress(rondo_state* state, rondo_progress progress,
                                                void* user);

// Strides as in rondo_matrix. A padded batch is inputs whose data begin at its rows.
typedef struct rondo_input {
  rondo_kind kind;
  int32_t sample_rate;  // of samples; another one than the model's is converted
  const void* data;
  int64_t rows, columns;
  int64_t row_stride, column_stride;
} rondo_input;

// Results of `count` inputs, in their order; on failure all are NULL. Several at once are faster
// than one after the other and give the same bits. Recordings of a ctc model that last more than a
// minute go through it in pieces of 30 seconds, each with 3 seconds of its neighbours.
RONDO_API rondo_status rondo_run(rondo_state* state, const rondo_input* inputs, size_t count,
                                 rondo_result** results);

// ---- Results.

// A word or character. Times are seconds from the beginning, of images pixels from the left; of
// rondo_decode(), in the unit of `frame_seconds`.
typedef struct rondo_piece {
  const char* text;
  double begin, end;
  double probability;
} rondo_piece;

RONDO_API void rondo_result_free(rondo_result* result);
RONDO_API const char* rondo_result_text(const rondo_result* result);
// NULL and 0 where there are none.
RONDO_API const rondo_piece* rondo_result_words(const rondo_result* result, size_t* count);
RONDO_API const rondo_piece* rondo_result_characters(const rondo_result* result, size_t* count);
// When an utterance of a stream began and ended; of other results, 0 and the end of the outputs.
RONDO_API void rondo_result_times(const rondo_result* result, double* begin, double* end);
// Of a decoder: ln p(text | outputs) and all that it knows besides. Of an alignment: how well the
// text fits, 0 is perfect. Otherwise 0.
RONDO_API double rondo_result_score(const rondo_result* result);
// Of a decoder that was asked for several texts: how many there are, the best first. One of them
// belongs to `result`; NULL where there is none of that index.
RONDO_API size_t rondo_result_alternatives(const rondo_result* result);
RONDO_API const rondo_result* rondo_result_alternative(const rondo_result* result, size_t index);
// What the model said. ctc: logits [frames, classes]; others: one row, of logits (classify) or of
// the numbers (regress).
RONDO_API rondo_matrix rondo_result_outputs(const rondo_result* result);
// classify: the most probable class, with its probability; -1 for other tasks.
RONDO_API int32_t rondo_result_class(const rondo_result* result, double* probability);

// ---- Vocabularies: what the classes of a CTC model stand for, of any program.

// The blank's class; or find it by its name; or it is before or behind the tokens.
#define RONDO_FIRST_BLANK (-3)
#define RONDO_FIND_BLANK (-2)
#define RONDO_LAST_BLANK (-1)

// A file or a folder of Hugging Face, as `rondo decode` takes it. `border`: the token that
// separates words, "none" or "every"; NULL: told from the tokens.
RONDO_API rondo_status rondo_vocabulary_open(const char* path, int32_t blank, const char* border,
                                             rondo_vocabulary** vocabulary);
// tokens[i] is class i.
RONDO_API rondo_status rondo_vocabulary_new(const char* const* tokens, size_t count, int32_t blank,
                                            const char* border, rondo_vocabulary** vocabulary);
RONDO_API rondo_status rondo_vocabulary_of_model(const rondo_model* model,
                                                 rondo_vocabulary** vocabulary);
RONDO_API void rondo_vocabulary_free(rondo_vocabulary* vocabulary);

// ---- Language models: n-grams from ARPA files, KenLM's binaries, or `rondo lm build`.

RONDO_API rondo_status rondo_language_model_open(const char* path, rondo_language_model** model);
RONDO_API rondo_status rondo_language_model_from_memory(const void* bytes, size_t size,
                                                        const char* name,
                                                        rondo_language_model** model);
RONDO_API void rondo_language_model_free(rondo_language_model* model);
// log10 p of a sentence of `count` words, with its end if `end` is not 0. `each`: NULL, or room for
// that of each word and of the end.
RONDO_API rondo_status rondo_language_model_score(const rondo_language_model* model,
                                                  const char* const* words, size_t count,
                                                  int32_t end, double* total, double* each);

// ---- Decoders: the most probable text, with what is known of the language.

typedef struct rondo_hot_word {
  const char* phrase;  // words with a space between
  double weight;       // natural logarithm; negative for what is not to be written
} rondo_hot_word;

typedef struct rondo_decoder_options {
  size_t size;
  int32_t beam;        // 100: texts that are kept from frame to frame
  int32_t nbest;       // 1: texts of a result
  double token_floor;  // 0: classes that are less probable in a frame do not extend texts in it
  const rondo_language_model* language_model;  // NULL
  double lm_weight;                            // 0.5
  double word_score;                           // 1.5, for each word
  double unknown_score;                        // -10, for each word that is not known
  const char* const* words;                    // NULL: texts are of these words alone
  size_t word_count;
  const rondo_hot_word* hot_words;  // NULL
  size_t hot_word_count;
  const char* const* known_words;  // NULL; those that a language model of words has besides count
  size_t known_word_count;         // as not known, each with unknown_score beside its own score
  int32_t sentence_begin, sentence_end;  // 1: the text begins, ends as a sentence for that model
} rondo_decoder_options;

RONDO_API void rondo_decoder_options_init(rondo_decoder_options* options, size_t size);
RONDO_API rondo_status rondo_decoder_new(const rondo_vocabulary* vocabulary,
                                         const rondo_decoder_options* options,
                                         rondo_decoder** decoder);
// The same with other hot words, sharing the rest.
RONDO_API rondo_status rondo_decoder_with_hot_words(const rondo_decoder* decoder,
                                                    const rondo_hot_word* hot_words, size_t count,
                                                    rondo_decoder** other);
RONDO_API void rondo_decoder_free(rondo_decoder* decoder);
// What is allowed and probably not meant, a sentence each; NULL behind the last.
RONDO_API const char* rondo_decoder_warning(const rondo_decoder* decoder, size_t index);

// The text of scores, logits or log-probabilities. Decoder NULL: by the best class of each frame.
RONDO_API rondo_status rondo_decode(const rondo_vocabulary* vocabulary,
                                    const rondo_decoder* decoder, const rondo_matrix* scores,
                                    double frame_seconds, rondo_result** result);

// ---- Alignment: where the words of a given text are.

typedef struct rondo_align_options {
  size_t size;
  int32_t skip_unspellable;  // 0; 1: characters that no token stands for are not said, not refused
  int32_t open_ends;         // 0; 1: more may be said before the text and behind it
  int32_t find_gaps;         // 0; 1: more may be said between any two words
} rondo_align_options;

RONDO_API void rondo_align_options_init(rondo_align_options* options, size_t size);
RONDO_API rondo_status rondo_align(const rondo_vocabulary* vocabulary, const rondo_matrix* scores,
                                   double frame_seconds, const char* text,
                                   const rondo_align_options* options, rondo_result** result);

// ---- Streams: text while the sound arrives, for as long as it does. Memory and the time for a
// second of sound stay the same. Any number of streams may use one state, in its thread.

typedef struct rondo_stream_options {
  size_t size;
  double chunk_seconds;  // 0.2: computed at a time
  double end_silence;    // 1: seconds behind speech that end an utterance; 0: none does
  double longest;        // 30: seconds after which it ends at its next silent frame; 0: never
  const rondo_decoder* decoder;  // NULL: the state's, or the best class of each frame
} rondo_stream_options;

RONDO_API void rondo_stream_options_init(rondo_stream_options* options, size_t size);
RONDO_API rondo_status rondo_stream_new(rondo_state* state, const rondo_stream_options* options,
                                        rondo_stream** stream);
RONDO_API void rondo_stream_free(rondo_stream* stream);
// Samples at the model's rate. *text becomes what is final now and was not before, with a line feed
// behind each utterance that has ended; it stays valid until the stream's next call. NULL: not
// wanted.
RONDO_API rondo_status rondo_stream_accept(rondo_stream* stream, const float* samples, size_t count,
                                           const char** text);
// The same of `count` streams at once, each there once: those of one state are computed together,
// in less time and with the same bits. texts[i] is what streams[i] tells; NULL: not wanted.
RONDO_API rondo_status rondo_streams_accept(rondo_stream* const* streams,
                                            const float* const* samples, const size_t* counts,
                                            size_t count, const char** texts);
// Of the utterance that is being heard: what will not change any more, and the best so far, which
// begins with it. Both stay valid until the stream's next call.
RONDO_API rondo_status rondo_stream_partial(rondo_stream* stream, const char** stable,
                                            const char** text);
// The next utterance that has ended and has not been asked for; NULL: none. They are kept until
// then.
RONDO_API rondo_status rondo_stream_next(rondo_stream* stream, rondo_result** result);
// The sound is over: its last utterance has ended, and the stream is as new.
RONDO_API rondo_status rondo_stream_finish(rondo_stream* stream);
// Forgets what it has heard.
RONDO_API rondo_status rondo_stream_reset(rondo_stream* stream);

// ---- CTC loss (Graves et al. 2006), with the softmax in it, and its gradient.

typedef enum rondo_dtype { RONDO_F32 = 0, RONDO_BF16 = 1, RONDO_F64 = 2 } rondo_dtype;
typedef enum rondo_reduction {
  RONDO_NONE = 0,
  RONDO_SUM = 1,
  RONDO_MEAN = 2  // of the losses divided by their number of labels (at least 1), as in PyTorch
} rondo_reduction;

typedef struct rondo_ctc {
  size_t size;
  rondo_dtype dtype;  // of logits and gradients
  int32_t threads;    // 0: as many as there are processors
  int32_t blank;
  int32_t log_softmax;    // 1: `logits` are log-probabilities, and the gradient is of these
  int32_t zero_infinity;  // 1: labels that do not fit into the frames cost 0, not infinity
  rondo_reduction reduction;
  int64_t frames, sequences, classes;  // of `logits`
  const void* logits;            // element [t, n, c] is at t * stride[0] + n * stride[1] + ...
  int64_t strides[3];            // elements; all 0: [frames, sequences, classes] without gaps
  const int32_t* lengths;        // frames of each sequence; NULL: all
  const int32_t* labels;         // one sequence's behind the other's, without blanks
  const int32_t* label_lengths;  // of each sequence
  void* gradient;                // NULL, or as `logits`: of the sum of the losses
  int64_t gradient_strides[3];   // as `strides`
} rondo_ctc;

RONDO_API void rondo_ctc_init(rondo_ctc* batch, size_t size);
// `loss`: [sequences] for RONDO_NONE, otherwise one number. The gradient is that of RONDO_NONE's
// sum or of the number. A sequence that is not possible has loss infinity and gradient 0. Frames
// past a sequence's length have gradient 0.
RONDO_API rondo_status rondo_ctc_loss(const rondo_ctc* batch, double* loss);

// ---- Training: as `rondo train` does it.

typedef struct rondo_training_step {
  int64_t step;  // updates so far
  double epoch, loss, learning_rate, gradient_norm;
} rondo_training_step;
typedef struct rondo_validation {
  int64_t step;
  double loss, metric;  // `metric` is what chooses the best model
  int32_t best;         // 1: this one is the best so far
} rondo_validation;

// Called in the thread that trains, with `user`; NULL: not wanted.
typedef struct rondo_train_options {
  size_t size;
  void* user;
  void (*message)(void* user, const char* text);
  void (*stepped)(void* user, const rondo_training_step* step);
  void (*validated)(void* user, const rondo_validation* validation);
  int (*stop)(void* user);  // asked between updates: not 0 saves and returns
  int32_t resume;           // 0; 1: goes on from the newest checkpoint, if there is one
  int32_t threads;          // 0: training.threads
  const char* device;       // NULL: "cpu"
} rondo_train_options;

typedef struct rondo_training {
  size_t size;
  int64_t steps, epochs;
  double seconds, best_metric;
  int32_t stopped;  // 1: because stop() said so
} rondo_training;

RONDO_API void rondo_train_options_init(rondo_train_options* options, size_t size);
// `toml`: the settings (docs/settings.md), as text; `name` stands for it in messages. `summary`:
// NULL, or what is to be filled in, whose `size` the caller has set.
RONDO_API rondo_status rondo_train(const char* toml, const char* name,
                                   const rondo_train_options* options, rondo_training* summary);

// ---- Sessions: a ctc model that is trained with batches of one's own.

typedef struct rondo_session rondo_session;

typedef struct rondo_session_options {
  size_t size;
  int64_t features;             // columns of a frame
  const char* const* alphabet;  // what labels 1, 2, ... write: characters, " " between words
  size_t alphabet_size;
  int32_t threads;     // 0: training.threads
  const char* device;  // NULL: "cpu"
} rondo_session_options;

typedef struct rondo_example {
  rondo_matrix features;  // at least one frame
  const int32_t* labels;  // 1 to alphabet_size
  size_t label_count;
} rondo_example;

typedef struct rondo_session_result {
  size_t size;
  int64_t step;          // updates so far
  double loss;           // mean of the sequences whose labels fit into their frames
  double gradient_norm;  // before clipping; 0 of an evaluation
  int64_t infeasible;    // sequences whose labels do not fit: they count for nothing
  int32_t skipped;       // 1: the gradient was not finite, and the weights are as they were
} rondo_session_result;

RONDO_API void rondo_session_options_init(rondo_session_options* options, size_t size);
// `toml`: settings of the model, the optimiser and training (seed, threads, dtype); those of data
// and features are not looked at, for the features come ready and normalised. `name` stands for
// it in messages.
RONDO_API rondo_status rondo_session_new(const char* toml, const char* name,
                                         const rondo_session_options* options,
                                         rondo_session** session);
RONDO_API void rondo_session_free(rondo_session* session);
// One update of the weights by the mean gradient of a batch. `result`: NULL, or what is to be
// filled in, whose `size` the caller has set.
RONDO_API rondo_status rondo_session_train(rondo_session* session, const rondo_example* examples,
                                           size_t count, rondo_session_result* result);
// The loss of a batch without dropout.
RONDO_API rondo_status rondo_session_evaluate(rondo_session* session, const rondo_example* examples,
                                              size_t count, rondo_session_result* result);
// Of the updates from now on; the settings' optimizer.lr until then, without a schedule.
RONDO_API rondo_status rondo_session_set_learning_rate(rondo_session* session, double rate);
// A model file, which rondo_model_open() reads.
RONDO_API rondo_status rondo_session_save(rondo_session* session, const char* path);
// The weights of a model of the same layers and alphabet; the optimiser begins anew.
RONDO_API rondo_status rondo_session_load(rondo_session* session, const char* path);

#ifdef __cplusplus
}
#endif
