// How the bytes of a page become its texts: encodings, entities, and the line that is named where
// something is wrong.
#include "engine/page/page_file.h"
#include "engine/text/unicode.h"
#include "tests/catch.h"
#include "tests/corpus/page_files.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

// A page of one line with this text, behind this DOCTYPE.
std::string declared(const std::string& declarations, const std::string& text) {
  return "<?xml version=\"1.0\"?>\n<!DOCTYPE PcGts [" + declarations + "]>\n<PcGts><Page>" +
         region("r", line("l", text)) + "</Page></PcGts>";
}

std::string text_of(const std::string& xml) { return parse_page(xml, "p.xml").lines.at(0).text; }

std::string utf16(const std::string& text, bool low_first, bool mark) {
  std::u16string units = mark ? u"\ufeff" : u"";
  for (const char32_t c : code_points(text)) {
    if (c >= 0x10000) units += static_cast<char16_t>(0xd7c0 + (c >> 10));
    units += static_cast<char16_t>(c < 0x10000 ? c : 0xdc00 + (c & 0x3ff));
  }
  std::string bytes;
  for (const char16_t u : units) {
    const char low = static_cast<char>(u), high = static_cast<char>(u >> 8);
    bytes += low_first ? low : high;
    bytes += low_first ? high : low;
  }
  return bytes;
}

}  // namespace

TEST_CASE("entities that a page declares are expanded", "[page]") {
  CHECK(text_of(declared("<!ENTITY s \"&#x17F;\"><!ENTITY st '&s;t'>", "fe&st; &amp; &lt;&#98;")) ==
        "feſt & <b");
  // The first declaration holds; comments, other declarations and parameter entities are none.
  CHECK(text_of(declared("<!-- <!ENTITY a \"no\"> --><!ENTITY % a \"no\"><!ELEMENT b (#PCDATA)>"
                         "<!ATTLIST b c CDATA \"it's\"><!ENTITY a \"yes\"><!ENTITY a \"no\">",
                         "&a;")) == "yes");
  // Several of each between the declarations, with what would end others within them.
  const std::string between = "<!-- it's <!ENTITY a 'no'> ?> --><?x \"<!ENTITY a 'no'> -- ?>";
  CHECK(text_of(declared(between + between + "<!ENTITY a 'ye'>" + between + "<!ENTITY b '&a;s'>" +
                             between + between,
                         "&b;")) == "yes");
  // In an attribute, and not in CDATA.
  const PageFile page = parse_page(
      declared("<!ENTITY i \"p\">", "<![CDATA[&i;]]>&i;") + "<!-- of no use -->", "p.xml");
  CHECK(page.lines.at(0).text == "&i;p");
  const std::string named =
      "<!DOCTYPE PcGts [<!ENTITY i 'p\"&#38;lt;'>]><PcGts><Page "
      "imageFilename=\"&i;.png\"/></PcGts>";
  CHECK(parse_page(named, "p.xml").image_name == "p\"<.png");
  // What is no reference is text.
  CHECK(text_of(declared("", "A & B; &; &#; &#xD800; &#1114112;")) ==
        "A & B; &; &#; &#xD800; &#1114112;");
  CHECK(text_of(declared("", "&#x10FFFF;&#955;")) == "\U0010ffffλ");
  // The borders of what is a character; fonts for old books have letters from U+E000 on.
  CHECK(text_of(declared("", "&#xD7FF;&#xe000;&#xF8FF;&#57344;")) == "\ud7ff\ue000\uf8ff\ue000");
  CHECK(text_of(declared("", "&#xDFFF;&#0;&#x110000;&#x100000041;")) ==
        "&#xDFFF;&#0;&#x110000;&#x100000041;");
}

TEST_CASE("entities fetch nothing, and do not grow without end", "[page]") {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret.txt", "secret");
  const auto failure = [](const std::string& xml) -> std::string {
    try {
      text_of(xml);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const std::string elsewhere = "<!ENTITY x SYSTEM \"file://" + secret + "\">";
  CHECK(failure(declared(elsewhere, "a")).empty());
  CHECK(failure(declared(elsewhere, "&x;")) ==
        "p.xml:3: refers to &x; which is in another file: no other file is read");
  CHECK_THAT(failure(declared("<!ENTITY x PUBLIC \"-//x\" \"x.txt\">", "&x;")),
             Contains("another file"));
  CHECK_THAT(failure(declared("", "\n\nf&uuml;r")),
             Contains("p.xml:5: refers to &uuml; which it does not declare") ||
                 Contains("p.xml:3: refers to &uuml; which it does not declare"));
  CHECK_THAT(failure(declared("<!ENTITY x \"<Unicode/>\">", "&x;")), Contains("expected a text"));
  // Ten of ten of ten ... laughs, ten that are silent, and one in itself.
  for (const std::string laugh : {"ha", ""}) {
    std::string all = "<!ENTITY l0 \"" + laugh + "\">";
    for (int i = 1; i < 12; ++i) {
      all += str("<!ENTITY l", i, " \"");
      for (int k = 0; k < 10; ++k) all += str("&l", i - 1, ";");
      all += "\">";
    }
    const std::string said = failure(declared(all, "&l11;"));
    if (laugh.empty()) CHECK(said.empty());
    if (!laugh.empty())
      CHECK_THAT(said, Contains("more than 1048576 bytes once they are expanded"));
  }
  CHECK_THAT(failure(declared("<!ENTITY a \"&b;\"><!ENTITY b \"&a;\">", "&a;")),
             Contains("more than 64 deep"));
  // In so many others and no more.
  for (const int deep : {64, 65}) {
    std::string chain = "<!ENTITY e1 'x'>";
    for (int i = 2; i <= deep; ++i) chain += str("<!ENTITY e", i, " '&e", i - 1, ";'>");
    const std::string said = failure(declared(chain, str("&e", deep, ";")));
    CHECK(said ==
          (deep == 64 ? "" : "p.xml:3: has entities more than 64 deep in each other, at &e1;"));
  }
  // One large one, again and again.
  std::string often;
  for (int i = 0; i < 1100; ++i) often += "&k;";
  const std::string large = "<!ENTITY k \"" + std::string(1000, 'k') + "\">";
  CHECK_THAT(failure(declared(large, often)), Contains("once they are expanded"));
  CHECK(failure(declared(large, often.substr(0, 3000))).empty());
}

TEST_CASE("pages in UTF-16 are read as those in UTF-8", "[page]") {
  const TemporaryFolder folder;
  const std::string xml =
      "<?xml version=\"1.0\" encoding=\"UTF-16\"?>\n<PcGts><Page imageFilename=\"p.png\">" +
      region("r", line("l", "ſo &amp; ж")) + "</Page></PcGts>";
  for (const bool low_first : {true, false}) {
    for (const bool mark : {true, false}) {
      INFO(low_first << mark);
      const std::string bytes = utf16(xml, low_first, mark);
      CHECK(text_of(bytes) == "ſo & ж");
      CHECK(is_page_file(folder.write("p.xml", bytes)));
    }
  }
  CHECK(text_of("\xef\xbb\xbf" + page_xml(region("r", line("l", "a")))) == "a");
  CHECK_FALSE(is_page_file(folder.write("m.xml", utf16("<mets/>", true, true))));
  CHECK_FALSE(is_page_file(folder.write("m.xml", "<altogether/><PcGts2 a='1'/>")));
  CHECK(is_page_file(folder.write("m.xml", "<altogether/><alto/>")));
  // By its first element, with any prefix, behind whatever may be before it.
  for (const std::string root : {"PcGts", "alto"}) {
    for (const std::string prefix : {"", "p:", "a4-1:"}) {
      const std::string page = "<?xml version=\"1.0\"?>\n<!-- " + std::string(5000, '-') +
                               " -->\n<" + prefix + root + " xmlns:x=\"y\">";
      INFO(prefix << root);
      CHECK(is_page_file(folder.write("p.xml", page)));
      CHECK(is_page_file(folder.write("P.XML", page)));
      CHECK(is_page_file(folder.write("p.xml", utf16(page, false, false))));
      CHECK_FALSE(is_page_file(folder.write("p.txt", page)));
      CHECK_FALSE(is_page_file(folder.write("p.xml", page.substr(0, page.find(root)))));
    }
  }
}

TEST_CASE("what is wrong with a page is named by its line, in any encoding", "[page]") {
  const auto message = [](const std::string& xml) -> std::string {
    try {
      parse_page(xml, "p.xml");
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  // Letters of one to four bytes in UTF-8 stand before the place, and lines behind it.
  for (const std::string letter : {"a", "\u00e4", "\u0436", "\u6587", "\U0001d49c"}) {
    std::string before = "<?xml version=\"1.0\"?>\n<PcGts>\n<!-- ";
    for (int i = 0; i < 500; ++i) before += letter;
    before += "\n\n -->";
    const std::string after = "<Page/>\n\n\n</PcGts>";
    for (const auto& [wrong, what] :
         {std::pair("<Page></Metadata></Page>", "is no whole XML document"),
          {"<Page><a>&uuml;</a></Page>", "refers to &uuml;"}}) {
      const std::string xml = before + wrong + after;
      const std::string said = message(xml);
      CHECK_THAT(said, Contains(str("p.xml:5: ", what)));
      CHECK(message("\xef\xbb\xbf" + xml) == said);
      for (const bool low_first : {true, false}) {
        for (const bool mark : {true, false}) {
          INFO(letter << low_first << mark);
          CHECK(message(utf16(xml, low_first, mark)) == said);
        }
      }
      if (letter.size() > 2 || letter == "\u0436") continue;
      std::string latin;
      for (const char32_t c : code_points(xml)) latin += static_cast<char>(c);
      latin.insert(latin.find("?>"), " encoding=\"ISO-8859-1\"");
      CHECK(message(latin) == said);
    }
  }
}
