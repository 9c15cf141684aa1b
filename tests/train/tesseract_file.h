// A small model in Tesseract's format, made by hand: every kind of layer that is read, with random
// weights, which a test may look at.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

struct TesseractFile {
  // [rows, columns], the last column the bias, as the file has them.
  struct Matrix {
    int rows = 0, cols = 0;
    std::vector<double> values;
    double at(int row, int col) const { return values[static_cast<size_t>(row * cols + col)]; }
  };

  static constexpr int height = 6, channels = 2, summary = 3, cells = 2, classes = 4;
  static constexpr int across = 1, down = 2;  // pixels of the kernel on each side of its middle
  static constexpr int pool_along = 3, pool_down = 2;

  std::string characters =
      "4\nNULL 0 Common 0\nb 3 Latin 1 0\nJoined 7 Latin 2\na\xcc\x88 3 Latin 3 0\n";
  std::vector<std::vector<int32_t>> codes = {{0}, {1}, {3}, {2}};
  int32_t blank = 3;
  std::string last = "Softmax";
  bool in_bytes = false, in_training = false, both_ways = false;
  // By the layer's name and the gate's number: filled by bytes().
  std::map<std::string, Matrix> matrices;

  std::string bytes() {
    random_.seed(7);
    matrices.clear();
    const std::string parts[] = {network(), characters, codes_text()};
    std::string file;
    number<int32_t>(file, 24);
    size_t begin = 4 + 24 * 8;
    for (size_t i = 0; i < 24; ++i) {
      const int part = i == 17 ? 0 : i == 21 ? 1 : i == 22 ? 2 : -1;
      number<int64_t>(file, part < 0 ? -1 : static_cast<int64_t>(begin));
      if (part >= 0) begin += parts[part].size();
    }
    return file + parts[0] + parts[1] + parts[2];
  }

 private:
  template <class T>
  static void number(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void text(std::string& to, const std::string& value) {
    number<uint32_t>(to, static_cast<uint32_t>(value.size()));
    to += value;
  }

  void head(std::string& to, const std::string& type, int inputs, int outputs, int flags = 0) {
    number<int8_t>(to, 0);
    text(to, type);
    number<int8_t>(to, in_training ? 1 : 0);
    number<int8_t>(to, 1);
    for (const int32_t n : {flags, inputs, outputs, 0}) number(to, n);
    text(to, "a name");
  }

  void weights(std::string& to, const std::string& name, int rows, int cols) {
    Matrix& m = matrices[name] = {rows, cols, {}};
    std::uniform_int_distribution<int> whole(-127, 127);
    std::vector<double> scales;
    for (int row = 0; row < rows; ++row) scales.push_back(0.005 * (row + 1));
    std::string stored(in_bytes ? 1 : 8, '\0');
    for (int i = 0; i < rows * cols; ++i) {
      const int value = whole(random_);
      m.values.push_back(value * scales[static_cast<size_t>(i / cols)]);
      if (in_bytes) {
        number<int8_t>(stored, static_cast<int8_t>(value));
      } else {
        number<double>(stored, m.values.back());
      }
    }
    number<uint8_t>(to, in_bytes ? 128 | 4 | 1 : 128 | 4);
    number<uint32_t>(to, static_cast<uint32_t>(rows));
    number<uint32_t>(to, static_cast<uint32_t>(cols));
    to += stored;
    if (!in_bytes) return;
    number<uint32_t>(to, static_cast<uint32_t>(rows));
    for (const double s : scales) number(to, s);
  }

  void lstm(std::string& to, const std::string& type, const std::string& name, int inputs,
            int outputs) {
    head(to, type, inputs, outputs);
    number<int32_t>(to, inputs + outputs);
    for (int gate = 0; gate < 4; ++gate)
      weights(to, name + std::to_string(gate), outputs, inputs + outputs + 1);
  }

  std::string network() {
    std::string to;
    head(to, "Series", height, classes, 64);
    number<uint32_t>(to, 7);
    head(to, "Input", height, 1);
    for (const int32_t n : {1, height, 0, 1, 0}) number(to, n);
    head(to, "Series", 1, channels);
    number<uint32_t>(to, 2);
    const int taps = (2 * across + 1) * (2 * down + 1);
    head(to, "Convolve", 1, taps);
    number<int32_t>(to, across);
    number<int32_t>(to, down);
    head(to, "Tanh", taps, channels);
    weights(to, "convolution", channels, taps + 1);
    head(to, "Maxpool", channels, channels);
    number<int32_t>(to, pool_along);
    number<int32_t>(to, pool_down);
    head(to, "XYTranspose", channels, summary, 64);
    number<uint32_t>(to, 1);
    lstm(to, "SummLSTM", "summary", channels, summary);
    number<uint32_t>(to, 1);
    number<float>(to, 0.001f);
    middle(to);
    const int width = both_ways ? 2 * cells : cells;
    head(to, last, width, classes);
    weights(to, "softmax", classes, width + 1);
    number<uint32_t>(to, 2);  // learning rates
    for (const float rate : {0.001f, 0.002f}) number(to, rate);
    text(to, "[1,6,0,1 ...]");
    for (const int32_t n : {1, 10, 20, blank}) number(to, n);
    for (const float n : {0.9f, 0.001f, 0.5f}) number(to, n);
    return to;
  }

  // An LSTM from the left and one from the right, one after the other or side by side.
  void middle(std::string& to) {
    if (both_ways) {
      lstm(to, "LSTM", "first", summary, summary);
      head(to, "ParBidiLSTM", summary, 2 * cells);
      number<uint32_t>(to, 2);
      lstm(to, "LSTM", "forward", summary, cells);
    } else {
      lstm(to, "LSTM", "forward", summary, cells);
    }
    head(to, "RTLReversed", both_ways ? summary : cells, cells);
    number<uint32_t>(to, 1);
    lstm(to, "LSTM", "backward", both_ways ? summary : cells, cells);
  }

  std::string codes_text() const {
    std::string to;
    number<uint32_t>(to, static_cast<uint32_t>(codes.size()));
    for (const std::vector<int32_t>& code : codes) {
      number<int8_t>(to, 1);
      number<int32_t>(to, static_cast<int32_t>(code.size()));
      for (const int32_t c : code) number(to, c);
    }
    return to;
  }

  std::mt19937 random_;
};
