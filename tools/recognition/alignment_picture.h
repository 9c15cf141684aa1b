// Pictures of how a model's outputs align with a text: the option --picture of commands.
#pragma once

#include <string>

#include "engine/data/audio/waveform.h"
#include "engine/data/image/line_features.h"
#include "engine/decode/transcript/transcript.h"
#include "tools/command_line/command_line.h"

namespace rondo {

struct PictureOptions {
  std::string path;  // empty: none is asked for
  double from = 0;   // seconds
  double to = 0;     // 0: the end, or as much behind `from` as can be seen

  bool asked() const { return !path.empty(); }
};

// --picture, --picture-from, --picture-to.
void add_picture_options(Command& command, PictureOptions* options);

// Draws the part of the recording that is asked for; the title says which, where it is not all.
// `name`: of the recording, for messages. `audio`: the whole recording, or no samples. Throws
// WrongUsage for an end before the begin, InputError where the part holds no frame, and for a file
// that cannot be written.
void draw_alignment(const PictureOptions& options, const std::string& name,
                    const Transcript& transcript, const Vocabulary& vocabulary,
                    double frame_seconds, const Waveform& audio);

// Draws the alignment of a whole line over its image, as the network reads it: with its beginning
// on the left. The labels of `transcript` have their places
// in columns of the scaled line, as its frames, which are `frame_columns` long, begin with padding.
// Throws as draw_alignment does.
void draw_line_alignment(const PictureOptions& options, const std::string& name,
                         const Transcript& transcript, const Vocabulary& vocabulary,
                         double frame_columns, const LineConfig& line, const GreyImage& image);

}  // namespace rondo
