// columns: the pixels of an image's columns, one after the other, as frames: each column, a frame
// of the image, becomes a sequence of a level of columns (Level::column). images: the way back.
// Each is the gradient of the other.
//   inputs   x: image [rows, height * channels]; of images: [rows * height, channels]
//   attributes level, of the result, height
#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/pack/pack.h"

namespace rondo {
namespace {

constexpr const char* columns_op = "columns";
constexpr const char* images_op = "images";

std::vector<InferredValue> infer_columns(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  const int64_t height = node.attributes.integer("height");
  const auto level = static_cast<int>(node.attributes.integer("level"));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1 && x.cols % height == 0,
              "columns reads images ", height, " high, not ", to_string(x));
  return {{"columns", Shape::frames(level, x.cols / height), g.value(node.inputs[0]).dtype}};
}

std::vector<InferredValue> infer_images(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  RONDO_CHECK(x.axis == Axis::frames && x.planes == 1, "images reads columns, not ", to_string(x));
  return {{"images",
           Shape::image(static_cast<int>(node.attributes.integer("level")),
                        node.attributes.integer("height"), x.cols),
           g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0];
  if (!b.needs(x)) return;
  const ValueId dx = b.like(x, "columns.dx");
  b.emit(node.op == columns_op ? images_op : columns_op, {b.of(node.outputs[0])}, {dx},
         node.attributes, Phase::backward, node.stage);
  b.contribute(x, dx);
}

// An image as one array [columns, height, channels], padded to nothing.
TensorView columns_of(TensorView image, int64_t height) {
  return {image.data, image.dtype, {image.dim(0), height, image.dim(1) / height}};
}

template <class Args>
Thunk bind_copy(const Binder& b, const Node& node, ValueId image, ValueId columns) {
  Args a;
  a.padded_layout = PaddedLayout::batch_major;
  a.layout = b.layout_of(columns);
  a.padded = columns_of(b.view(image), node.attributes.integer("height"));
  a.packed = b.view(columns);
  return bound(b, a);
}

Thunk bind_columns(const Binder& b, const Node& node) {
  return bind_copy<PackArgs>(b, node, node.inputs[0], node.outputs[0]);
}
Thunk bind_images(const Binder& b, const Node& node) {
  return bind_copy<UnpackArgs>(b, node, node.outputs[0], node.inputs[0]);
}

}  // namespace

std::span<const OpRule> columns_rules() {
  static const OpRule rules[] = {{.op = columns_op,
                                  .infer = infer_columns,
                                  .backward = backward,
                                  .bind = bind_columns,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work},
                                 {.op = images_op,
                                  .infer = infer_images,
                                  .backward = backward,
                                  .bind = bind_images,
                                  .time = {.kind = TimeKind::rows},
                                  .work = operand_work}};
  return rules;
}

}  // namespace rondo
