#include "diagnosis/ailments.h"

#include <array>

#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/look/symptoms.h"

namespace doppler::diagnosis {
namespace {

constexpr auto kAilments = std::to_array<Ailment>({
    // ---- without a run ----
    {.id = "files", .asks = "are the files whole?", .check = doctor::check_files},
    {.id = "spec", .asks = "does the description make sense?", .check = doctor::check_spec},
    {.id = "memory", .asks = "does it fit?", .check = doctor::check_memory},
    {.id = "texts", .asks = "do texts become what the recording's do?", .check = doctor::check_texts},
    {.id = "vocabulary", .asks = "do tokenizer and embedding agree?", .check = doctor::check_vocabulary},
    {.id = "round_trips",
     .asks = "does text come back from the tokenizer?",
     .check = doctor::check_round_trips},
    {.id = "merges", .asks = "does the tokenizer join pieces?", .check = doctor::check_merges},
    {.id = "special_tokens",
     .asks = "are BOS, EOS and their like known?",
     .check = doctor::check_special_tokens},
    {.id = "chat",
     .asks = "does a prompt begin with one BOS, and the template keep what was said?",
     .check = doctor::check_chat},
    {.id = "token_order",
     .asks = "do ids, merges and scores stand in one order?",
     .check = doctor::check_token_order},
    {.id = "turns",
     .asks = "do answers begin and end as the template and the stop tokens say?",
     .check = doctor::check_turns},
    {.id = "defaults",
     .asks = "do padding and the model's own sampling leave a text?",
     .check = doctor::check_defaults},
    {.id = "weights", .asks = "are weights finite and whole?", .check = doctor::check_weights},
    {.id = "layers",
     .asks = "is every layer's weight its own, and of the others' scale?",
     .check = doctor::check_layers_alike},
    {.id = "neighbours", .asks = "are related tokens' embeddings alike?", .check = doctor::check_neighbours},
    {.id = "tied_head",
     .asks = "does the head find a token by its own embedding?",
     .check = doctor::check_tied_head},
    {.id = "source",
     .asks = "does everything agree with the source that the model was made of?",
     .check = doctor::check_source},
    {.id = "loss", .asks = "would a repair make plain English likelier?", .check = doctor::check_loss},
    // ---- in one run: prompt, some decode steps, and everything measured ----
    {.id = "not_finite",
     .asks = "is every value of every stage finite?",
     .judge = symptoms::not_finite,
     .is_cause_of_nan = true},
    {.id = "embedding_rows",
     .asks = "has every id its row of the embedding?",
     .judge = symptoms::embedding_rows,
     .is_cause_of_nan = true},
    {.id = "exploding",
     .asks = "do values keep their size from layer to layer?",
     .judge = symptoms::exploding,
     .is_cause_of_nan = true},
    {.id = "spike", .asks = "is no dim larger than all others together?", .judge = symptoms::spike},
    {.id = "dead_stage", .asks = "is no stage zero or constant?", .judge = symptoms::dead_stage},
    {.id = "zero_rows", .asks = "is no token's row, and no row's end, empty?", .judge = symptoms::zero_rows},
    {.id = "head_rows", .asks = "has every id its logit?", .judge = symptoms::head_rows},
    {.id = "same_logits", .asks = "do logits follow the tokens?", .judge = symptoms::same_logits},
    {.id = "uniform_logits", .asks = "do logits choose anything?", .judge = symptoms::uniform_logits},
    {.id = "overconfident", .asks = "does the model ever doubt?", .judge = symptoms::overconfident},
    {.id = "decode_unlike_prefill",
     .asks = "do decoded tokens give what they give as a prompt?",
     .judge = symptoms::decode_unlike_prefill},
    {.id = "pad_wins", .asks = "is padding never the likeliest?", .judge = symptoms::pad_wins},
    {.id = "prompt_loss", .asks = "is text likelier than chance?", .judge = symptoms::prompt_loss},
    {.id = "gibberish", .asks = "is the text a text?", .judge = symptoms::gibberish},
    {.id = "repeats", .asks = "does the text move on?", .judge = symptoms::repeats},
    // ---- in comparisons: with a recording, the oracle, another run ----
    {.id = "recording", .asks = "does the recording belong to the model?", .check = doctor::check_recording},
    {.id = "truth", .asks = "does every op compute what was recorded?", .check = doctor::check_truth},
    {.id = "ops",
     .asks = "does the backend compute every op as the oracle does?",
     .check = doctor::check_ops},
    {.id = "again", .asks = "is a second sequence as right as the first?", .check = doctor::check_again},
    {.id = "decode",
     .asks = "do tokens one at a time give what the prompt gave?",
     .check = doctor::check_decode},
    {.id = "batch", .asks = "is a sequence the same beside another?", .check = doctor::check_batch},
    {.id = "submit", .asks = "do several tokens a submission equal one?", .check = doctor::check_submit},
    {.id = "determinism",
     .asks = "does the same input give the same bits?",
     .check = doctor::check_determinism},
    {.id = "fallbacks", .asks = "does everything run as fast as it could?", .check = doctor::check_fallbacks},
    {.id = "sampler", .asks = "does the sampler choose as a plain one does?", .check = doctor::check_sampler},
    {.id = "choices", .asks = "are the recorded tokens chosen?", .check = doctor::check_choices},
});

}  // namespace

std::vector<const Ailment*> ailments(AskedBy by) {
  std::vector<const Ailment*> some;
  for (const Ailment& ailment : kAilments) {
    if (ailment.asked_by() == by) some.push_back(&ailment);
  }
  return some;
}

}  // namespace doppler::diagnosis
