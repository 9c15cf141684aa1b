// How the outputs of a model become text: the options of commands for it, and the decoder that they
// ask for.
#pragma once

#include <optional>
#include <string>

#include "engine/decode/decoder.h"
#include "engine/text/text_rules.h"
#include "tools/command_line/command_line.h"

namespace rondo {

struct DecodingOptions {
  int beam = -1;         // not given
  int default_beam = 0;  // of the command, where nothing needs a search
  int nbest = 1;
  std::string lm, lexicon, silence, hot_words, unit = "auto";
  std::string known_words;  // a file; where there is a lexicon it says nothing
  double hot_word_weight = 5, score_range = 0;
  double token_floor = -1;  // not given
  DecoderOptions search = {};
  std::string confidence = "mean";

  bool knows_something() const { return !lm.empty() || !lexicon.empty() || !hot_words.empty(); }
  bool needs_search() const { return knows_something() || nbest > 1 || confidence == "posterior"; }
  // That is used; 0: there is no search.
  int beam_used() const;
  bool searches() const { return beam_used() > 0; }
};

// `shows_all`: whether the command shows several texts and how sure their words are.
void add_decoding_options(Command& command, DecodingOptions* options, bool shows_all);
// --confidence; `by_search`: whether there may be one that finds posteriors.
void add_confidence_option(Command& command, std::string* name, bool by_search);

// What --format is where it is not given: "jsonl" where several texts are asked for, else "text".
// Throws WrongUsage for several texts where the format has no place for them, or the beam none, and
// for what needs a search where --beam 0 says that there is none.
std::string format_of(const DecodingOptions& options, const std::string& given);

// Of a folder of Hugging Face that has a language_model: that model, its known words and its
// weights, but for what the command line says. Nothing for what is no such folder, or where nothing
// is searched for. Throws InputError.
void use_language_model_of(const std::string& folder, const Command& command,
                           DecodingOptions* options);

// For a model with these classes; none where no search is asked for. Reads the files, says on
// standard error what looks wrong in them. Throws WrongUsage for options that do not go together,
// InputError. `rules`: the model's, which hot words go through as its texts did.
std::optional<Decoder> make_decoder(const DecodingOptions& options, const Vocabulary& vocabulary,
                                    const TextRules& rules = {});

// What they say but for where files lie: tells searches apart.
std::string given_of(const DecodingOptions& options);
// What the options say of the search among so many classes.
DecoderOptions search_options(const DecodingOptions& options, int32_t classes);
// What the options name, read.
DecoderKnowledge read_knowledge(const DecodingOptions& options, const Vocabulary& vocabulary,
                                const TextRules& rules = {});

}  // namespace rondo
