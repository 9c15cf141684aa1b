// The harness behind checkop, in the spirit of dav1d's checkasm: every variant of every op in
// the program is compared with `ref` on the same inputs, and the same cases are timed.
//
// An op's cases are in bench/cases/<op>.cc:
//
//   void relu_case(Case& c, PointwiseArgs& args, DType dtype, int64_t rows) {
//     args.function = PointwiseFunction::relu;
//     args.x = c.input({rows, 7}, dtype);
//     args.y = c.output("y", {rows, 7}, dtype, Tolerance::exact());
//   }
//
//   void pointwise_cases(Suite& suite) {
//     for (const auto& [dtype, rows] : every(f32_bf16, {0, 1, 33}))
//       suite.add(str("relu/", name_of(dtype), "/", rows), relu_case, dtype, rows);
//   }
//
// The case function runs once for `ref` and once per variant, thread count and device, each time
// before the op; the random inputs are the same each time. Outputs start poisoned with NaN (a
// forgotten element shows) and lie between guard zones (a stray write shows). Input rows past a
// packed batch's extent are NaN.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo::check {

// Passes when |got - want| <= absolute + relative * |want|; NaN matches only NaN, inf only the same
// inf. State the bound as rounding error: ulps of the output dtype x sqrt or length of the sum.
struct Tolerance {
  double absolute = 0, relative = 0;
  static Tolerance exact() { return {0, 0}; }
  // `ulps` units in the last place of `dtype`, relative to values of size `scale`.
  static Tolerance ulps(DType dtype, double ulps, double scale = 1.0);
  // Of a sum of `terms` random values of this standard deviation, a third being that of products of
  // two values in [-1, 1], and of something else of size `added`. Partial sums have `out`'s type,
  // or f32 where that is bf16.
  static Tolerance sum(double terms, DType out, double deviation = 1.0 / 3, double added = 1);
};

struct Fill {
  enum Kind : uint8_t { uniform, zeros } kind = uniform;
  double low = -1, high = 1;
};

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double infinity = std::numeric_limits<double>::infinity();

class Case {
 public:
  Case(const Context& context, uint64_t seed, const Variant* variant, int repeats);
  ~Case();
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  const Context& context() const { return context_; }
  DeviceKind device() const { return context_.device->kind(); }

  // Uniform in [0, n), from the case's own generator (the same sequence for every variant).
  int64_t random(int64_t n);
  double random_real(double low, double high);

  TensorView input(std::initializer_list<int64_t> dims, DType dtype, Fill fill = {});
  TensorView input_values(std::initializer_list<int64_t> dims, DType dtype,
                          const std::vector<double>& values);
  TensorView output(std::string name, std::initializer_list<int64_t> dims, DType dtype,
                    Tolerance tolerance);
  // Starts from the same random values for every variant, and is compared afterwards.
  TensorView in_out(std::string name, std::initializer_list<int64_t> dims, DType dtype,
                    Tolerance tolerance, Fill fill = {});
  TensorView in_out_values(std::string name, std::initializer_list<int64_t> dims, DType dtype,
                           Tolerance tolerance, const std::vector<double>& values);
  TensorView workspace(size_t bytes);
  const int32_t* ints(const std::vector<int32_t>& values);
  const uint64_t* longs(const std::vector<uint64_t>& values);

  // For args.row_count: of so many rows an eighth is spare.
  const int32_t* live_rows(int64_t rows) { return ints({static_cast<int32_t>(rows - rows / 8)}); }
  // An output, or one that sums are added to.
  TensorView sums(bool accumulate, std::string name, std::initializer_list<int64_t> dims,
                  DType dtype, Tolerance tolerance, Fill fill = {}) {
    return accumulate ? in_out(std::move(name), dims, dtype, tolerance, fill)
                      : output(std::move(name), dims, dtype, tolerance);
  }

  // Both layouts of an op that makes other lengths: shorter(length) of each.
  template <class Args, class Shorter>
  void set_layouts(Args& args, const std::vector<int32_t>& lengths, Shorter shorter,
                   bool spare = true) {
    std::vector<int32_t> to;
    for (int32_t length : lengths) to.push_back(shorter(length));
    args.from = packed(lengths, spare ? 5 : 0, spare ? 1 : 0);
    args.to = packed(to, spare ? 3 : 0, spare ? 1 : 0);
  }
  // A packed batch of these lengths (any order; sorted here), with capacity for `spare_rows` and
  // `spare_sequences` more than it holds.
  PackedView packed(std::vector<int32_t> lengths, int32_t spare_rows = 0,
                    int32_t spare_sequences = 0);
  int64_t extent_rows(const PackedView& layout) const;
  // [capacity rows, cols]: values within the extent; NaN past it (inputs) or not compared
  // (outputs).
  TensorView rows_input(const PackedView& layout, int64_t cols, DType dtype, Fill fill = {});
  TensorView rows_output(std::string name, const PackedView& layout, int64_t cols, DType dtype,
                         Tolerance tolerance);
  // As rows_output for [planes, capacity rows, cols].
  TensorView planes_output(std::string name, int64_t planes, const PackedView& layout, int64_t cols,
                           DType dtype, Tolerance tolerance);
  TensorView planes_input(int64_t planes, const PackedView& layout, int64_t cols, DType dtype,
                          Fill fill = {});

  // For --bench, before run(): after the repeats, which then only warm up, runs on for about as
  // long, each run timed; and on a GPU some more that follow one another without a wait.
  void time_for(double seconds) { time_for_ = seconds; }
  // An object that the arguments point to.
  template <class T>
  T& keep() {
    const auto made = std::make_shared<T>();
    kept_.push_back(made);
    return *made;
  }
  // Work of one run, for --bench.
  void work(double flops, double bytes) { flops_ = flops, bytes_ = bytes; }

  // Before the case function: nothing is allocated, filled or run, but host_bytes() afterwards says
  // what a run costs the host, up to some bytes a tensor.
  void only_weigh() { weighs_ = true; }
  // Before the case function: of these, the op's, only the one that would run by itself is
  // accepted.
  void only_if_chosen(std::span<const Variant> among) { among_ = among; }
  size_t host_bytes() const { return weighed_; }

  // Runs the variant under test; when benchmarking, repeatedly. Once per case function. A variant
  // that does not accept the arguments leaves accepted() false.
  template <class Args>
  void run(const Args& args) {
    run_erased(Args::op, &args);
  }

  struct Output {
    std::string name;
    Tolerance tolerance;
    std::vector<double> values;  // compared elements
    std::vector<uint8_t> bytes;  // their exact storage
    std::string shape;
  };
  // Copies the outputs back and checks the guards; call once, after the case function.
  std::vector<Output> collect(std::string* guard_error);
  bool accepted() const { return accepted_; }
  const std::vector<double>& seconds() const { return seconds_; }
  // Processor time of the calling thread in each run: with one thread, a figure that other
  // programs on the machine disturb little.
  const std::vector<double>& thread_seconds() const { return thread_seconds_; }
  // The time of one of many runs in a row, without the host's waiting; 0: not on a GPU.
  double seconds_in_a_row() const { return seconds_in_a_row_; }
  double flops() const { return flops_; }
  double bytes() const { return bytes_; }
  // The type of the first tensor of a thousand elements or more (else of the first): what the case
  // computes with.
  DType dtype() const;
  // Inputs and outputs in the order of their making, as a JSON list: ["f32[4,7]", "bf16[9]"].
  std::string operands_json() const;

 private:
  struct Block;
  enum class Image : uint8_t { all, guards };  // of the memory, on the host
  Block& add_block(size_t bytes, std::initializer_list<int64_t> dims, DType dtype,
                   Image image = Image::all);
  Block& add_planes(int64_t planes, const PackedView& layout, int64_t cols, DType dtype);
  void send(Block& block);
  TensorView filled(Block& block, Fill fill, int64_t live_elements);
  TensorView compared(std::string name, Tolerance tolerance);
  template <class T>
  const T* copied(const std::vector<T>& values, DType dtype);
  void run_erased(const char* op, const void* args);
  void run_timed(const void* args);
  void run_in_a_row(const void* args, int runs);

  Context context_;
  uint64_t state_;
  const Variant* variant_;
  int repeats_;
  bool accepted_ = true, weighs_ = false;
  std::span<const Variant> among_;  // empty: no matter which would run
  size_t weighed_ = 0;
  double flops_ = 0, bytes_ = 0, time_for_ = 0, seconds_in_a_row_ = 0;
  std::vector<double> seconds_, thread_seconds_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::pair<const PackedExtent*, int64_t>> extents_;
};

using CaseFunction = std::function<void(Case&)>;

class Suite {
 public:
  struct Entry {
    std::string op, label;
    CaseFunction function;
    bool bench = false;
    // On the simulator only for these variants, or for none, where it takes long and others show
    // the same there; not set: for all.
    std::optional<std::vector<std::string>> simulated = {};
    bool gpus_only = false;  // CPUs' kernels have nothing to show there
  };
  // A case of the op whose arguments `fill` makes of what is given.
  template <class Args, class... Given>
  Entry& add(std::string label, void (*fill)(Case&, Args&, Given...),
             std::decay_t<Given>... given) {
    return entries.emplace_back(Entry{Args::op, std::move(label), [=](Case& c) {
                                        Args args;
                                        fill(c, args, given...);
                                        c.run(args);
                                      }});
  }
  // A shape worth timing; checked as well when --bench is given.
  template <class Args, class... Given>
  Entry& add_bench(std::string label, void (*fill)(Case&, Args&, Given...),
                   std::decay_t<Given>... given) {
    Entry& entry = add(std::move(label), fill, std::move(given)...);
    entry.bench = true;
    return entry;
  }
  void add_variants(std::span<const Variant> more) {
    variants.insert(variants.end(), more.begin(), more.end());
  }
  std::vector<Entry> entries;
  // Beside those of the program: of ops that only cases have, and other libraries'.
  std::vector<Variant> variants;
};

// All ops' cases: of each source of bench/cases.
Suite full_suite();

struct Options {
  // Substrings of "op/label"; cases run in the order of these, and within each in the suite's.
  std::vector<std::string> filters;
  std::vector<std::string> ops;  // only these; empty: all
  // The cases number `part`, part + parts, part + 2 parts, ... of each op run, counted from 1.
  int part = 1, parts = 1;
  std::string variant;   // only this variant name
  bool chosen = false;   // of each case only the variants that would run by themselves
  std::string backend;   // only this backend
  int device_index = 0;  // among GPUs
  std::vector<int> threads = {1, 2, 3};
  uint64_t seed = 1;
  // sim: threads in forward order; in that and one of reverse and shuffled; in all three.
  int orders = 2;
  bool bench = false;
  double bench_seconds = 0.3;  // per case and variant
  bool json = false;
  bool list = false;  // with json: also the bytes that each run has the host fill and compare
  // For whoever watches a run on a GPU that may end or hang in any case: each is named on stderr
  // before it runs ("op/case backend:variant"), and a run can go on after such a name.
  bool announce = false;
  std::string after;
  bool peers = true;  // other libraries' kernels too
  // Checks the benchmark shapes, against the one of these variants that the op has, on the same
  // device: `ref` takes minutes there.
  std::vector<std::string> against;
};

struct Summary {
  int passed = 0, failed = 0, skipped = 0;
  int chosen = 0;        // cases that the options name, for each variant
  int peers_differ = 0;  // somebody else's results are not ours: told, but no failure
};

// A kernel has left the device useless for this process; what it did so is reported as failed.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

// The first filter that no case of the suite contains; empty when there is none.
std::string filter_without_cases(const Suite& suite, const Options& options);

// Runs the suite, prints to stdout. Throws DeviceLost.
Summary run_suite(const Suite& suite, const Options& options);

inline constexpr std::initializer_list<DType> f32_bf16 = {DType::f32, DType::bf16};

// Every combination of one of each list, the last list's going round first.
template <class... T>
std::vector<std::tuple<T...>> every(std::initializer_list<T>... lists) {
  const size_t count = (size_t{1} * ... * lists.size());
  std::vector<std::tuple<T...>> all;
  for (size_t n = 0; n < count; ++n) {
    size_t block = count;
    const auto next = [&](const auto& list) {
      block /= list.size();
      return *(list.begin() + n / block % list.size());
    };
    all.push_back(std::tuple<T...>{next(lists)...});
  }
  return all;
}

// Bytes of the rows that a case with `rows` rows, an eighth of them spare, reads or writes in one
// pass: spare rows are no traffic.
inline double live_bytes(int64_t rows, int64_t cols, DType dtype) {
  return static_cast<double>((rows - rows / 8) * cols) * static_cast<double>(size_of(dtype));
}

// {|got - want| <= tolerance} with NaN and inf as Tolerance says.
bool matches(double got, double want, const Tolerance& tolerance);

// Where outputs differ by more than `sides` times their tolerance: the first place and how many;
// empty: nowhere. sides = 2 where both may be off by it, 1 where `want` is the reference's.
std::string difference(const std::vector<Case::Output>& got, const std::vector<Case::Output>& want,
                       double sides);

}  // namespace rondo::check
