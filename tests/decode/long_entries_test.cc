// Messages about an entry of a megabyte, with what a terminal would obey in it: they show its
// beginning, written out.
#include <functional>
#include <string>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/decode/transcript/text_alignment.h"
#include "engine/text/alphabet.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/decode/all_texts.h"

using namespace rondo;

namespace {

std::string arpa_of(const std::string& word, const std::string& bigram) {
  return "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-2\t<unk>\n-99\t<s>\n-1\t</s>\n-1\t" +
         word + "\n\n\\2-grams:\n" + bigram + "\n\n\\end\\\n";
}

void check_message(const std::string& message) {
  INFO(message.substr(0, 400));
  CHECK(message.size() < 350);
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK_THAT(message, Catch::Contains("\\x1b[2Jhhhh"));
}

}  // namespace

TEST_CASE("errors show the beginning of a long entry", "[slow][lexicon]") {
  const std::string huge = "\x1b[2J" + std::string(1 << 20, 'h');
  const Vocabulary letters(spaced, {}, "", "v");
  const Vocabulary words({"<blank>", "ab", "b"}, {}, "every", "v");
  // Of each character, and of none that begins a word.
  const Vocabulary pieces({"<blank>",
                           "\xe2\x96\x81"
                           "a",
                           "\x1b", "[", "2", "J", "h"},
                          {}, "", "v");
  const Vocabulary with_huge({"<blank>", huge, "b"}, {}, "every", "v");
  const auto lexicon = [](const std::string& content, const Vocabulary& v) {
    parse_lexicon(content, v, "words");
  };
  DecoderKnowledge silent;
  silent.silence = 1;
  silent.lexicon = {{huge, {1, 2}}};
  DecoderKnowledge hot;
  hot.hot_words = {{huge, 1}};
  using Call = std::function<void()>;
  for (const Call& call : {
           Call([&] { lexicon("a\t" + huge, letters); }),
           Call([&] { lexicon(huge, letters); }),
           Call([&] { lexicon(huge + "\vh\ta", letters); }),
           Call([&] { parse_hot_words("a\t" + huge, 1, "hot"); }),
           Call([&] { Decoder(words, {}, silent); }),
           Call([&] { Decoder(with_huge, {}, silent); }),
           Call([&] { Decoder(words, {}, hot); }),
           Call([&] {
             Vocabulary({huge, huge, "<blank>"}, {}, "", "v");
           }),
           Call([&] {
             Vocabulary({"a", "b", "<blank>"}, {}, huge, "v");
           }),
           Call([&] {
             const std::string escaped = "\\u001b" + huge.substr(1);
             Vocabulary::parse("{\"a\": 0, \"" + escaped + "\": 1, \"b" + escaped + "\": 1}", {},
                               "", "v");
           }),
           Call([&] { TextSpeller(pieces, {}).spell(huge, "text"); }),
           Call([&] {
             Alphabet(std::vector<std::string>{"a", huge, huge});
           }),
           Call([&] { Alphabet(std::vector<std::string>{huge}); }),
           Call([&] { LanguageModel::parse(arpa_of("a", "-1 " + huge + " a"), "m"); }),
           Call([&] { LanguageModel::parse(arpa_of("a", huge + " a a"), "m"); }),
           Call([&] { LanguageModel::parse(arpa_of("a", huge), "m"); }),
           Call([&] {
             LanguageModel::parse(
                 "\\data\\\nngram 1=4\nngram "
                 "2=2\n\n\\1-grams:\n-2\t<unk>\n-99\t<s>\n-1\t</s>\n-1\t" +
                     huge + "\n\n\\2-grams:\n-1 " + huge + " </s>\n-1 " + huge +
                     " </s>\n\n\\end\\\n",
                 "m");
           }),
       }) {
    std::string message = "no error";
    try {
      call();
    } catch (const InputError& e) {
      message = e.what();
    }
    check_message(message);
  }
}

TEST_CASE("warnings show the beginning of a long entry", "[slow][lexicon]") {
  const std::string huge = "\x1b[2J" + std::string(1 << 20, 'h');
  const Vocabulary letters(spaced, {}, "", "v");
  DecoderKnowledge k;
  k.hot_words = {{huge, 1}};
  const auto warn = [&] {
    const Decoder decoder(letters, {}, k);
    REQUIRE(decoder.warnings().size() == 1);
    check_message(decoder.warnings()[0]);
  };
  warn();
  k.lexicon = {{"a", {2}}};
  warn();
  k = {};
  k.language_model = LanguageModel::parse(arpa_of(huge, "-1 </s> </s>"), "m");
  warn();
  k.language_model = LanguageModel::parse(word_model, "m");
  k.known_words = {huge};
  warn();
}
