// Checks of the text's path: tokenizer, special tokens, chat template.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/unicode.h"
#include "diagnosis/doctor/doctor_checks.h"

namespace doppler::diagnosis::doctor {
namespace {

const Outcome kNoTokenizer = Outcome::skip("the model has no tokenizer");
// What stands below is for models of which nobody recorded what texts become.
const Outcome kTextsTold = Outcome::skip("the truth tells what texts and conversations become");

// Plain words, numbers, spaces, other scripts, and characters that need more than one token.
constexpr std::string_view kTexts[] = {
    "The color of the sky is blue.",
    "Hello, world! 1234567890",
    "a  b   c",
    "one\ntwo\n\nthree",
    "for (int i = 0; i < 10; ++i) x[i] += 1;",
    "It's 3:45 pm - isn't it?",
    "na\xc3\xafve caf\xc3\xa9",
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
    "\xf0\x9f\x99\x82",
};

bool has_unknown(const tokenizer::Tokenizer& tokenizer, std::span<const TokenId> ids) {
  const auto unknown = tokenizer.spec().unknown;
  return unknown && std::ranges::find(ids, *unknown) != ids.end();
}

// Text without white space at its ends and in lower case: what normalizers and dummy prefixes may change.
std::string bare(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (c != ' ') kept += ascii_lower(c);
  }
  return kept;
}

bool is_byte_piece(std::string_view piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">");
}

// Pieces of several characters that no merge makes, and how many there are of several characters at all.
struct Unreached {
  std::size_t pieces = 0, unreached = 0;
  std::string example;
};

Unreached count_unreached(const tokenizer::TokenizerSpec& spec) {
  std::vector<bool> made(spec.vocabulary.size(), false);
  for (const tokenizer::Merge& merge : spec.merges) {
    if (merge.result >= 0 && static_cast<std::size_t>(merge.result) < made.size())
      made[static_cast<std::size_t>(merge.result)] = true;
  }
  for (const tokenizer::AddedToken& added : spec.added) {  // found as they are, without merges
    if (added.id >= 0 && static_cast<std::size_t>(added.id) < made.size())
      made[static_cast<std::size_t>(added.id)] = true;
  }
  Unreached result;
  for (std::size_t id = 0; id < made.size(); ++id) {
    const auto piece = spec.vocabulary.piece(static_cast<TokenId>(id));
    if (!piece || is_byte_piece(*piece) || spec.unknown == static_cast<TokenId>(id)) continue;
    std::string_view text = *piece;
    if (!spec.word_suffix.empty() && text.ends_with(spec.word_suffix))
      text.remove_suffix(spec.word_suffix.size());
    if (!spec.subword_prefix.empty() && text.starts_with(spec.subword_prefix))
      text.remove_prefix(spec.subword_prefix.size());
    if (count_code_points(text) < 2) continue;
    ++result.pieces;
    if (made[id]) continue;
    ++result.unreached;
    if (result.example.empty()) result.example = std::string(*piece);
  }
  return result;
}

std::size_t count_leading(std::span<const TokenId> ids, TokenId id) {
  std::size_t count = 0;
  while (count < ids.size() && ids[count] == id) ++count;
  return count;
}

TokenId bos_of(const Subject& subject) {
  if (subject.tokenizer != nullptr && subject.tokenizer->bos().id) return *subject.tokenizer->bos().id;
  return subject.spec.bos_id;
}

// Every published Gemma is trained with BOS, and generates nonsense without it, whatever the files say.
bool is_trained_with_bos(const Subject& subject) {
  return subject.spec.family.starts_with("gemma");
}

// Names that published tokenizers give to tokens with a task; a token with such a name has no other task.
constexpr auto kBosNames =
    std::to_array<std::string_view>({"<bos>", "<s>", "<|begin_of_text|>", "<|startoftext|>",
                                     "<\xef\xbd\x9c"
                                     "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"});
constexpr auto kEndNames =
    std::to_array<std::string_view>({"<eos>", "</s>", "<|end_of_text|>", "<|eot_id|>", "<end_of_turn>"});
constexpr auto kFillNames = std::to_array<std::string_view>({"<pad>", "<unk>", "[PAD]", "[UNK]"});

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// A piece's merge precedes the merges that use the piece; converters that list every way to make a piece
// break that for a few pieces, a list in another order for most.
double share_before_their_parts(const tokenizer::TokenizerSpec& spec) {
  std::vector<std::size_t> first(spec.vocabulary.size(), SIZE_MAX);
  const auto known = [&](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < first.size(); };
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const TokenId made = spec.merges[i].result;
    if (known(made))
      first[static_cast<std::size_t>(made)] = std::min(first[static_cast<std::size_t>(made)], i);
  }
  std::size_t parts = 0, late = 0;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    for (const TokenId part : {spec.merges[i].left, spec.merges[i].right}) {
      if (!known(part) || first[static_cast<std::size_t>(part)] == SIZE_MAX) continue;
      ++parts;
      late += first[static_cast<std::size_t>(part)] > i;
    }
  }
  return parts < 50 ? 0 : static_cast<double>(late) / static_cast<double>(parts);
}

struct ChatLook {
  bool rendered = false;
  std::size_t bos = 0;
  std::vector<TokenId> ids;
  std::string problem;
  std::string split;  // a marker of the template that is read as plain text
};

// The texts of earlier turns must reach the prompt as well. Templates may refuse such a conversation.
std::string lost_turn(const Examination& e) {
  const std::vector<Message> messages = {
      {"user", "Name a color."}, {"assistant", "Purple is one."}, {"user", "And another?"}};
  const auto ids = e.subject.chat_ids(messages);
  if (!ids || has_unknown(*e.subject.tokenizer, *ids)) return {};
  const auto text = e.subject.tokenizer->decode(*ids);
  if (!text) return {};
  for (const Message& message : messages) {
    if (bare(*text).find(bare(message.content)) != std::string::npos) continue;
    return fmt::format("The chat template drops what the {} said before: it gives {}.", message.role,
                       printable(*text));
  }
  return {};
}

// A marker such as <start_of_turn> that is a token of its own, but was read as plain text; empty: none.
std::string split_marker(const tokenizer::Tokenizer& tokenizer, std::span<const TokenId> ids,
                         std::string_view text) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string_view::npos) break;
    const std::string marker(text.substr(at, end - at + 1));
    const auto id = marker.size() >= 5 ? tokenizer.find(marker) : std::nullopt;
    if (id && std::ranges::find(ids, *id) == ids.end())
      return fmt::format("The chat template writes {}, which is read as plain text and not as the token {}.",
                         marker, *id);
  }
  return {};
}

Result<ChatLook> look_at_chat(const Examination& e, TokenId bos) {
  ChatLook look;
  if (e.subject.chat == nullptr) return look;
  const std::string said = "What color is the sky?";
  const Message message{"user", said};
  const auto ids = e.subject.chat_ids(std::span(&message, 1));
  if (!ids) {
    look.problem = ids.error().message;
    return look;
  }
  look.rendered = true;
  look.bos = bos >= 0 ? count_leading(*ids, bos) : 0;
  look.ids = *ids;
  DOPPLER_ASSIGN(const std::string text, e.subject.tokenizer->decode(*ids));
  if (bare(text).find(bare(said)) == std::string::npos && !has_unknown(*e.subject.tokenizer, *ids))
    look.problem =
        fmt::format("The chat template does not pass on what was said: it gives {}.", printable(text));
  if (look.problem.empty()) look.problem = lost_turn(e);
  look.split = split_marker(*e.subject.tokenizer, *ids, text);
  return look;
}

void find_nameless_bos(const Examination& e) {
  for (const std::string_view name : kBosNames) {
    const auto id = e.subject.tokenizer->find(name);
    if (!id || !is_trained_with_bos(e.subject)) continue;
    e.find({.cause = "bos_missing",
            .stage = "embed_out",
            .explanation = fmt::format("A prompt begins without BOS: the files name none, though the "
                                       "vocabulary has {} ({}).",
                                       name, *id),
            .repair = fmt::format("Set bos_token_id to {}.", *id),
            .confidence = 0.8});
  }
}

// Many tokenizers name a BOS that they never write (SmolLM's, Yi's, those of add_bos_token: false), and some
// templates write it where their tokenizers do not. So a prompt without one is wrong only where the tokenizer
// itself writes it, a recording of a plain text has it, or the family cannot do without.
void find_missing_bos(const Examination& e, TokenId bos, const ChatLook& chat) {
  const auto own = e.subject.tokenizer->encode("a");
  const bool written = own && !own->empty() && own->front() == bos;
  const auto like_chat = [&](std::span<const TokenId> ids) {  // whose template wrote BOS
    return ids.size() > 1 && chat.ids.size() > 1 && ids[1] == chat.ids[1];
  };
  const bool recorded = e.options.reference != nullptr && e.options.reference->prompt_ids[0] == bos &&
                        !like_chat(e.options.reference->prompt_ids);
  if (!written && !recorded && !is_trained_with_bos(e.subject)) return;
  e.find({.cause = "bos_missing",
          .stage = "embed_out",
          .explanation = fmt::format("A prompt begins without the BOS token {}, {}.", bos,
                                     written    ? "but the tokenizer writes it"
                                     : recorded ? "but the recording's begins with it"
                                                : "but models of this family are trained with it"),
          .confidence = written || recorded ? 0.95 : 0.7});
}

}  // namespace

Result<Outcome> check_vocabulary(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return kNoTokenizer;
  const std::size_t pieces = e.subject.tokenizer->vocab_size(), rows = e.subject.spec.vocab_size;
  if (pieces > rows) {
    e.find({.cause = "vocabulary_mismatch",
            .stage = "embed_out",
            .explanation = fmt::format("The tokenizer has ids up to {}, but the embedding has {} rows.",
                                       pieces - 1, rows)});
  }
  return Outcome::ok(fmt::format("{} tokens in the tokenizer, {} rows in the embedding", pieces, rows));
}

Result<Outcome> check_round_trips(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return kNoTokenizer;
  if (texts_are_known(e)) return kTextsTold;
  const tokenizer::Tokenizer& tokenizer = *e.subject.tokenizer;
  std::size_t good = 0, uncovered = 0;
  for (const std::string_view text : kTexts) {
    DOPPLER_ASSIGN(const auto ids, tokenizer.encode(text, {.add_special = false}));
    if (has_unknown(tokenizer, ids)) {
      ++uncovered;
      continue;
    }
    DOPPLER_ASSIGN(const std::string back, tokenizer.decode(ids));
    if (bare(back) == bare(text)) {
      ++good;
      continue;
    }
    // Normalizers may change a text once (accents, forms), but not again.
    DOPPLER_ASSIGN(const auto again, tokenizer.encode(back, {.add_special = false}));
    if (!again.empty() && again == ids) {
      ++good;
      continue;
    }
    e.find({.cause = "tokenizer_round_trip",
            .explanation = fmt::format("The text {} comes back from the tokenizer as {}.", printable(text),
                                       printable(back)),
            .confidence = 0.9});
    return Outcome{CheckState::kFinding, {}};
  }
  return Outcome::ok(
      fmt::format("{} texts come back{}", good,
                  uncovered == 0 ? "" : fmt::format(", {} are not covered by the vocabulary", uncovered)));
}

Result<Outcome> check_merges(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return kNoTokenizer;
  if (texts_are_known(e)) return kTextsTold;
  const tokenizer::TokenizerSpec& spec = e.subject.tokenizer->spec();
  if (spec.kind != tokenizer::ModelKind::kBpe) return Outcome::skip("the tokenizer does not work by merges");
  const Unreached found = count_unreached(spec);
  if (found.pieces == 0) return Outcome::skip("the vocabulary has only single characters");
  const double share = static_cast<double>(found.unreached) / static_cast<double>(found.pieces);
  // Of the published tokenizers' pieces at most a few in a thousand are made by no merge.
  if (share > 0.01 && !(spec.ignore_merges && share < 0.05)) {
    e.find({.cause = "merges_dropped",
            .stage = "embed_out",
            .explanation = fmt::format(
                "{} of {} pieces of several characters, such as {}, are made by none of the {} merges, "
                "so the tokenizer never gives them.",
                found.unreached, found.pieces, printable(found.example), spec.merges.size()),
            .confidence = std::min(1.0, 0.7 + share)});
  }
  if (const double late = share_before_their_parts(spec); late > 0.5) {
    e.find({.cause = "merges_order",
            .stage = "embed_out",
            .explanation = fmt::format("The merges are out of order: {:.0f} % of the pieces that they join "
                                       "are made by later ones.",
                                       100 * late),
            .confidence = 0.9});
  }
  return Outcome::ok(fmt::format("{} merges make {:.1f} % of the {} pieces of several characters",
                                 spec.merges.size(), 100 * (1 - share), found.pieces));
}

Result<Outcome> check_special_tokens(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return kNoTokenizer;
  if (texts_are_known(e) && (e.options.source != nullptr || e.options.reference->text->stop_ids))
    return kTextsTold;
  const tokenizer::Tokenizer& tokenizer = *e.subject.tokenizer;
  const auto wrong = [&](std::string text) {
    e.find({.cause = "special_tokens", .explanation = std::move(text), .confidence = 0.8});
  };
  const TokenId bos = e.subject.spec.bos_id;
  if (bos >= 0 && tokenizer.bos().id && *tokenizer.bos().id != bos)
    wrong(fmt::format("The tokenizer's BOS is {}, but the model's is {}.", *tokenizer.bos().id, bos));
  std::vector<std::string> known;
  for (const auto& [name, token] :
       {std::pair<const char*, const tokenizer::SpecialToken&>{"BOS", tokenizer.bos()},
        {"EOS", tokenizer.eos()},
        {"PAD", tokenizer.pad()}}) {
    if (!token.id) continue;
    known.push_back(fmt::format("{} {}", name, *token.id));
    if (static_cast<std::uint32_t>(*token.id) >= e.subject.spec.vocab_size)
      wrong(fmt::format("The tokenizer's {} {} is outside of the model's vocabulary.", name, *token.id));
    DOPPLER_ASSIGN(const auto ids, tokenizer.encode(token.text, {.add_special = false}));
    if (std::ranges::find(ids, *token.id) == ids.end())
      wrong(fmt::format("The text {} is not read as the token {} ({}).", printable(token.text), *token.id,
                        name));
  }
  const auto piece_of = [&](const tokenizer::SpecialToken& token) -> std::string {
    if (!token.id || static_cast<std::size_t>(*token.id) >= tokenizer.vocab_size()) return {};
    const auto piece = tokenizer.piece(*token.id);
    return piece ? std::string(*piece) : std::string();
  };
  if (const std::string name = piece_of(tokenizer.bos());
      is_one_of(kEndNames, name) || is_one_of(kFillNames, name))
    wrong(fmt::format("BOS is the token {}, whose name {} says otherwise.", *tokenizer.bos().id, name));
  if (const std::string name = piece_of(tokenizer.eos());
      is_one_of(kBosNames, name) || is_one_of(kFillNames, name))
    wrong(fmt::format("EOS is the token {}, whose name {} says otherwise.", *tokenizer.eos().id, name));
  for (const std::int32_t id : e.subject.spec.eos_ids) {
    const bool is_there =
        static_cast<std::size_t>(id) < tokenizer.vocab_size() && tokenizer.piece(id).has_value();
    if (is_there) {
      const std::string name(*tokenizer.piece(id));
      const auto& added = tokenizer.spec().added;
      const bool has_task =
          added.empty() ||
          std::ranges::any_of(added, [&](const tokenizer::AddedToken& token) { return token.id == id; });
      if (!has_task || is_one_of(kBosNames, name) || is_one_of(kFillNames, name))
        wrong(fmt::format("Generation stops at the token {}, {}, which is no end.", id, printable(name)));
    }
    if (!is_there)
      wrong(fmt::format("Generation stops at the token {}, which the tokenizer does not have.", id));
  }
  return Outcome::ok(known.empty() ? "the tokenizer names none" : join(known, ", "));
}

Result<Outcome> check_chat(const Examination& e) {
  if (e.subject.tokenizer == nullptr) return kNoTokenizer;
  if (texts_are_known(e)) return kTextsTold;
  const TokenId bos = bos_of(e.subject);
  DOPPLER_ASSIGN(const auto plain, e.subject.prompt_ids("The color of the sky is"));
  DOPPLER_ASSIGN(const ChatLook chat, look_at_chat(e, bos));
  if (!chat.problem.empty()) e.find({.cause = "chat_template", .explanation = chat.problem});
  if (!chat.split.empty()) e.find({.cause = "special_tokens", .explanation = chat.split, .confidence = 0.9});
  if (const auto eos = e.subject.tokenizer->eos().id; eos && plain.size() > 1 && plain.back() == *eos) {
    e.find({.cause = "eos_extra",
            .stage = "embed_out",
            .explanation =
                fmt::format("A prompt ends with the EOS token {}, so that nothing is left to say.", *eos),
            .repair = "Turn add_eos_token off.",
            .confidence = 0.8});
  }
  if (bos < 0) {
    find_nameless_bos(e);
    return Outcome::ok("the model has no BOS");
  }
  const std::size_t begins = count_leading(plain, bos);
  for (const auto& [count, what] : {std::pair{begins, "A prompt"}, std::pair{chat.bos, "A conversation"}}) {
    if (count < 2) continue;
    e.find({.cause = "double_bos",
            .stage = "embed_out",
            .explanation = fmt::format("{} begins with the BOS token {} {} times.", what, bos, count)});
  }
  if (begins == 0) find_missing_bos(e, bos, chat);
  if (chat.rendered && chat.bos == 0 && begins > 0 && is_trained_with_bos(e.subject)) {
    e.find({.cause = "bos_missing",
            .stage = "embed_out",
            .explanation = fmt::format(
                "A conversation begins without the BOS token {}, but a prompt begins with it.", bos),
            .confidence = 0.8});
  }
  return Outcome::ok(fmt::format("a prompt begins with {} BOS{}", begins,
                                 chat.rendered ? fmt::format(", a conversation with {}", chat.bos) : ""));
}

}  // namespace doppler::diagnosis::doctor
