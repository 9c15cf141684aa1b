#include "engine/report/html.h"

#include <cstdint>

#include "kernels/base/error.h"

namespace rondo::report {
namespace {

constexpr const char* style = R"(
:root { color-scheme: light dark;
  --page: #fff; --text: #24292f; --faded: #57606a; --rule: #d8dee4; --panel: #f6f8fa;
  --mark: #0072b2; --lost: #a63c06; --lost-page: #fdebe0; --added: #005d93; --added-page: #e0f0fb; }
@media screen and (prefers-color-scheme: dark) { :root {
  --page: #0d1117; --text: #e6edf3; --faded: #9da7b3; --rule: #30363d; --panel: #161b22;
  --mark: #56b4e9; --lost: #ffa873; --lost-page: #3b2112; --added: #8ccbf5; --added-page: #0e2a3e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, "DejaVu Sans", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1rem 4rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .8rem 0; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
p { margin: .5rem 0; max-width: 48rem; }
.soft { color: var(--faded); font-size: .875rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .8rem 0; }
dt { color: var(--faded); } dd { margin: 0; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem; }
.figure { border: 1px solid var(--rule); border-radius: .5rem; background: var(--panel); padding: .7rem 1rem; }
.figure b { display: block; font-size: 1.75rem; line-height: 1.3; }
.figure span { display: block; font-size: .875rem; color: var(--faded); }
.wide { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9375rem; }
caption { text-align: left; font-weight: 600; padding: .2rem 0; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; border-bottom: 1px solid var(--rule);
  overflow-wrap: normal; }
th { font-weight: 600; color: var(--faded); font-size: .8125rem; vertical-align: bottom; }
th.name, td.name { text-align: left; min-width: 6rem; }
.wide td.name { min-width: 9rem; }
td.bar { width: 9rem; padding-right: 0; }
td.bar i { display: block; height: .7rem; min-width: 1px; background: var(--mark); border-radius: 2px; }
.compare td.name { min-width: 4rem; }
.lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: 1rem 2.5rem; align-items: start; }
.lists table { width: 100%; }
.lists td.name { overflow-wrap: anywhere; }
.matrix td, .matrix th { border: 1px solid var(--rule); padding: .2rem .5rem; text-align: center; min-width: 2.2rem; }
.matrix td.right { font-weight: 700; outline: 2px solid var(--mark); outline-offset: -2px; }
article { margin: 0 0 1.1rem; padding: .6rem .9rem; border: 1px solid var(--rule); border-radius: .5rem; }
.aligned { font-size: 1.0625rem; line-height: 1.9; max-width: none; margin: .3rem 0 0; }
.line { display: block; max-width: 100%; height: auto; margin: .4rem 0; border-radius: .25rem; }
audio { display: block; width: 100%; max-width: 24rem; height: 2.4rem; margin: .5rem 0; }
summary { cursor: pointer; }
pre { font: .8125rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; margin: .6rem 0; }
.letters { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .875rem; white-space: pre-wrap; }
del, ins { padding: .1em .25em; border-radius: .25em; text-decoration-thickness: 1px; }
del { color: var(--lost); background: var(--lost-page); text-decoration-line: line-through; }
ins { color: var(--added); background: var(--added-page); text-decoration-line: underline; text-decoration-thickness: 2px;
  text-underline-offset: .18em; }
.letters del, .letters ins { padding: .1em 0; }
.swap { border: 1px solid var(--rule); border-radius: .4em; padding: .12em .1em; }
.curve svg { display: block; width: 100%; min-width: 34rem; height: auto; }
@media screen and (max-width: 40rem) { td.bar, th.bar, td.more, th.more { display: none; }
  .curve svg { min-width: 0; } .curve text { font-size: 20px; } .curve .strong { font-size: 24px; }
  .figures { grid-template-columns: 1fr 1fr; } .figure { padding: .5rem .7rem; } .figure b { font-size: 1.4rem; }
  .figures .figure { min-width: 0; } h1 { font-size: 1.35rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; } }
@media print { main { max-width: none; padding: 0; } body { font-size: 11pt; }
  article, .figure, tr, .curve { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  .wide { overflow: visible; } .curve svg { min-width: 0; }
  td.bar i, del, ins, .figure, .matrix td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)";

constexpr std::string_view replacement = "\xef\xbf\xbd";

// The bytes of the UTF-8 sequence that begins here; 0: none does (RFC 3629).
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) > 0x9f;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool outside = (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f);
    return follows(1) && follows(2) && follows(3) && !outside ? 4 : 0;
  }
  return 0;
}

bool is_control(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (first < 0x20 || first == 0x7f) return true;
  return first == 0xc2 && static_cast<unsigned char>(sequence[1]) < 0xa0;  // U+0080 to U+009F
}

std::string_view escaped(std::string_view sequence) {
  switch (sequence[0]) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\n':
    case '\r':
    case '\t':
      return " ";
    default:
      return is_control(sequence) ? replacement : sequence;
  }
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text.substr(at));
    if (length == 0) {
      out += replacement;
      ++at;
      continue;
    }
    out += escaped(text.substr(at, length));
    at += length;
  }
  return out;
}

std::string html_page(std::string_view title, std::string_view content) {
  return str(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src "
      "data:; media-src data:; style-src 'unsafe-inline'\">\n<title>",
      html_text(title), "</title>\n<style>", style, "</style>\n</head>\n<body>\n<main>\n", content,
      "</main>\n</body>\n</html>\n");
}

}  // namespace rondo::report
