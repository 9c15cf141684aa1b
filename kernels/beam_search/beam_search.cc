#include "kernels/beam_search/beam_search.h"

#include "kernels/base/check_view.h"
#include "kernels/beam_search/beam_search_impl.h"

namespace rondo {
namespace {

// Asked by GPU variants alone.
[[maybe_unused]] bool fits_a_block(const Context&, const void* args) {
  if (!args) return true;
  const auto& a = *static_cast<const BeamSearchArgs*>(args);
  return (a.scores.dtype == DType::f32 || a.scores.dtype == DType::bf16) &&
         a.beam <= beam_search_most_beam && a.scores.dim(1) <= beam_search_most_classes;
}

}  // namespace

size_t beam_search_workspace_bytes(int64_t rows, int64_t classes, int32_t beam) {
  return BeamSearchWorkspace(nullptr, rows, classes, beam).bytes;
}

void check_beam_search(const BeamSearchArgs& a) {
  const PackedCapacity& c = a.layout.capacity;
  const int64_t classes = a.scores.dim(1), prefixes = int64_t{c.sequences} * a.beam;
  RONDO_CHECK(a.beam >= 1, "beam_search: beam is ", a.beam);
  RONDO_CHECK(a.blank >= 0 && a.blank < classes, "beam_search: blank ", a.blank, " of ", classes,
              " classes");
  RONDO_CHECK(a.floor >= 0 && a.range >= 0 && a.range <= 1, "beam_search: floor ", a.floor,
              ", range ", a.range);
  RONDO_CHECK(!a.automaton.gains == !a.automaton.next, "beam_search: half an automaton");
  RONDO_CHECK(c.rows * a.beam < INT32_MAX, "beam_search: ", c.rows, " rows and beam ", a.beam,
              " are more prefixes than can be counted");
  check_matrix(a.op, "scores", a.scores, a.scores.dtype, c.rows, classes);
  check_elements(a.op, "counts", a.counts, c.sequences);
  check_elements(a.op, "stopped", a.stopped, c.sequences);
  check_elements(a.op, "exponents", a.exponents, c.sequences);
  check_elements(a.op, "lengths", a.lengths, prefixes);
  check_elements(a.op, "states", a.states, prefixes);
  check_elements(a.op, "probabilities", a.probabilities, prefixes);
  check_elements(a.op, "labels", a.labels, c.rows * a.beam);
  RONDO_CHECK(a.workspace.bytes() >= beam_search_workspace_bytes(c.rows, classes, a.beam),
              "beam_search: a workspace of ", a.workspace.bytes(), " bytes");
}

std::span<const Variant> beam_search_variants() {
  static constexpr Variant variants[] = {
      variant<BeamSearchArgs, beam_search_ref>("ref", Backend::ref),
      RONDO_GPU_VARIANTS(BeamSearchArgs, beam_search_gpu, "block", Role::standard, fits_a_block)};
  return variants;
}

}  // namespace rondo
