#include "engine/config/vgsl.h"

#include <algorithm>
#include <charconv>

#include "engine/layers/layers.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  VgslModel parse() {
    read_input();
    while (skip_blanks(), layer_ = at_, !take("]")) read_layer();
    if (model_.layers.empty()) fail_at(layer_, "a layer");
    require_frames("before the end");
    skip_blanks();
    if (at_ < text_.size()) fail("the end, after ']'");
    return std::move(model_);
  }

 private:
  // What the layers so far make: images so many rows high, or plain frames of values.
  struct Shape {
    bool image = true;
    int height = 0;
    int64_t channels = 1;
    // The image as it comes: our layers see plain frames, a value for each row of pixels.
    bool untouched = true;
    // The height is folded, and our layers still see an image.
    bool stacked = false;
  };

  [[noreturn]] void fail_at(size_t position, const std::string& expected) const {
    constexpr size_t most = 24;
    std::string found(text_.substr(position));
    if (const size_t blank = found.find_first_of(" \t\n"); blank != std::string::npos && blank > 0)
      found.resize(blank);
    fail_input(where_, ", character ", position + 1, ": found ",
               position >= text_.size() ? "the end" : str("'", printable_start(found, most), "'"),
               ", expected ", expected);
  }
  [[noreturn]] void fail(const std::string& expected) const { fail_at(at_, expected); }

  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void need(std::string_view what) {
    if (!take(what)) fail(str("'", what, "'"));
  }
  // One of `letters`, or 0.
  char take_letter(std::string_view letters) {
    if (at_ >= text_.size() || letters.find(text_[at_]) == std::string_view::npos) return 0;
    return text_[at_++];
  }

  int number(const char* what, int low, int high) {
    const size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    int value = 0;
    const auto [end, error] = std::from_chars(text_.data() + first, text_.data() + at_, value);
    if (at_ == first || error != std::errc() || value < low || value > high) {
      fail_at(first,
              low == high ? str(low, " as ", what) : str(what, ", from ", low, " to ", high));
    }
    return value;
  }
  // An option of a layer, within that option's bounds.
  void set_number(LayerConfig& layer, const char* option, const char* what) {
    for (const LayerOption& o : layer.type().options) {
      if (o.name != option) continue;
      layer.set(option,
                number(what, static_cast<int>(o.range.low), static_cast<int>(o.range.high)));
    }
  }
  void take_braces(std::string& name) {
    if (!take("{")) return;
    const size_t first = at_;
    while (at_ < text_.size() && text_[at_] != '}') ++at_;
    need("}");
    name = text_.substr(first, at_ - 1 - first);
  }
  // {name}, or what a layer of this kind is called at this place.
  std::string read_name(const char* kind) {
    std::string name = str(kind, "_", count_++);
    take_braces(name);
    return name;
  }
  void add(LayerConfig layer, std::string name) {
    model_.layers.push_back(std::move(layer));
    model_.names.push_back(std::move(name));
  }

  // [1,48,0,1
  void read_input() {
    skip_blanks();
    need("[");
    number("images at a time", 0, 65536);  // ours are as many as fit
    need(",");
    shape_.height = model_.height = number("the height of the images", 1, 65536);
    need(",");
    number("the width, which is any", 0, 0);
    need(",");
    number("the channels of the images", 1, 1);
  }

  void read_layer() {
    if (read_output_) fail("']' after the output layer");
    if (take("C")) return read_convolution();
    if (take("Mp")) return read_pooling();
    if (take("L")) return read_lstm();
    if (take("Do")) return read_dropout();
    if (take("Gn")) return read_group_norm();
    if (take("S")) return read_fold();
    if (take("O")) return read_output();
    fail(
        "a layer: C (convolution), Mp (pooling), L (LSTM), Do (dropout), Gn (group normalisation), "
        "S1(1x0)1,3 or O1c (the output)");
  }

  // A layer ends at a blank or a bracket.
  void end_layer() {
    if (at_ < text_.size() && text_[at_] != ']' && text_[at_] != ' ' && text_[at_] != '\t' &&
        text_[at_] != '\n' && text_[at_] != '\r')
      fail("a blank or ']'");
  }

  void read_output() {
    model_.output = read_name("O");
    if (!take("1c")) fail_at(layer_, "O1c, the output of a CTC model");
    take_braces(model_.output);
    model_.classes = number("the number of classes", 1, 1 << 24);
    read_output_ = true;
    end_layer();
  }

  void read_convolution() {
    const char activation = take_letter("strl");
    if (activation == 0) fail("s, t, r or l: sigmoid, tanh, ReLU or none");
    std::string name = read_name("C");
    LayerConfig layer(shape_.image ? "conv2d" : "conv");
    if (shape_.image) {
      set_number(layer, "kernel_height", "the kernel's height");
    } else {
      number("the kernel's height: the frames are no images here", 1, 1);
    }
    need(",");
    set_number(layer, shape_.image ? "kernel_width" : "kernel", "the kernel's width");
    need(",");
    set_number(layer, "channels", "the number of channels");
    for (const char* what : {"stride", "dilation"}) {
      if (!take(",")) break;
      if (shape_.image) {
        set_number(layer, (str(what) + "_height").c_str(), str("the ", what, " in height").c_str());
      } else {
        number(what, 1, 1);
      }
      need(",");
      set_number(layer, shape_.image ? (str(what) + "_width").c_str() : what,
                 str("the ", what, " in width").c_str());
    }
    end_layer();
    if (shape_.image) {
      const int stride = layer.integer("stride_height");
      shape_.height = (shape_.height + stride - 1) / stride;
    }
    made(layer.integer("channels"));
    add(std::move(layer), std::move(name));
    if (activation != 'l')
      add(LayerConfig(activation == 's' ? "sigmoid" : activation == 't' ? "tanh" : "relu"), "");
  }

  void read_pooling() {
    std::string name = read_name("Mp");
    require_image();
    LayerConfig layer("pool2d");
    const size_t height_at = at_;
    set_number(layer, "height", "the height of a window");
    need(",");
    set_number(layer, "width", "the width of a window");
    const int height = layer.integer("height"), width = layer.integer("width");
    if (height > shape_.height)
      fail_at(height_at, str("windows of at most the ", shape_.height, " rows that are left here"));
    if (take(",")) {
      const size_t steps_at = at_;
      const int down = number("a step", 1, 1024);
      need(",");
      const int along = number("a step", 1, 64);
      if (down != height || along != width)
        fail_at(steps_at, str("windows side by side, with steps of ", height, ",", width));
    }
    end_layer();
    shape_.height /= height;
    made(shape_.channels);
    add(std::move(layer), std::move(name));
  }

  void read_lstm() {
    const char direction = take_letter("frb");
    if (direction == 0)
      fail("f, r or b: an LSTM that reads forwards, backwards, or in both directions");
    const char axis = take_letter("xy");
    if (axis == 0) fail("x or y: an LSTM along the width, or along the height");
    if (direction == 'r' && axis == 'y')
      fail_at(layer_, "Lf or Lb: along the height an LSTM reads from the top, or both ways");
    const size_t summary_at = at_;
    const bool summary = take("s");
    if (axis == 'x') {
      if (summary)
        fail_at(summary_at, "the number of cells: a summary of the width leaves no line");
      require_frames("before the LSTM");
    } else {
      require_image();
      if (summary && direction == 'b')
        fail_at(summary_at, "the number of cells: only an LSTM that reads one way has a summary");
    }
    std::string name = read_name("L");
    LayerConfig layer(axis == 'x' ? "lstm" : "lstm_height");
    set_number(layer, "hidden", "the number of cells");
    end_layer();
    layer.set("bidirectional", direction == 'b');
    if (axis == 'x') layer.set("backward", direction == 'r');
    if (axis == 'y') layer.set("summary", summary);
    if (summary) shape_.image = false;
    made(int64_t{layer.integer("hidden")} * (direction == 'b' ? 2 : 1));
    add(std::move(layer), std::move(name));
  }

  // Do[rate][,dimension]: 0.5,1 where they are not given.
  void read_dropout() {
    std::string name = read_name("Do");
    LayerConfig layer("dropout");
    layer.set("rate", 0.5);
    if (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) {
      double rate = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(),
                                                rate, std::chars_format::fixed);
      if (error != std::errc() || !(rate < 1)) fail("a share of at least 0 and below 1");
      at_ = static_cast<size_t>(end - text_.data());
      layer.set("rate", rate);
    }
    if (take(",")) {
      const int dimension = number("the dimension: values (1) or channels (2)", 1, 2);
      if (dimension == 2) layer.set("over", layers::DropoutOver::channels);
    }
    end_layer();
    add(std::move(layer), std::move(name));
  }

  void read_group_norm() {
    std::string name = read_name("Gn");
    LayerConfig layer("group_norm");
    const size_t groups_at = at_;
    set_number(layer, "groups", "the number of groups");
    end_layer();
    if (shape_.stacked)
      fail_at(layer_, "a group normalisation before S1(1x0)1,3, or behind the next layer");
    if (shape_.image && shape_.untouched && shape_.height > 1)
      fail_at(layer_, "a convolution first: the image has one channel");
    if (shape_.channels % layer.integer("groups") != 0)
      fail_at(groups_at, str("a divisor of the ", shape_.channels, " channels that are here"));
    add(std::move(layer), std::move(name));
  }

  // Pixels on top of each other become one frame's values, as whatever reads frames has them
  // anyway.
  void read_fold() {
    read_name("S");
    if (!take("1(1x0)1,3")) fail_at(layer_, "S1(1x0)1,3, which folds the height into the channels");
    require_image();
    end_layer();
    shape_.image = false;
    shape_.stacked = !shape_.untouched && shape_.height > 1;
    shape_.channels *= shape_.height;
  }

  // A layer has made pixels or frames of so many values.
  void made(int64_t channels) {
    shape_.channels = channels;
    shape_.untouched = shape_.stacked = false;
  }

  void require_image() const {
    if (!shape_.image) fail_at(layer_, "a layer for frames: the height has been folded already");
  }
  void require_frames(const char* when) {
    if (shape_.image && shape_.height > 1)
      fail_at(layer_, str("S1(1x0)1,3 ", when, ": the images are still ", shape_.height, " high"));
    shape_.image = false;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0, layer_ = 0;  // where we are; where the layer begins
  int count_ = 0;              // layers so far, folds among them
  bool read_output_ = false;
  Shape shape_;
  VgslModel model_;
};

}  // namespace

VgslModel parse_vgsl(std::string_view text, const std::string& where) {
  return Parser(text, where).parse();
}

}  // namespace rondo
