#include "cli/chat/thinking.h"

#include <algorithm>
#include <array>

namespace doppler::cli {

std::span<const ThinkingMarks> all_thinking_marks() {
  static constexpr auto kMarks = std::to_array<ThinkingMarks>({
      {"<think>", "</think>"},                     // DeepSeek R1 and its distillates, Qwen 3, Phi 4, SmolLM 3
      {"<thinking>", "</thinking>"},               // Granite, and what was taught by prompts
      {"[THINK]", "[/THINK]"},                     // Magistral
      {"<seed:think>", "</seed:think>"},           // Seed OSS
      {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command A
      {"<|begin_of_thought|>", "<|end_of_thought|>"}  // models in the manner of Sky-T1
  });
  return kMarks;
}

std::vector<ThinkingMarks> thinking_marks_of(std::string_view chat_template,
                                             const tokenizer::Tokenizer& tokenizer) {
  std::vector<ThinkingMarks> known;
  for (const ThinkingMarks& marks : all_thinking_marks()) {
    const bool written = chat_template.find(marks.begin) != std::string_view::npos ||
                         chat_template.find(marks.end) != std::string_view::npos;
    if (written || (tokenizer.find(marks.begin) && tokenizer.find(marks.end))) known.push_back(marks);
  }
  return known;
}

ThinkingSplitter::ThinkingSplitter(std::vector<ThinkingMarks> marks, std::string_view prompt)
    : marks_(std::move(marks)) {
  while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == ' ')) prompt.remove_suffix(1);
  for (const ThinkingMarks& each : marks_)
    if (prompt.ends_with(each.begin)) open_ = &each;
  after_mark_ = open_ != nullptr;
}

ThinkingSplitter::Found ThinkingSplitter::find() const {
  Found first{held_.size(), nullptr};
  for (const ThinkingMarks& each : marks_) {
    if (open_ != nullptr && &each != open_) continue;
    const std::string_view mark = open_ != nullptr ? each.end : each.begin;
    for (std::size_t at = held_.find(mark.front()); at < first.at; at = held_.find(mark.front(), at + 1)) {
      const std::string_view rest = std::string_view(held_).substr(at);
      if (rest.starts_with(mark))
        first = {at, &each};
      else if (mark.starts_with(rest))
        first = {at, nullptr};
    }
  }
  return first;
}

void ThinkingSplitter::give(std::string text, std::vector<AnswerPart>& parts) {
  if (after_mark_) text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  after_mark_ = false;
  parts.push_back({open_ != nullptr, std::move(text)});
}

std::vector<AnswerPart> ThinkingSplitter::feed(std::string_view text) {
  std::vector<AnswerPart> parts;
  held_ += text;
  for (;;) {
    const Found found = find();
    give(held_.substr(0, found.at), parts);
    held_.erase(0, found.at);
    if (found.marks == nullptr) return parts;
    held_.erase(0, (open_ != nullptr ? found.marks->end : found.marks->begin).size());
    open_ = open_ != nullptr ? nullptr : found.marks;
    after_mark_ = true;
  }
}

std::vector<AnswerPart> ThinkingSplitter::flush() {
  std::vector<AnswerPart> parts;
  give(std::exchange(held_, {}), parts);
  return parts;
}

}  // namespace doppler::cli
