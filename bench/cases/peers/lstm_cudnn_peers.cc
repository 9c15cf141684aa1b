#include <array>
#include <map>
#include <mutex>
#include <string_view>

#include "bench/cases/check/check.h"
#include "bench/cases/peers/lstm_cudnn.h"

namespace rondo::check {
namespace {

// What accepts() has made ready for the run() that follows it on the same stream; one at a time,
// because workspaces are large.
struct Ready {
  std::unique_ptr<CudnnLstm> layer;
  CudnnLstmKind kind;
  std::string_view op;
};
Ready& ready_on(Stream* stream) {
  static std::mutex mutex;
  static auto& all = *new std::map<void*, Ready>;  // the driver may go first
  const std::lock_guard lock(mutex);
  return all[stream->native()];
}

const LstmForwardArgs& forward_of(const LstmForwardArgs& a) { return a; }
const LstmForwardArgs& forward_of(const LstmStepArgs& a) { return a.forward; }

template <class Args>
bool get_ready(const Context& context, const void* args, const CudnnLstmKind& kind) {
  const Cudnn* library = find_cudnn();
  if (!library || !args) return library != nullptr;
  const Args& a = *static_cast<const Args*>(args);
  if (forward_of(a).run != LstmRun::both) return false;
  Ready& ready = ready_on(context.stream);
  ready = {};
  ready.layer =
      CudnnLstm::make(*library, context, kind, forward_of(a), std::is_same_v<Args, LstmStepArgs>);
  ready.kind = kind;
  ready.op = Args::op;
  return ready.layer != nullptr;
}

template <class Args>
void run_ready(const Context& context, const Args& a, const CudnnLstmKind& kind) {
  Ready& ready = ready_on(context.stream);
  RONDO_CHECK(ready.layer && ready.kind == kind && ready.op == Args::op,
              "a peer runs after its accepts()");
  ready.layer->run(context, a);
}

template <class Args, cudnnRNNAlgo_t algorithm, bool padded, CudnnMath math>
constexpr Variant peer(const char* name) {
  return {Args::op,
          name,
          Backend::cuda,
          math == CudnnMath::exact ? Role::peer : Role::timed,
          [](const Context& context, const void* args) {
            run_ready(context, *static_cast<const Args*>(args), {algorithm, padded, math});
          },
          [](const Context& context, const void* args) {
            return get_ready<Args>(context, args, {algorithm, padded, math});
          }};
}

template <class Args>
std::span<const Variant> peers() {
  constexpr auto standard = CUDNN_RNN_ALGO_STANDARD;
  constexpr auto fixed = CUDNN_RNN_ALGO_PERSIST_STATIC;
  constexpr auto dynamic = CUDNN_RNN_ALGO_PERSIST_DYNAMIC;
  constexpr auto small = CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H;
  constexpr auto exact = CudnnMath::exact, tf32 = CudnnMath::tf32, f16 = CudnnMath::f16;
  static constexpr auto list = std::array{
      peer<Args, standard, false, exact>("cudnn_standard_packed"),
      peer<Args, standard, false, tf32>("cudnn_standard_packed_tf32"),
      peer<Args, standard, false, f16>("cudnn_standard_packed_f16"),
      peer<Args, standard, true, exact>("cudnn_standard_padded"),
      peer<Args, standard, true, tf32>("cudnn_standard_padded_tf32"),
      peer<Args, standard, true, f16>("cudnn_standard_padded_f16"),
      peer<Args, fixed, false, exact>("cudnn_static_packed"),
      peer<Args, fixed, false, tf32>("cudnn_static_packed_tf32"),
      peer<Args, fixed, false, f16>("cudnn_static_packed_f16"),
      peer<Args, fixed, true, exact>("cudnn_static_padded"),
      peer<Args, fixed, true, tf32>("cudnn_static_padded_tf32"),
      peer<Args, fixed, true, f16>("cudnn_static_padded_f16"),
      peer<Args, dynamic, false, exact>("cudnn_dynamic_packed"),
      peer<Args, dynamic, false, tf32>("cudnn_dynamic_packed_tf32"),
      peer<Args, dynamic, false, f16>("cudnn_dynamic_packed_f16"),
      peer<Args, dynamic, true, exact>("cudnn_dynamic_padded"),
      peer<Args, dynamic, true, tf32>("cudnn_dynamic_padded_tf32"),
      peer<Args, dynamic, true, f16>("cudnn_dynamic_padded_f16"),
      peer<Args, small, false, exact>("cudnn_small_packed"),
      peer<Args, small, false, tf32>("cudnn_small_packed_tf32"),
      peer<Args, small, false, f16>("cudnn_small_packed_f16"),
      peer<Args, small, true, exact>("cudnn_small_padded"),
      peer<Args, small, true, tf32>("cudnn_small_padded_tf32"),
      peer<Args, small, true, f16>("cudnn_small_padded_f16"),
  };
  return list;
}

}  // namespace

void lstm_cudnn_peers(Suite& suite) {
  suite.add_variants(peers<LstmForwardArgs>());
  suite.add_variants(peers<LstmStepArgs>());
}

}  // namespace rondo::check
