// What a model said of its inputs, written for people and programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "tools/recognition/inputs.h"

namespace rondo {

enum class PredictionFormat { text, jsonl, npy, ctm, text_grid, srt, vtt, hocr, alto, page };

// Of --format: "text", "jsonl", "npy", "ctm", "textgrid", "srt", "vtt", "hocr", "alto" or "page".
PredictionFormat prediction_format(const std::string& name);

struct PredictionStyle {
  PredictionFormat format = PredictionFormat::text;
  // Where files go, one for each input: npy, and if it is not empty TextGrid, SRT and VTT; one for
  // each page: hOCR, ALTO and PAGE-XML (page_output.h).
  std::string folder;
  bool named = false;  // there are several; text: a line begins with the input's name and a tab
};

// Formats of words or subtitles with their times in seconds.
bool is_timed(PredictionFormat format);
// Formats of pages.
bool is_of_pages(PredictionFormat format);
// Whether both are lines of one page: of one page file, or regions of one image.
bool are_of_one_page(const ModelInput& a, const ModelInput& b);
// Throws WrongUsage for --out with a format that goes to standard output, and for a format of files
// without it, unless it is subtitles, a TextGrid or a document of a single input (not `named`).
void require_fitting_output(const PredictionStyle& style, const std::string& format);
// Throws InputError where the files of two inputs, or pages, would be one, and for a name that is
// not UTF-8 in jsonl.
void require_fitting_names(const PredictionStyle& style, const std::vector<ModelInput>& inputs);

// What there is to say of an input on standard output: the prediction, or the name of the file that
// it was written into; no format of pages. `extent`: of the input. Tokens of an image have their
// places in its pixels already. Throws InputError for a file that cannot be written.
std::string told_prediction(const PredictionStyle& style, Task task, const ModelInput& input,
                            const Prediction& prediction, const InputExtent& extent);
// Says it.
void write_prediction(const PredictionStyle& style, Task task, const ModelInput& input,
                      const Prediction& prediction, const InputExtent& extent);

// The same of subtitles, for the formats of these.
void write_subtitles(const PredictionStyle& style, const ModelInput& input,
                     const std::vector<Subtitle>& subtitles);

// A list of { text, begin, end, probability }.
Json tokens_json(std::span<const TimedText::Token> tokens);

// What jsonl writes.
Json prediction_json(Task task, const ModelInput& input, const Prediction& prediction,
                     const InputExtent& extent);

// Where the file of an input goes: FOLDER/NAME.npy, .TextGrid, .srt or .vtt; of its page:
// FOLDER/PAGE.hocr or .xml. Folders below one that was given are there again.
std::string output_path(const PredictionStyle& style, const ModelInput& input);
// The folders that these need.
void make_output_folders(const PredictionStyle& style, const std::vector<ModelInput>& inputs);

}  // namespace rondo
