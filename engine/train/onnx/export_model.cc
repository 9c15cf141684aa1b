#include "engine/train/onnx/export_model.h"

#include <algorithm>
#include <vector>

#include "engine/data/features/acoustic_features.h"
#include "engine/data/features/cmvn.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_description.h"
#include "engine/train/model/open_data.h"
#include "engine/train/onnx/export_graph.h"
#include "engine/train/onnx/onnx_graph.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using onnx::Attribute;
using onnx::ElementType;
using onnx::Model;
using onnx::Name;
using Dims = std::vector<int64_t>;

struct Frames {
  Name values, lengths;  // [N, T, columns] f32, [N] i64
};

// [rows, columns] turned round.
std::vector<float> transposed(const Matrix& m) {
  std::vector<float> out;
  out.reserve(m.data.size());
  for (int32_t j = 0; j < m.dim; ++j)
    for (int64_t i = 0; i < m.frames; ++i) out.push_back(m.row(i)[j]);
  return out;
}

Name times_transposed(Model& model, const Name& x, const char* hint, const Matrix& m) {
  return model.node("MatMul", {x, model.constant(hint, {int64_t{m.dim}, m.frames}, transposed(m))});
}

// An input; of streams, whose parts are of one length, that length.
Name lengths_of(Model& model, const Name& sequences, bool streams) {
  if (!streams) return model.input("lengths", ElementType::i64, {std::string("N")});
  const Name shape = model.node("Shape", {sequences});
  const auto part = [&](int64_t at) {
    return model.node("Slice",
                      {shape, model.integers({at}), model.integers({at + 1}), model.integers({0})});
  };
  return model.node("Expand", {part(1), part(0)});
}

// Frames of sound, one after the other through the same products.
Frames add_sound(Model& model, const SoundConfig& config, bool streams) {
  const FeatureProducts p = products_of(config);
  const Name samples =
      model.input("samples", ElementType::f32, {std::string("N"), std::string("samples")});
  const Name lengths = lengths_of(model, samples, streams);
  // Shorter sounds than a window are padded to one, so that there is something to multiply; they
  // have no frames.
  const Name size = model.node("Slice", {model.node("Shape", {samples}), model.integers({1}),
                                         model.integers({2}), model.integers({0})});
  const Name missing = model.node(
      "Max", {model.node("Sub", {model.integers({p.window}), size}), model.integers({0})});
  const Name none = model.integers({0});
  const Name pads = model.node("Concat", {none, none, none, missing}, {{"axis", int64_t{0}}});
  const Name padded = model.node("Pad", {samples, pads, model.scalar(0)});
  const Name wave = model.node("Unsqueeze", {padded, model.integers({1})});
  const auto product = [&](const char* hint, const Matrix& m) {
    return model.node("Conv", {wave, model.constant(hint, {m.frames, 1, p.window}, m.data)},
                      {{"kernel_shape", Dims{p.window}}, {"strides", Dims{p.hop}}});
  };
  const Name re = product("cosines", p.cosines), im = product("sines", p.sines);
  const Name power = model.node("Add", {model.node("Mul", {re, re}), model.node("Mul", {im, im})});
  const Name spectrum = model.node("Transpose", {power}, {{"perm", Dims{0, 2, 1}}});
  const Name mel = times_transposed(model, spectrum, "mel", p.mel);
  Name features = model.node("Log", {model.node("Max", {mel, model.scalar(p.least)})});
  if (!p.dct.data.empty()) features = times_transposed(model, features, "dct", p.dct);
  // floor((samples - window) / hop) + 1, none of less than a window.
  const Name beyond = model.node(
      "Add", {model.node("Sub", {lengths, model.integers({p.window})}), model.integers({p.hop})});
  const Name frames = model.node(
      "Div", {model.node("Max", {beyond, model.integers({0})}), model.integers({p.hop})});
  return {features, frames};
}

Frames add_features(Model& model, int64_t columns, bool streams) {
  Frames f;
  f.values =
      model.input("features", ElementType::f32, {std::string("N"), std::string("frames"), columns});
  f.lengths = lengths_of(model, f.values, streams);
  return f;
}

// As normalize_utterance() does: minus the mean over `axes` of what is there, and divided by the
// standard deviation, if there is one.
Name normalized(Model& model, const Frames& x, int64_t columns, bool whole) {
  constexpr float least_variance = 1e-10F;
  const Name there = onnx::frames_there(model, x.values, x.lengths);
  const Name share = onnx::as_numbers(model, there);
  const Name axes = whole ? model.integers({1, 2}) : model.integers({1});
  const Name frames =
      onnx::as_numbers(model, model.node("Reshape", {x.lengths, model.integers({-1, 1, 1})}));
  const Name count =
      model.node("Mul", {frames, model.scalar(whole ? static_cast<float>(columns) : 1)});
  const auto mean = [&](const Name& of) {
    return model.node("Div", {model.node("ReduceSum", {of, axes}), count});
  };
  const Name known = model.node("Where", {there, x.values, model.scalar(0)});
  const Name centred = model.node("Mul", {model.node("Sub", {known, mean(known)}), share});
  const Name variance = mean(model.node("Mul", {centred, centred}));
  const Name varies = model.node("Greater", {variance, model.scalar(least_variance)});
  const Name deviation =
      model.node("Sqrt", {model.node("Max", {variance, model.scalar(least_variance)})});
  return model.node("Where", {varies, model.node("Div", {centred, deviation}), model.scalar(0)});
}

Name add_normalisation(Model& model, const ModelDescription& d, const Frames& x) {
  const auto columns = static_cast<int64_t>(d.sizes.features);
  switch (cmvn_mode_of(d.config.features)) {
    case CmvnMode::none:
      return x.values;
    case CmvnMode::mean_variance:
      return normalized(model, x, columns, false);
    case CmvnMode::whole:
      return normalized(model, x, columns, true);
    case CmvnMode::mean:  // no setting asks for it
    case CmvnMode::global:
      break;
  }
  if (d.mean.empty()) return x.values;
  const Name centred = model.node("Sub", {x.values, model.constant("mean", {columns}, d.mean)});
  return model.node("Mul", {centred, model.constant("inverse_std", {columns}, d.inverse_std)});
}

}  // namespace

std::string onnx_of_model(const SafetensorsFile& file, const OnnxOptions& o) {
  ModelDescription d = ModelDescription::from_metadata(file.metadata(), file.name());
  try {
    d.config.training.dtype = DType::f32;
    d.config.features.dither = 0;
    if (o.streams && d.config.features.cmvn == Cmvn::utterance)
      fail_input(
          "features.cmvn = \"utterance\" normalises over the whole utterance: it cannot "
          "stream");
    const Graph graph = inference_graph(d);
    Model model;
    const bool is_sound = input_kind(d.config.features.type) == InputKind::recording &&
                          o.input == OnnxInput::automatic;
    const Frames x = is_sound ? add_sound(model, d.config.features, o.streams)
                              : add_features(model, d.sizes.features, o.streams);
    const Name features = add_normalisation(model, d, x);
    const onnx::Exported out =
        onnx::export_graph(model, graph, file, features, x.lengths,
                           o.streams ? onnx::Lifetime::streams : onnx::Lifetime::batches);
    const std::string n = "N", frames = "output_frames";
    if (out.lengths.empty()) {
      model.output(out.outputs, "outputs", ElementType::f32, {n, d.sizes.outputs});
    } else {
      model.output(out.outputs, "logits", ElementType::f32, {n, frames, d.sizes.outputs});
      if (!o.streams) model.output(out.lengths, "output_lengths", ElementType::i64, {n});
    }
    model.describe("rondo", o.metadata);
    if (o.streams) {
      const FeaturesConfig& f = d.config.features;
      const int64_t hop = is_sound ? f.shift_samples() : 1;
      const int64_t overlap = is_sound ? f.window_samples() - hop : 0;
      model.describe("stream", str("{\"multiple\": ", subsampling_of(d.config.model) * hop,
                                   ", \"overlap\": ", overlap, "}"));
    }
    return model.bytes(o.version);
  } catch (const InputError& e) {
    fail_input(file.name(), ": ", e.what());
  }
}

}  // namespace rondo
