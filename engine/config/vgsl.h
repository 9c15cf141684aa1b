// Models written as VGSL strings ("variable-size graph specification language"), as Tesseract and
// kraken have them: [1,48,0,1 Cr3,13,32 Mp2,2 S1(1x0)1,3 Lbx200 Do0.5].
//
// docs/training.md says what is read. What a string may hold besides has no layer here and is
// refused by name. (Tesseract's documentation, "VGSL Specs"; kraken's, "VGSL network
// specification".)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/layer_types.h"

namespace rondo {

struct VgslModel {
  int height = 0;  // of the images: values per frame of the features
  std::vector<LayerConfig> layers;
  // What each layer is called, as {name} or, as kraken does, by its kind and place: "C_0", "L_5".
  // An activation, which belongs to the convolution before it, has no name.
  std::vector<std::string> names;
  std::string output;  // likewise, of O1c; empty where there is none
  int classes = 0;     // of O1c; 0: not said
};

// Throws InputError, "<where>, character 12: ...", with the position, counted from 1, of what
// cannot be read.
VgslModel parse_vgsl(std::string_view text, const std::string& where);

}  // namespace rondo
