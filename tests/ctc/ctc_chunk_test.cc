// CTC in chunks equals CTC of the whole, bit for bit, wherever the cuts are.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/base/cpu/parallel.h"
#include "kernels/ctc/ctc_chunk.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"
#include "tests/ctc/ctc_problem.h"

namespace rondo::test {
namespace {

// By sequence: where each chunk ends, the last one at the length.
using Cuts = std::vector<std::vector<int32_t>>;

const Variant& find(std::span<const Variant> variants, const std::string& name) {
  for (const Variant& v : variants) {
    if (v.name == name) return v;
  }
  throw Error("no variant " + name);
}

template <class T>
class ChunkedRun {
  using Loss = std::conditional_t<std::is_same_v<T, double>, double, float>;

 public:
  ChunkedRun(const CtcProblem& p, const Cuts& cuts, const std::string& variant, ThreadPool& pool)
      : p_(p),
        cuts_(cuts),
        alpha_variant_(find(ctc_chunk_alpha_variants(), variant)),
        grad_variant_(find(ctc_chunk_grad_variants(), variant)),
        stream_(sim_device().make_stream()),
        context_{alpha_variant_.backend, &cpu_device(),
                 alpha_variant_.backend == Backend::sim ? &stream_ : nullptr, &pool},
        sequences_(static_cast<int32_t>(p.layout.lengths.size())),
        width_(ctc_border_width(ctc_args_of(p).max_label_length)) {}

  // Claims for the first chunk of sequence n that it begins at `frame`.
  void shift_first_frame(int32_t n, int32_t frame) {
    shifted_ = n;
    shifted_to_ = frame;
  }

  CtcResult run() {
    const size_t chunks = cuts_.empty() ? 1 : cuts_.front().size();
    // By sequence of the whole; poisoned, so that reading what was not handed over shows.
    std::vector<Border> alpha(chunks + 1, poisoned()), beta = alpha;
    for (size_t k = 0; k < chunks; ++k) run_alpha(k, alpha);
    result_.grad.assign(p_.logits.size(), 12345);
    for (size_t k = chunks; k-- > 0;) run_gradient(k, alpha, beta);
    return result_;
  }

 private:
  using Border = std::vector<double>;

  Border poisoned() const {
    return Border(static_cast<size_t>(sequences_ * width_),
                  std::numeric_limits<double>::quiet_NaN());
  }
  int32_t begin(size_t k, int32_t n) const {
    return k == 0 ? 0 : cuts_[static_cast<size_t>(n)][k - 1];
  }
  int32_t length(size_t k, int32_t n) const {
    return cuts_[static_cast<size_t>(n)][k] - begin(k, n);
  }
  // Rows of a border in the order of the chunk.
  Border permuted(const Border& from, const std::vector<int32_t>& order) const {
    Border to;
    for (int32_t n : order) {
      to.insert(to.end(), from.begin() + n * width_, from.begin() + (n + 1) * width_);
    }
    return to;
  }
  void put_back(const Border& from, const std::vector<int32_t>& order, Border& to) const {
    for (size_t i = 0; i < order.size(); ++i) {
      std::memcpy(&to[static_cast<size_t>(order[i] * width_)],
                  &from[i * static_cast<size_t>(width_)], static_cast<size_t>(width_) * 8);
    }
  }
  TensorView view(Border& b) const {
    return TensorView(b.data(), DType::f64, {sequences_, width_});
  }

  // The arrays of chunk k, its sequences longest first.
  struct Chunk {
    size_t k = 0;
    std::vector<int32_t> order, totals, labels, offsets = {0};
    PackedHost layout;
    std::vector<T> logits;
    size_t workspace_bytes = 0;
    Buffer workspace;
  };

  Chunk chunk(size_t k) {
    Chunk c;
    c.k = k;
    std::vector<int32_t> lengths, sorted, first;
    for (int32_t n = 0; n < sequences_; ++n) lengths.push_back(length(k, n));
    c.order = longest_first(lengths);
    for (int32_t n : c.order) {
      const auto at = static_cast<size_t>(n);
      sorted.push_back(lengths[at]);
      first.push_back(n == shifted_ && k == 0 ? shifted_to_ : begin(k, n));
      c.totals.push_back(p_.layout.lengths[at]);
      c.labels.insert(c.labels.end(), p_.labels.begin() + p_.offsets[at],
                      p_.labels.begin() + p_.offsets[at + 1]);
      c.offsets.push_back(static_cast<int32_t>(c.labels.size()));
    }
    c.layout = build_packed(sorted, {}, first);
    c.logits.resize(static_cast<size_t>(c.layout.extent.rows * p_.classes));
    for_rows(c.layout, c.order, k, [&](size_t in_chunk, size_t in_whole) {
      for (size_t v = 0; v < static_cast<size_t>(p_.classes); ++v) {
        c.logits[in_chunk + v] = static_cast<T>(p_.logits[in_whole + v]);
      }
    });
    c.workspace_bytes =
        ctc_chunk_workspace_bytes(context_, c.layout.view().capacity, DTypeOf<T>::value, p_.classes,
                                  ctc_args_of(p_).max_label_length);
    c.workspace = Buffer(cpu_device(), c.workspace_bytes + 64, "ctc chunk test");
    return c;
  }

  void fill(CtcChunk& a, Chunk& c) const {
    a.layout = c.layout.view();
    a.total_frames = c.totals.data();
    a.logits = TensorView(c.logits.data(), DTypeOf<T>::value, {c.layout.extent.rows, p_.classes});
    a.labels = c.labels.data();
    a.label_offsets = c.offsets.data();
    a.max_label_length = ctc_args_of(p_).max_label_length;
    a.blank = p_.blank;
    a.input = p_.input;
  }
  static TensorView scratch(Chunk& c) {
    return TensorView(c.workspace.data(), DType::u8, {static_cast<int64_t>(c.workspace_bytes)});
  }

  void run_alpha(size_t k, std::vector<Border>& alpha) {
    Chunk c = chunk(k);
    CtcChunkAlphaArgs a;
    fill(a, c);
    Border in = permuted(alpha[k], c.order), out = poisoned();
    a.alpha_in = k > 0 ? view(in) : TensorView();
    a.alpha_out = view(out);
    a.workspace = scratch(c);
    alpha_variant_.run(context_, &a);
    stream_.synchronize();
    put_back(out, c.order, alpha[k + 1]);
  }

  void run_gradient(size_t k, const std::vector<Border>& alpha, std::vector<Border>& beta) {
    Chunk c = chunk(k);
    CtcChunkGradArgs a;
    fill(a, c);
    std::vector<T> grad(c.logits);
    std::vector<Loss> loss(static_cast<size_t>(sequences_), Loss{777});
    Border alpha_in = permuted(alpha[k], c.order), beta_in = permuted(beta[k + 1], c.order);
    Border out = poisoned();
    const bool rightmost = k + 1 == (cuts_.empty() ? 1 : cuts_.front().size());
    a.alpha_in = k > 0 ? view(alpha_in) : TensorView();
    a.beta_in = rightmost ? TensorView() : view(beta_in);
    a.beta_out = view(out);
    a.zero_infinity = p_.zero_infinity;
    a.loss = TensorView(loss.data(), DTypeOf<Loss>::value, {sequences_});
    a.grad = TensorView(grad.data(), DTypeOf<T>::value, {c.layout.extent.rows, p_.classes});
    a.workspace = scratch(c);
    grad_variant_.run(context_, &a);
    stream_.synchronize();
    put_back(out, c.order, beta[k]);
    for_rows(c.layout, c.order, k, [&](size_t in_chunk, size_t in_whole) {
      for (size_t v = 0; v < static_cast<size_t>(p_.classes); ++v) {
        result_.grad[in_whole + v] = static_cast<double>(grad[in_chunk + v]);
      }
    });
    if (k > 0) return;
    result_.loss.assign(static_cast<size_t>(sequences_), 0);
    for (size_t i = 0; i < c.order.size(); ++i) {
      result_.loss[static_cast<size_t>(c.order[i])] = static_cast<double>(loss[i]);
    }
  }

  template <class F>
  void for_rows(const PackedHost& layout, const std::vector<int32_t>& order, size_t k, F f) const {
    for (int32_t i = 0; i < sequences_; ++i) {
      const int32_t n = order[static_cast<size_t>(i)];
      for (int32_t t = 0; t < layout.lengths[static_cast<size_t>(i)]; ++t) {
        f(static_cast<size_t>(layout.row(t, i) * p_.classes), p_.at(n, begin(k, n) + t, 0));
      }
    }
  }

  const CtcProblem& p_;
  const Cuts& cuts_;
  const Variant &alpha_variant_, &grad_variant_;
  Stream stream_;
  const Context context_;
  const int32_t sequences_;
  const int64_t width_;
  int32_t shifted_ = -1, shifted_to_ = 0;
  CtcResult result_;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// The whole-sequence variant of ctc that a chunk variant must agree with.
std::string whole_name(const std::string& chunk) {
  return chunk == "ref" || chunk == "log_space" ? chunk : "wide_" + chunk;
}

// What runs here on batches of T; the simulator stands for GPUs.
template <class T>
std::vector<std::string> chunk_variants() {
  std::vector<std::string> names;
  for (const Variant& v : ctc_chunk_grad_variants()) {
    if (v.backend == Backend::cuda) continue;
    if (v.backend == Backend::sim && std::is_same_v<T, double>) continue;
    if (!v.accepts || v.accepts({}, nullptr)) names.push_back(v.name);
  }
  return names;
}

Cuts random_cuts(const CtcProblem& p, size_t chunks, std::mt19937_64& random) {
  Cuts cuts;
  for (int32_t length : p.layout.lengths) {
    std::vector<int32_t> ends;
    for (size_t k = 1; k < chunks; ++k) {
      ends.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(length + 1)));
    }
    std::sort(ends.begin(), ends.end());
    ends.push_back(length);
    cuts.push_back(ends);
  }
  return cuts;
}

template <class T>
void check_against_whole(const CtcProblem& p, const Cuts& cuts, ThreadPool& pool) {
  Stream stream = sim_device().make_stream();
  for (const std::string& name : chunk_variants<T>()) {
    const std::string in_one = whole_name(name);
    const Variant& variant = find(ctc_variants(), in_one);
    const CtcResult whole =
        run_ctc<T>(variant, p, pool, true, variant.backend == Backend::sim ? &stream : nullptr);
    const CtcResult chunked = ChunkedRun<T>(p, cuts, name, pool).run();
    CAPTURE(name, whole.loss, chunked.loss);
    CHECK(same_bits(chunked.loss, whole.loss));
    CHECK(same_bits(chunked.grad, whole.grad));
  }
}

CtcProblem ragged_problem(uint64_t seed, double range) {
  CtcProblem p({61, 47, 33, 20, 9, 9, 2, 1, 0, 0}, 6,
               {{1, 2, 3, 4, 5, 5, 5, 1, 2, 1, 3, 3, 2, 4, 5, 1, 1, 2, 3, 5},
                {},
                {2, 2, 2, 2, 1},
                {3},
                {1, 2, 3, 4, 5, 1, 2, 3},
                {1, 1, 1, 1, 1, 1},  // needs 11 frames
                {4, 3},
                {5},
                {},
                {1}});
  p.randomise(seed, range);
  return p;
}

}  // namespace

TEST_CASE("chunks at random cuts give the whole sequence's bits", "[slow]") {
  std::mt19937_64 random(11);
  ThreadPool pool(2);
  for (int round = 0; round < 12; ++round) {
    const double ranges[] = {2, 20, 300};
    CtcProblem p = ragged_problem(static_cast<uint64_t>(round), ranges[round % 3]);
    p.zero_infinity = round % 2 == 1;
    const size_t chunks = 1 + random() % 5;
    const Cuts cuts = random_cuts(p, chunks, random);
    CAPTURE(round, chunks);
    check_against_whole<float>(p, cuts, pool);
    if (round < 4) check_against_whole<double>(p, cuts, pool);
    if (round < 4) check_against_whole<bf16>(p, cuts, pool);
  }
}

TEST_CASE("chunks of one frame, and chunks that hold nothing") {
  ThreadPool pool(3);
  CtcProblem p({7, 5}, 70, {{1, 69, 1}, {33, 33}});
  p.randomise(3, 4);
  Cuts frame_by_frame(2), idle_ends = {{0, 0, 3, 7, 7}, {0, 2, 2, 5, 5}};
  for (int32_t k = 1; k <= 7; ++k) {
    frame_by_frame[0].push_back(k);
    frame_by_frame[1].push_back(std::min(k, 5));
  }
  check_against_whole<float>(p, frame_by_frame, pool);
  check_against_whole<float>(p, idle_ends, pool);
  p.input = CtcInput::log_softmax;
  for (double& x : p.logits) x -= 5;
  check_against_whole<float>(p, frame_by_frame, pool);
}

TEST_CASE("what is not finite reaches every chunk of its sequence alone") {
  ThreadPool pool(1);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Cuts cuts = {{4, 9, 14, 20}, {5, 10, 15, 20}, {1, 2, 18, 18}};
  for (int32_t frame : {0, 6, 19}) {
    for (double poison : {nan, infinity, -infinity}) {
      CtcProblem p({20, 20, 18}, 4, {{1, 2, 3}, {2, 1}, {3, 3}});
      p.randomise(5, 3);
      p.logit(1, frame, 0) = poison;
      CAPTURE(frame, poison);
      check_against_whole<float>(p, cuts, pool);
    }
  }
  CtcProblem p({20, 20, 18}, 4, {{1, 2, 3}, {2, 1}, {3, 3}});
  p.randomise(5, 3);
  for (int32_t t = 0; t < 20; ++t) p.logit(0, t, 2) = -infinity;  // no alignment left
  check_against_whole<float>(p, cuts, pool);
}

TEST_CASE("chunks agree with the default kernels within their rounding") {
  ThreadPool pool(2);
  CtcProblem p({400, 300}, 30, {std::vector<int32_t>(90), std::vector<int32_t>(20)});
  for (size_t i = 0; i < p.labels.size(); ++i) p.labels[i] = 1 + static_cast<int32_t>(i * 7 % 29);
  p.randomise(9, 5);
  const Cuts cuts = {{100, 200, 300, 400}, {75, 150, 225, 300}};
  const CtcResult whole = run_ctc<float>(find(ctc_variants(), "generic"), p, pool);
  const CtcResult chunked = ChunkedRun<float>(p, cuts, "generic", pool).run();
  for (size_t n = 0; n < 2; ++n) {
    CHECK(std::abs(chunked.loss[n] - whole.loss[n]) <= 1e-6 * whole.loss[n]);
  }
  double worst = 0;
  for (size_t i = 0; i < whole.grad.size(); ++i) {
    worst = std::max(worst, std::abs(chunked.grad[i] - whole.grad[i]));
  }
  CHECK(worst <= 16 * 0x1p-23);
  CHECK(worst > 0);  // they are different sums: if not, this test compares a thing with itself
}

TEST_CASE(
    "what the simulated device makes of chunks that cannot be: not a number, for them alone") {
  ThreadPool pool(1);
  CtcProblem p({20, 20}, 4, {{1, 2, 3}, {2, 1}});
  p.randomise(5, 3);
  const Cuts cuts = {{9, 20}, {10, 20}};
  const CtcResult right = ChunkedRun<float>(p, cuts, "log_space", pool).run();
  ChunkedRun<float> wrong(p, cuts, "log_space", pool);
  wrong.shift_first_frame(1, 12);  // frames 12 to 22 of 20
  const CtcResult got = wrong.run();
  CHECK(got.loss[0] == right.loss[0]);
  CHECK(std::isnan(got.loss[1]));
}

TEST_CASE("a chunk outside its sequence is refused") {
  ThreadPool pool(1);
  const Context context{Backend::ref, &cpu_device(), nullptr, &pool};
  const int32_t lengths[] = {3}, first[] = {4}, total[] = {6}, labels[] = {1}, offsets[] = {0, 1};
  const PackedHost layout = build_packed(lengths, {}, first);
  std::vector<float> logits(9);
  std::vector<double> border(static_cast<size_t>(ctc_border_width(1)));
  CtcChunkAlphaArgs a;
  a.layout = layout.view();
  a.total_frames = total;
  a.logits = TensorView(logits.data(), DType::f32, {3, 3});
  a.labels = labels;
  a.label_offsets = offsets;
  a.max_label_length = 1;
  a.alpha_in = a.alpha_out =
      TensorView(border.data(), DType::f64, {1, static_cast<int64_t>(border.size())});
  CHECK_THROWS_WITH(find(ctc_chunk_alpha_variants(), "ref").run(context, &a),
                    Catch::Contains("sequence 0 has 6 frames, the chunk those from 4 to 7"));
}

}  // namespace rondo::test
