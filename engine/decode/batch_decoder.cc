#include "engine/decode/batch_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/decode/decoder_tables.h"
#include "engine/decode/grammar_table.h"
#include "kernels/base/carver.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/beam_search/beam_search.h"
#include "kernels/devices.h"

namespace rondo {
namespace {

constexpr int64_t most_entries = int64_t{1} << 25;

// Where in device memory a batch is.
struct Places {
  PackedExtent* extent = nullptr;
  int32_t *lengths_of_batch = nullptr, *row_offsets = nullptr;
  float* scores = nullptr;
  int32_t *counts = nullptr, *stopped = nullptr, *exponents = nullptr;
  int32_t *lengths = nullptr, *states = nullptr, *labels = nullptr;
  double* probabilities = nullptr;
  std::byte* workspace = nullptr;
  size_t workspace_bytes = 0, bytes = 0;

  Places(void* memory, const PackedExtent& e, int64_t classes, int32_t beam, bool with_scores) {
    const int64_t n = e.sequences, rows = e.rows;
    Carver carver(memory);
    carver.take(extent, 1);
    carver.take(lengths_of_batch, n);
    carver.take(row_offsets, int64_t{e.frames} + 1);
    if (with_scores) carver.take(scores, rows * classes);
    for (int32_t** one : {&counts, &stopped, &exponents}) carver.take(*one, n);
    carver.take(lengths, n * beam);
    carver.take(states, n * beam);
    carver.take(labels, rows * beam);
    carver.take(probabilities, n * beam);
    workspace_bytes = beam_search_workspace_bytes(rows, classes, beam);
    carver.take(workspace, static_cast<int64_t>(workspace_bytes));
    bytes = carver.used();
  }
};

// Copies read and write this call's memory, so it outlives them also when an error ends the call.
class Settled {
 public:
  explicit Settled(Stream& stream) : stream_(stream) {}
  ~Settled() {
    try {
      stream_.synchronize();
    } catch (
        ...) {  // the error that ended the call is told; without one nothing is left to wait for
    }
  }
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;

 private:
  Stream& stream_;
};

}  // namespace

struct BatchDecoder::State {
  State(const Decoder& d, Device& on, int threads)
      : decoder(d),
        tables(*d.tables_),
        device(on),
        table(tables.vocabulary, tables.grammar, most_entries),
        stream(on.make_stream()),
        pool(cpu_threads(threads)) {
    const auto classes = static_cast<size_t>(tables.vocabulary.classes());
    for (size_t c = 0; c < classes; ++c)
      extends.push_back(tables.vocabulary.token(static_cast<int32_t>(c)).is_written);
    upload(extends_on_device, extends.data(), extends.size(), "which classes are written");
    if (!table.is_trivial()) {
      upload(gains, table.gains().data(), table.gains().size_bytes(), "what a search knows");
      upload(next, table.next().data(), table.next().size_bytes(), "what a search knows");
    }
    stream.synchronize();
  }
  void upload(Buffer& to, const void* from, size_t bytes, const char* purpose) {
    to = Buffer(device, bytes, purpose);
    device.copy(stream, to.data(), from, bytes);
  }

  Places reserve(const PackedHost& layout, bool with_scores) {
    const int64_t classes = tables.vocabulary.classes();
    const int32_t beam = tables.options.beam;
    const size_t bytes = Places(nullptr, layout.extent, classes, beam, with_scores).bytes;
    if (memory.bytes() < bytes) {
      memory = Buffer();
      memory = Buffer(device, bytes, "a search for texts");
    }
    return Places(memory.data(), layout.extent, classes, beam, with_scores);
  }

  void search(Stream& on, const PackedHost& layout, const Places& at, const float* scores);
  std::vector<std::vector<DecodedText>> texts(Stream& on, const PackedHost& layout,
                                              const Places& at, std::span<const int32_t> names);

  const Decoder decoder;
  const Decoder::Tables& tables;
  Device& device;
  const decode::GrammarTable table;
  std::vector<uint8_t> extends;
  Stream stream;
  Buffer extends_on_device, gains, next, memory;
  ThreadPool pool;
};

void BatchDecoder::State::search(Stream& on, const PackedHost& layout, const Places& at,
                                 const float* scores) {
  const auto copy = [&]<class T>(T* to, const T* from, size_t count) {
    if (count > 0) device.copy(on, to, from, count * sizeof(T));
  };
  copy(at.extent, &layout.extent, 1);
  copy(at.lengths_of_batch, layout.lengths.data(), layout.lengths.size());
  copy(at.row_offsets, layout.row_offsets.data(), layout.row_offsets.size());
  const DecoderOptions& o = tables.options;
  const int64_t n = layout.extent.sequences, rows = layout.extent.rows;
  BeamSearchArgs a;
  a.layout.capacity = {rows, layout.extent.frames, layout.extent.sequences};
  a.layout.extent = at.extent;
  a.layout.lengths = at.lengths_of_batch;
  a.layout.row_offsets = at.row_offsets;
  a.scores =
      TensorView(const_cast<float*>(scores), DType::f32, {rows, tables.vocabulary.classes()});
  a.blank = tables.vocabulary.blank();
  a.beam = o.beam;
  a.sum = o.sum;
  a.floor = std::exp(o.token_floor);
  a.range = std::exp(-o.score_range);
  a.extends = extends_on_device.as<uint8_t>();
  if (!table.is_trivial())
    a.automaton = {gains.as<double>(), next.as<int32_t>(), 0, table.most_gain()};
  a.counts = TensorView(at.counts, DType::i32, {n});
  a.stopped = TensorView(at.stopped, DType::i32, {n});
  a.exponents = TensorView(at.exponents, DType::i32, {n});
  a.lengths = TensorView(at.lengths, DType::i32, {n, o.beam});
  a.states = TensorView(at.states, DType::i32, {n, o.beam});
  a.labels = TensorView(at.labels, DType::i32, {rows, o.beam});
  a.probabilities = TensorView(at.probabilities, DType::f64, {n, o.beam});
  a.workspace = TensorView(at.workspace, DType::u8, {static_cast<int64_t>(at.workspace_bytes)});
  run({backend_of(device.kind()), &device, &on, nullptr}, a);
}

// Waits for the search. `names`: what utterances are called in messages.
std::vector<std::vector<DecodedText>> BatchDecoder::State::texts(Stream& on,
                                                                 const PackedHost& layout,
                                                                 const Places& at,
                                                                 std::span<const int32_t> names) {
  const auto n = static_cast<size_t>(layout.extent.sequences);
  const auto beam = static_cast<size_t>(tables.options.beam);
  std::vector<int32_t> labels;
  std::vector<int32_t> counts(n), stopped(n), exponents(n), lengths(n * beam), states(n * beam);
  std::vector<double> probabilities(n * beam);
  const Settled settled(on);
  const auto fetch = [&]<class T>(std::vector<T>& to, const T* from) {
    if (!to.empty()) device.copy(on, to.data(), from, to.size() * sizeof(T));
  };
  fetch(counts, at.counts);
  fetch(stopped, at.stopped);
  fetch(exponents, at.exponents);
  fetch(lengths, at.lengths);
  fetch(states, at.states);
  fetch(probabilities, at.probabilities);
  on.synchronize();
  for (size_t i = 0; i < n; ++i)
    RONDO_CHECK(counts[i] > 0, "utterance ", names[i], ": frame ", stopped[i],
                " holds a NaN score, or no finite largest one");
  const auto longest =
      n > 0 ? static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end())) : 0;
  labels.resize(static_cast<size_t>(layout.row_offsets[longest]) * beam);
  fetch(labels, at.labels);
  on.synchronize();
  std::vector<std::vector<DecodedText>> all(n);
  pool.for_each(static_cast<int64_t>(n), [&](int64_t number) {
    const auto i = static_cast<size_t>(number);
    decode::FoundPrefixes found;
    found.exponent = exponents[i];
    found.is_possible = stopped[i] < 0;
    for (size_t w = 0; w < static_cast<size_t>(counts[i]); ++w) {
      std::vector<int32_t> prefix(static_cast<size_t>(lengths[i * beam + w]));
      for (size_t k = 0; k < prefix.size(); ++k)
        prefix[k] = labels[(static_cast<size_t>(layout.row_offsets[k]) + i) * beam + w];
      found.prefixes.push_back(
          table.prefix(std::move(prefix), states[i * beam + w], probabilities[i * beam + w]));
    }
    all[i] = tables.texts(found);
  });
  return all;
}

BatchDecoder::BatchDecoder(const Decoder& decoder, Device& device, int threads) {
  RONDO_CHECK(device.kind() != DeviceKind::cpu, "a batch decoder on the CPU, which has Decoder");
  const int32_t beam = decoder.options().beam, classes = decoder.vocabulary().classes();
  if (beam > beam_search_most_beam)
    fail_input("a beam of ", beam, ", and a device's search takes ", beam_search_most_beam,
               " at most; search on the CPU");
  if (classes > beam_search_most_classes)
    fail_input("a model of ", classes, " tokens, and a device's search takes ",
               beam_search_most_classes, " at most; search on the CPU");
  state_ = std::make_unique<State>(decoder, device, threads);
}
BatchDecoder::~BatchDecoder() = default;
BatchDecoder::BatchDecoder(BatchDecoder&&) noexcept = default;
BatchDecoder& BatchDecoder::operator=(BatchDecoder&&) noexcept = default;

const Decoder& BatchDecoder::decoder() const { return state_->decoder; }

std::vector<std::vector<DecodedText>> BatchDecoder::decode(std::span<const Utterance> utterances) {
  std::vector<int32_t> frames;
  for (const Utterance& u : utterances) {
    RONDO_CHECK(u.frames >= 0, u.frames, " frames");
    frames.push_back(u.frames);
  }
  const std::vector<int32_t> order = longest_first(frames);
  std::vector<int32_t> sorted;
  for (const int32_t u : order) sorted.push_back(frames[static_cast<size_t>(u)]);
  const PackedHost layout = build_packed(sorted);
  const auto classes = static_cast<size_t>(state_->tables.vocabulary.classes());
  std::vector<float> packed(static_cast<size_t>(layout.extent.rows) * classes);
  for (int32_t n = 0; n < layout.extent.sequences; ++n) {
    const Utterance& u = utterances[static_cast<size_t>(order[static_cast<size_t>(n)])];
    for (int32_t t = 0; t < u.frames; ++t) {
      const size_t row = static_cast<size_t>(layout.row(t, n));
      std::copy_n(u.scores + static_cast<size_t>(t) * classes, classes, &packed[row * classes]);
    }
  }
  const Places at = state_->reserve(layout, true);
  const Settled settled(state_->stream);
  if (!packed.empty())
    state_->device.copy(state_->stream, at.scores, packed.data(), packed.size() * sizeof(float));
  state_->search(state_->stream, layout, at, at.scores);
  std::vector<std::vector<DecodedText>> found = state_->texts(state_->stream, layout, at, order);
  std::vector<std::vector<DecodedText>> all(found.size());
  for (size_t n = 0; n < found.size(); ++n)
    all[static_cast<size_t>(order[n])] = std::move(found[n]);
  return all;
}

std::vector<std::vector<DecodedText>> BatchDecoder::decode(Stream& stream, const PackedHost& layout,
                                                           const float* scores) {
  std::vector<int32_t> names;
  for (int32_t n = 0; n < layout.extent.sequences; ++n) names.push_back(n);
  const Places at = state_->reserve(layout, false);
  const Settled settled(stream);
  state_->search(stream, layout, at, scores);
  return state_->texts(stream, layout, at, names);
}

}  // namespace rondo
