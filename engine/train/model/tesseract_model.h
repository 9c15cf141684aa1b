// Tesseract's models for recognising lines of text (.traineddata), read.
//
// Such a file begins with the number of components (i32) and where each begins (i64; -1: it is not
// there). Three are used: the network (17), its characters (21, text), and which class each of them
// is (22). The network is a tree of layers: a name, sizes, and matrices of doubles, or of bytes
// with one scale to a row; the last column of a matrix is the bias. All numbers are little-endian.
// (Tesseract 5, "VGSL Specs" and "combine_tessdata" in its documentation.)
//
// Read are networks that are a series of convolutions, pooling, LSTMs along the height that leave
// their last output, LSTMs along the width in either direction or in both, and a softmax, of one
// class for each character, or for each code point of one.
//
// Of scripts that are written from right to left the network is mirrored: it reads from the right
// edge here.
//
// What differs in computing: Tesseract pads convolutions with noise, rounds the values between
// layers to bytes where the weights are bytes, and clips cells to 100; here they are padded with
// the mean of that noise, zero, and stay as they are.
//
// Errors: InputError that begins with the file's name. Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "engine/train/model/foreign_model.h"

namespace rondo {

// `bytes`: the whole file; `name`: of the file, for messages.
ForeignModel read_tesseract_model(std::span<const std::byte> bytes, const std::string& name);

}  // namespace rondo
