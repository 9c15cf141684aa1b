// Layers: functions that add nodes and parameters to a graph.
//
//   Graph g;
//   ValueId x = layers::input_frames(g, "features", 40);
//   x = layers::stack_frames(g, x, 3);
//   x = layers::lstm(g, x, "encoder", {.hidden = 256, .layers = 3, .bidirectional = true});
//   ValueId logits = layers::linear(g, x, "output", 29);
//   ValueId loss = layers::ctc_loss(g, logits);
//   append_backward(g, loss);
//
// Parameters are named <name>.weight, <name>.bias and so on, PyTorch's way. Every function throws
// Error when shapes do not fit. Values on the frames axis are [rows, cols] packed
// (kernels/base/packed.h), those on the sequences axis [N, cols] in packed order.
#pragma once

#include <string>
#include <string_view>

#include "engine/graph/graph.h"
#include "kernels/conv/conv_context.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pool2d/pooling2d.h"

namespace rondo::layers {

// An f32 input of `cols` features per frame (or per sequence), cast to the graph's compute dtype.
ValueId input_frames(Graph& g, std::string name, int64_t cols);
ValueId input_sequences(Graph& g, std::string name, int64_t cols);

// y = x W^T + b. <name>.weight [out, in], <name>.bias [1, out].
ValueId linear(Graph& g, ValueId x, const std::string& name, int64_t out, bool bias = true);

struct ConvOptions {
  int64_t channels = 0;  // columns of the output
  int kernel = 1;        // taps
  int stride = 1;        // so many frames of the input per frame of the output
  int dilation = 1;      // frames from tap to tap
  ConvContext context = ConvContext::both;
};

// A convolution over time. Sequences are padded with zeros so that ceil(length / stride) frames
// come out, frame t at frame t * stride of the input. <name>.weight [channels, columns of x *
// kernel], in files [channels, columns of x, kernel], <name>.bias [1, channels].
ValueId conv(Graph& g, ValueId x, const std::string& name, const ConvOptions& options);

// Images. A value is an image where its shape has a height (Shape::height): its frames are columns
// of pixels. Anything else on the frames axis is taken for one of one channel, each of its columns
// a pixel, the first at the top. What is no layer for images reads an image as it lies in memory,
// from top to bottom all channels of each pixel, and makes plain frames of it, except for
// activations, dropout, and the norms, which leave it an image.
struct Conv2dOptions {
  int64_t channels = 0;                         // of the output
  int kernel_height = 1, kernel_width = 1;      // taps along height and time
  int stride_height = 1, stride_width = 1;      // so many rows, or frames, become one
  int dilation_height = 1, dilation_width = 1;  // rows, or frames, from tap to tap
  int groups = 1;                               // of channels, on either side
};

// A convolution over height and time. Images are padded with zeros so that ceil(height /
// stride_height) rows and ceil(length / stride_width) frames come out; of an even kernel one row
// more is above, and one frame more before, than below and behind. An output is made of the
// channels of its group alone (kernels/conv/conv.h). <name>.weight [channels, channels of x /
// groups * taps], in files [channels, channels of x / groups, kernel_height, kernel_width],
// <name>.bias [1, channels]. Throws InputError, which begins with `name`, where groups do not
// divide the channels.
ValueId conv2d(Graph& g, ValueId x, const std::string& name, const Conv2dOptions& options);
// The greatest, or the mean, of each `height` x `width` pixels that lie side by side: floor(image's
// height / height) rows and ceil(length / width) frames come out, the last of what is left. Throws
// InputError, which begins with `name`, where the image is less than `height` high.
// `whole`: what is left of a sequence is dropped, and floor(length / width) frames come out.
ValueId pool2d(Graph& g, ValueId x, const std::string& name, Pooling2d pooling, int height,
               int width, bool whole = false);

struct LstmOptions {
  int64_t hidden = 0;
  int layers = 1;
  bool bidirectional = false;
  int64_t projection = 0;   // 0: none
  double dropout = 0;       // between layers (not after the last)
  bool layer_norm = false;  // after each layer
  bool residual = false;    // y + x where the widths agree
  bool backward = false;    // from the last frame to the first; not with bidirectional
};

// Initial and final states of one layer: h [D, N, P], c [D, N, H] (see kernels/lstm/lstm.h).
struct LstmState {
  ValueId h = no_value, c = no_value;
};
struct LstmLayerResult {
  ValueId y = no_value;
  LstmState final_state;
};

// A stack of layers. Parameters <name>.<layer>.weight_ih / weight_hh / bias [/ weight_hr], with
// _reverse for the second direction. Throws InputError, which begins with `name`, where it is to
// read backwards and in both directions.
ValueId lstm(Graph& g, ValueId x, const std::string& name, const LstmOptions& options);
// One layer with explicit states; absent states are zeros. Ignores options.layers, dropout,
// layer_norm, residual and backward.
LstmLayerResult lstm_layer(Graph& g, ValueId x, const std::string& name, const LstmOptions& options,
                           LstmState initial = {});

// An LSTM along the height of images, from top to bottom, or both ways: every column of pixels is a
// sequence by itself, whose frames are its pixels. `summarize`: its last output, at the bottom,
// becomes the frame, and the image plain frames of `hidden` columns; that reads one way. Otherwise
// an image of as many rows comes out. Parameters as of lstm_layer(). Throws InputError, which
// begins with `name`, for a summary of both ways.
struct HeightLstmOptions {
  int64_t hidden = 0;
  bool bidirectional = false;
  bool summarize = true;
};
ValueId lstm_height(Graph& g, ValueId x, const std::string& name, const HeightLstmOptions& options);

// A function of one operand, of each element.
ValueId activation(Graph& g, ValueId x, PointwiseFunction function);
inline ValueId relu(Graph& g, ValueId x) { return activation(g, x, PointwiseFunction::relu); }
inline ValueId tanh(Graph& g, ValueId x) { return activation(g, x, PointwiseFunction::tanh); }
inline ValueId sigmoid(Graph& g, ValueId x) { return activation(g, x, PointwiseFunction::sigmoid); }
inline ValueId gelu(Graph& g, ValueId x) { return activation(g, x, PointwiseFunction::gelu); }
ValueId add(Graph& g, ValueId a, ValueId b);  // residual connections

// Inverted dropout; nothing in a graph that is not for training. `name` keys the random numbers.
// Over channels: all pixels of a channel in a sequence, or all its frames where it is no image, are
// dropped together.
enum class DropoutOver : uint8_t { values, channels };
ValueId dropout(Graph& g, ValueId x, const std::string& name, double p,
                DropoutOver over = DropoutOver::values);
// Normalises over the columns; <name>.weight and <name>.bias are [1, cols].
ValueId layer_norm(Graph& g, ValueId x, const std::string& name, double epsilon = 1e-5);
// Normalises each sequence by itself, over all its frames and pixels and the channels of one of
// `groups` groups of neighbouring channels; of plain frames, columns are channels. <name>.weight
// and <name>.bias are [1, channels]. Throws InputError, which begins with `name`, where the groups
// do not divide the channels.
ValueId group_norm(Graph& g, ValueId x, const std::string& name, int groups, double epsilon = 1e-5);
// Concatenates each `factor` frames into one; ceil(length / factor) frames remain.
ValueId stack_frames(Graph& g, ValueId x, int factor);
// [frames] -> [sequences].
ValueId last_frame(Graph& g, ValueId x);
ValueId mean_pool(Graph& g, ValueId x);
ValueId log_softmax(Graph& g, ValueId x);

// Losses: one number per sequence (or frame), summed by whoever reads them.
struct CtcLossOptions {
  int32_t blank = 0;
  bool zero_infinity = false;
  bool log_softmax_input = false;
};
// The labels are the batch's (BatchView::labels).
ValueId ctc_loss(Graph& g, ValueId logits, const CtcLossOptions& options = {});
// Targets: an i32 input "<name>" with one class per row of the logits; -1 is ignored.
ValueId cross_entropy(Graph& g, ValueId logits, const std::string& targets_name);
// Targets: an f32 input "<name>" of the prediction's shape. Mean over the columns.
ValueId mean_squared_error(Graph& g, ValueId prediction, const std::string& targets_name);

}  // namespace rondo::layers
