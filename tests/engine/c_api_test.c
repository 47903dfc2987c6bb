/* The C interface as a C11 program uses it: c_api_test MODEL FOLDER. Exits with 0, or names the first line
 * that is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doppler/c.h"

#define CHECK(condition)                                                                            \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "line %d: %s\nlast error: %s\n", __LINE__, #condition, doppler_last_error()); \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

static const char* const kPrompt = "The color of the sky is";

struct seen {
  char text[1000];
  size_t tokens, values;
  float last_logit;
  doppler_sequence* freed; /* in the first callback */
  const doppler_cancel* cancelled;
};

static bool on_text(void* user, const char* text, size_t length) {
  struct seen* seen = user;
  CHECK(strlen(text) == length);
  strcat(seen->text, text);
  return true;
}

static bool on_token(void* user, doppler_token id, const doppler_logprobs* logprobs) {
  struct seen* seen = user;
  ++seen->tokens;
  if (logprobs != NULL) {
    CHECK(logprobs->id == id && logprobs->logprob <= 0 && logprobs->top_count == 2);
    CHECK(logprobs->top[0].logprob >= logprobs->top[1].logprob);
  }
  doppler_sequence_free(seen->freed);
  seen->freed = NULL;
  doppler_cancel_now(seen->cancelled);
  return true;
}

static void on_values(void* user, const doppler_values* values) {
  struct seen* seen = user;
  CHECK(strcmp(values->stage, "layer_out") == 0 && values->layer == 1);
  CHECK(values->columns == 2 && values->dims[0] == 5 && values->values != NULL);
  seen->values += values->token_count;
}

static void on_progress(void* user, double share, const char* what) {
  CHECK(share >= 0 && share <= 1 && what != NULL);
  ++*(int*)user;
}

static doppler_engine* load(const char* model) {
  int progress = 0;
  doppler_engine* engine = NULL;
  doppler_load_options options;
  doppler_load_options_init(&options, sizeof options);
  options.backend = "cpu";
  options.threads = 2;
  options.context = 128;
  options.sequences = 2;
  options.on_progress = on_progress;
  options.user = &progress;
  CHECK(doppler_load("/nowhere/at/all", &options, &engine) == DOPPLER_NOT_FOUND);
  CHECK(engine == NULL && strstr(doppler_last_error(), "/nowhere/at/all") != NULL);
  CHECK(doppler_load(model, &options, &engine) == DOPPLER_OK);
  CHECK(progress > 2);
  return engine;
}

static void check_texts(const doppler_engine* engine) {
  doppler_token ids[32];
  char text[400];
  size_t count = 0, again = 0, length = 0;
  CHECK(doppler_tokenize(engine, kPrompt, DOPPLER_TEXT, true, NULL, 0, &count) == DOPPLER_OK);
  CHECK(count > 3 && count <= 32);
  CHECK(doppler_tokenize(engine, kPrompt, DOPPLER_TEXT, true, ids, 1, &again) == DOPPLER_LIMIT &&
        again == count);
  CHECK(doppler_tokenize(engine, kPrompt, strlen(kPrompt), true, ids, 32, &again) == DOPPLER_OK &&
        again == count);
  CHECK(doppler_detokenize(engine, ids, count, text, sizeof text, &length) == DOPPLER_OK);
  CHECK(length == strlen(text) && strstr(text, "color of the sky") != NULL);
  CHECK(doppler_detokenize(engine, ids, count, text, length, &length) == DOPPLER_LIMIT);
  CHECK(doppler_render_chat(engine, "[{\"role\": \"user\", \"content\": \"Hello\"}]", DOPPLER_TEXT, text,
                            sizeof text, &length) == DOPPLER_OK);
  CHECK(strstr(text, "Hello") != NULL);
  CHECK(doppler_render_chat(engine, "nonsense", DOPPLER_TEXT, text, sizeof text, &length) == DOPPLER_USAGE);
}

static void check_generating(const doppler_engine* engine) {
  struct seen seen = {0};
  doppler_sequence* sequence = NULL;
  doppler_generation* generation = NULL;
  doppler_generate_options options;
  doppler_callbacks callbacks;
  doppler_look_request watch;
  const char* const stages[] = {"layer_out"};
  const char* const stops[] = {"clear day"};
  const int32_t layers[] = {1};
  const uint32_t dims[] = {5, 6};
  size_t ids = 0, prompt_ids = 0, length = 0;
  doppler_generate_options_init(&options, sizeof options, engine);
  options.max_tokens = 6;
  options.logprobs = 2;
  doppler_look_request_init(&watch, sizeof watch);
  watch.stages = stages;
  watch.stage_count = 1;
  watch.layers = layers;
  watch.layer_count = 1;
  watch.dims = dims;
  watch.dim_count = 2;
  doppler_callbacks_init(&callbacks, sizeof callbacks);
  callbacks.user = &seen;
  callbacks.on_text = on_text;
  callbacks.on_token = on_token;
  callbacks.watch = &watch;
  callbacks.on_values = on_values;

  CHECK(doppler_engine_sequence(engine, &sequence) == DOPPLER_OK);
  CHECK(doppler_generate_text(sequence, kPrompt, DOPPLER_TEXT, &options, &callbacks, &generation) ==
        DOPPLER_OK);
  CHECK(strcmp(doppler_generation_text(generation, &length), seen.text) == 0 && length == strlen(seen.text));
  CHECK(strncmp(seen.text, " blue", 5) == 0);
  CHECK(doppler_generation_ids(generation, &ids) != NULL && ids == 6 && seen.tokens == 6);
  CHECK(doppler_generation_prompt_ids(generation, &prompt_ids) != NULL);
  CHECK(seen.values == prompt_ids + 5);
  CHECK(doppler_generation_logprobs(generation, 5)->top_count == 2);
  CHECK(doppler_generation_logprobs(generation, 6) == NULL);
  CHECK(doppler_generation_stop_reason(generation) == DOPPLER_STOP_MAX_TOKENS);
  CHECK(doppler_generation_timings(generation).generated_tokens == 6);
  doppler_generation_free(generation);

  options.max_tokens = 100;
  options.logprobs = -1;
  options.stop = stops;
  options.stop_count = 1;
  CHECK(options.speculate == -1);
  options.speculate = 4;
  CHECK(doppler_generate_text(sequence, kPrompt, DOPPLER_TEXT, &options, NULL, &generation) == DOPPLER_OK);
  CHECK(strcmp(doppler_generation_text(generation, NULL), " blue. On a ") == 0);
  {
    uint64_t right = 99;
    const uint64_t guessed = doppler_generation_guessed(generation, &right);
    CHECK(right <= guessed && doppler_generation_guessed(generation, NULL) == guessed);
  }
  CHECK(doppler_generation_stop_reason(generation) == DOPPLER_STOP_STRING);
  doppler_generation_free(generation);
  options.temperature = -1;
  CHECK(doppler_generate_text(sequence, kPrompt, DOPPLER_TEXT, &options, NULL, &generation) == DOPPLER_USAGE);
  CHECK(strstr(doppler_last_error(), "temperature") != NULL);
  CHECK(doppler_generate_chat(sequence, "[{\"role\": \"user\", \"content\": \"What does a bear eat?\"}]",
                              DOPPLER_TEXT, NULL, NULL, &generation) == DOPPLER_OK);
  CHECK(strlen(doppler_generation_text(generation, NULL)) > 10);
  doppler_generation_free(generation);

  /* A sequence that is freed in its own callback, and a flag that its call outlives. */
  doppler_cancel* cancel = doppler_cancel_new();
  struct seen freeing = {.freed = sequence, .cancelled = cancel};
  callbacks.user = &freeing;
  callbacks.cancel = cancel;
  callbacks.watch = NULL;
  CHECK(doppler_generate_text(sequence, kPrompt, DOPPLER_TEXT, NULL, &callbacks, &generation) == DOPPLER_OK);
  CHECK(doppler_generation_stop_reason(generation) == DOPPLER_STOP_CANCELLED && freeing.tokens == 1);
  CHECK(doppler_cancelled(cancel));
  doppler_cancel_reset(cancel);
  CHECK(!doppler_cancelled(cancel));
  doppler_cancel_free(cancel);
  doppler_generation_free(generation);
}

static void check_sequences(const doppler_engine* engine, const char* folder) {
  const doppler_token prompt[] = {5, 9, 11, 40, 8};
  doppler_sequence *trunk = NULL, *branch = NULL, *third = NULL;
  doppler_generation *one = NULL, *two = NULL;
  doppler_token ids[64];
  char file[1000];
  size_t count = 0, again = 99;
  CHECK(doppler_sequence_new(engine, &trunk) == DOPPLER_OK);
  CHECK(doppler_sequence_append(trunk, prompt, 5, NULL) == DOPPLER_OK);
  CHECK(doppler_sequence_fork(trunk, &branch) == DOPPLER_OK);
  CHECK(doppler_sequence_new(engine, &third) == DOPPLER_LIMIT);
  CHECK(doppler_resume(trunk, NULL, NULL, &one) == DOPPLER_OK);
  CHECK(doppler_resume(branch, NULL, NULL, &two) == DOPPLER_OK);
  CHECK(strcmp(doppler_generation_text(one, NULL), doppler_generation_text(two, NULL)) == 0);
  CHECK(doppler_sequence_cut(trunk, 3, &again) == DOPPLER_OK && again == 0);
  CHECK(doppler_sequence_tokens(trunk, ids, 64, &count) == DOPPLER_OK && count == 3 && ids[2] == 11);
  snprintf(file, sizeof file, "%s/sequence", folder);
  CHECK(doppler_sequence_save(trunk, file) == DOPPLER_OK);
  CHECK(doppler_sequence_load(branch, file) == DOPPLER_OK);
  CHECK(doppler_sequence_tokens(branch, NULL, 0, &count) == DOPPLER_OK && count == 3);
  CHECK(doppler_sequence_load(branch, "/nowhere") == DOPPLER_NOT_FOUND);
  doppler_generation_free(one);
  doppler_generation_free(two);
  doppler_sequence_free(trunk);
  doppler_sequence_free(branch);
}

static void check_looking(doppler_engine* engine) {
  const doppler_token prompt[] = {5, 9, 11, 40, 8};
  const char* const stages[] = {"embed_out", "logits"};
  const int64_t tokens[] = {-1};
  doppler_look* look = NULL;
  doppler_scores* scores = NULL;
  doppler_info* info = NULL;
  doppler_look_request request;
  doppler_look_request_init(&request, sizeof request);
  request.stages = stages;
  request.stage_count = 2;
  request.tokens = tokens;
  request.token_count = 1;
  request.statistics = true;
  CHECK(doppler_look_at(engine, prompt, 5, &request, NULL, &look) == DOPPLER_OK);
  CHECK(doppler_look_count(look) == 2 && doppler_look_get(look, 2) == NULL);
  const doppler_values* logits = doppler_look_get(look, 1);
  CHECK(strcmp(logits->stage, "logits") == 0 && logits->layer == -1 && logits->dims == NULL);
  CHECK(logits->token_count == 1 && logits->tokens[0] == 4 && logits->statistics.count == logits->columns);
  const size_t vocab_size = logits->columns;
  doppler_look_free(look);
  request.stage_count = 0;
  CHECK(doppler_look_at(engine, prompt, 5, &request, NULL, &look) == DOPPLER_USAGE);

  CHECK(doppler_score(engine, prompt, 5, 1, NULL, &scores) == DOPPLER_OK);
  CHECK(doppler_scores_count(scores) == 4 && doppler_scores_get(scores, 0)->id == 9);
  CHECK(doppler_scores_get(scores, 3)->top_count == 1 && doppler_scores_get(scores, 4) == NULL);
  doppler_scores_free(scores);

  CHECK(doppler_engine_info(engine, &info) == DOPPLER_OK);
  CHECK(strcmp(doppler_info_family(info), "gemma3") == 0 && strcmp(doppler_info_backend(info), "cpu") == 0);
  CHECK(doppler_info_vocab_size(info) == vocab_size);
  CHECK(doppler_info_memory(info).sequences == 3 && doppler_info_memory(info).cache > 0);
  CHECK(doppler_info_fact(info, 0)->because != NULL && doppler_info_fact(info, 100000) == NULL);
  CHECK(strcmp(doppler_info_stage(info, 0)->name, "embed_out") == 0);
  CHECK(doppler_info_note(info, 0) == NULL && doppler_info_backend_choice(info) != NULL);
  doppler_info_free(info);
}

static void check_nothing_is_an_error(void) {
  doppler_generation* generation = NULL;
  doppler_info* info = NULL;
  CHECK(doppler_load(NULL, NULL, NULL) == DOPPLER_USAGE);
  CHECK(doppler_generate_text(NULL, kPrompt, DOPPLER_TEXT, NULL, NULL, &generation) == DOPPLER_USAGE);
  CHECK(strstr(doppler_last_error(), "NULL") != NULL);
  CHECK(doppler_engine_info(NULL, &info) == DOPPLER_USAGE && info == NULL);
  doppler_engine_free(NULL);
  doppler_sequence_free(NULL);
  doppler_generation_free(NULL);
  doppler_cancel_free(NULL);
  doppler_look_free(NULL);
  doppler_scores_free(NULL);
  doppler_info_free(NULL);
  /* A program compiled against a header whose struct ended earlier. */
  doppler_load_options old;
  memset(&old, 0x55, sizeof old);
  doppler_load_options_init(&old, offsetof(doppler_load_options, threads));
  CHECK(old.backend == NULL && old.threads != 0);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  check_nothing_is_an_error();
  doppler_engine* engine = load(argv[1]);
  check_texts(engine);
  check_generating(engine);
  check_sequences(engine, argv[2]);
  check_looking(engine);
  doppler_engine* another = NULL;
  doppler_sequence* sequence = NULL;
  doppler_generation* generation = NULL;
  doppler_load_options options;
  doppler_load_options_init(&options, sizeof options);
  options.backend = "cpu";
  options.threads = 1;
  CHECK(doppler_engine_another(engine, &options, &another) == DOPPLER_OK);
  CHECK(doppler_engine_sequence(another, &sequence) == DOPPLER_OK);
  doppler_engine_free(engine);
  doppler_engine_free(another);
  CHECK(doppler_generate_text(sequence, kPrompt, DOPPLER_TEXT, NULL, NULL, &generation) == DOPPLER_OK);
  doppler_generation_free(generation);
  doppler_sequence_free(sequence);
  puts("the C interface does what its header says");
  return 0;
}
