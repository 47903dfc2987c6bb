/* Doppler for C and for every language that calls C. The C++ interface, doppler/doppler.h, with opaque
 * handles in place of classes, and the same names.
 *
 *   doppler_engine* engine = NULL;
 *   if (doppler_load("models/gemma-3-1b-it", NULL, &engine) != DOPPLER_OK) {
 *     fprintf(stderr, "%s\n", doppler_last_error());
 *     return 1;
 *   }
 *   doppler_sequence* sequence = NULL;
 *   doppler_generation* answer = NULL;
 *   doppler_engine_sequence(engine, &sequence);
 *   if (doppler_generate_text(sequence, "The sky is", DOPPLER_TEXT, NULL, NULL, &answer) == DOPPLER_OK)
 *     printf("%s\n", doppler_generation_text(answer, NULL));
 *   doppler_generation_free(answer);
 *   doppler_sequence_free(sequence);
 *   doppler_engine_free(engine);
 *
 * Errors. Every function that can fail returns a doppler_status; doppler_last_error() is then a sentence for
 * a person. A function that fails writes nothing to its results, unless it says so. A null handle is
 * DOPPLER_USAGE; freeing NULL does nothing.
 *
 * Ownership. A handle that a function returns through a `**` belongs to the caller, who frees it with the
 * _free function of its type. Handles are independent: a sequence keeps alive the parts of its engine that it
 * needs, in whatever order the two are freed. Pointers that an accessor returns belong to the handle and live
 * as long as it. Texts and arrays that are passed in are only read during the call. Texts are UTF-8; a length
 * of DOPPLER_TEXT means "up to the terminating zero".
 *
 * Buffers. A function with (buffer, capacity, size) sets *size to the size of the whole result, without the
 * zero that it adds to texts, and copies the result if it fits. If it does not fit, a capacity of 0 asks for
 * the size and is DOPPLER_OK, and any other capacity is DOPPLER_LIMIT.
 *
 * Threads. Everything may be called from any thread, on one handle from several at a time, except freeing a
 * handle while another thread uses it. Calls that compute run one after another on their engine; a handle may
 * be freed inside its own callback. Callbacks run on the thread of the call and must not call functions that
 * compute on the same engine (DOPPLER_USAGE), must not throw and must not longjmp out. doppler_cancel_now()
 * may also be called from a signal handler.
 *
 * Versions. Structs that are passed in begin with their own size, and their _init functions, which set every
 * default, take the caller's sizeof, so that a program compiled against an older header goes on working; new
 * members are appended. The values of enumerators do not change.
 */
#ifndef DOPPLER_C_H
#define DOPPLER_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doppler/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As a length: up to the terminating zero. */
#define DOPPLER_TEXT ((size_t)-1)

typedef enum doppler_status {
  DOPPLER_OK = 0,
  DOPPLER_USAGE = 1,       /* the caller asked for something impossible */
  DOPPLER_NOT_FOUND = 2,   /* a file, tensor, stage or name does not exist */
  DOPPLER_CORRUPT = 3,     /* a file contradicts its format or itself */
  DOPPLER_UNSUPPORTED = 4, /* well-formed, but Doppler does not do it */
  DOPPLER_MISMATCH = 5,    /* two inputs contradict each other */
  DOPPLER_LIMIT = 6,       /* too large for the context, the memory, a buffer or a safety bound */
  DOPPLER_IO = 7,          /* the operating system refuses */
  DOPPLER_INTERNAL = 8     /* a bug in Doppler; please report it */
} doppler_status;

/* The message of this thread's last failed call; "" before any. Valid until this thread's next failed call.
 */
DOPPLER_API const char* doppler_last_error(void);

typedef int32_t doppler_token;
typedef struct doppler_engine doppler_engine;         /* a loaded model with its backend */
typedef struct doppler_sequence doppler_sequence;     /* tokens with their keys and values in its cache */
typedef struct doppler_generation doppler_generation; /* the result of a generating call */
typedef struct doppler_cancel doppler_cancel;         /* ends calls from any thread */
typedef struct doppler_look doppler_look;             /* values of stages */
typedef struct doppler_scores doppler_scores;         /* log probabilities of a text's tokens */
typedef struct doppler_info doppler_info;             /* a model's description */

/* --- loading */

typedef struct doppler_load_options {
  size_t struct_size;
  const char* backend;     /* "auto", "gpu", "cpu", "reference"; NULL: "auto" */
  size_t threads;          /* 0: one per core */
  uint64_t context;        /* longest sequence; 0: the model's own, at most 4096 */
  uint32_t sequences;      /* how many doppler_sequence_new may open at a time, besides the engine's own */
  const char* kv_type;     /* "f32", "f16", "q8_0"; NULL: f16 for quantised models, else f32 */
  bool exact;              /* float activations also where weights are quantised (slower) */
  const char* cpu_target;  /* the instruction set of the kernels, such as "AVX2"; NULL: the best */
  const char* gpu_adapter; /* part of its name, or its number; NULL: the best */
  uint32_t submit_tokens;  /* tokens that a GPU generates between two checks by the host, 1 to 64 */
  /* Called as loading proceeds; may be NULL. `share`: how much is done, 0 to 1; `what`: the present step. */
  void (*on_progress)(void* user, double share, const char* what);
  void* user;         /* handed to on_progress */
  const char* family; /* by whose rule config.json is read, or "guess"; NULL: what model_type says */
  uint64_t
      cache_positions; /* tokens of all sequences together: see LoadOptions::cache_positions; 0: by itself */
} doppler_load_options;
DOPPLER_API void doppler_load_options_init(doppler_load_options* options, size_t struct_size);

/* A .gguf file, a Hugging Face folder, or a .safetensors file beside its config.json. NULL options are the
 * defaults. */
DOPPLER_API doppler_status doppler_load(const char* model, const doppler_load_options* options,
                                        doppler_engine** engine);
/* A second engine on the same model, running beside the first: see Engine::another in doppler/doppler.h. */
DOPPLER_API doppler_status doppler_engine_another(const doppler_engine* engine,
                                                  const doppler_load_options* options,
                                                  doppler_engine** another);
DOPPLER_API void doppler_engine_free(doppler_engine* engine);

/* --- texts and tokens */

/* `special`: with the BOS and EOS that the tokenizer adds by itself. */
DOPPLER_API doppler_status doppler_tokenize(const doppler_engine* engine, const char* text, size_t length,
                                            bool special, doppler_token* ids, size_t capacity, size_t* count);
/* Special tokens give no text. */
DOPPLER_API doppler_status doppler_detokenize(const doppler_engine* engine, const doppler_token* ids,
                                              size_t count, char* text, size_t capacity, size_t* length);
/* Puts a conversation into the model's own chat format, ready for its answer. `conversation` is JSON as chat
 * services use it: a list of messages, or {"messages": [...], "tools": [...]} whose other keys become
 * variables of the template. */
DOPPLER_API doppler_status doppler_render_chat(const doppler_engine* engine, const char* conversation,
                                               size_t length, char* text, size_t capacity,
                                               size_t* text_length);

/* --- cancelling */

/* A flag that ends the calls it is passed to. It stays set until reset; freeing it while a call uses it is
 * safe. */
DOPPLER_API doppler_cancel* doppler_cancel_new(void);
DOPPLER_API void doppler_cancel_now(const doppler_cancel* cancel);
DOPPLER_API void doppler_cancel_reset(const doppler_cancel* cancel);
DOPPLER_API bool doppler_cancelled(const doppler_cancel* cancel);
DOPPLER_API void doppler_cancel_free(doppler_cancel* cancel);

/* --- looking inside */

typedef struct doppler_look_request {
  size_t struct_size;
  const char* const* stages; /* "q_rope", "logits"; "all": every stage but attn_scores */
  size_t stage_count;        /* at least one */
  const int32_t* layers;     /* of stages inside layers; NULL: all */
  size_t layer_count;
  const int64_t* tokens; /* positions in the sequence, negative ones from the prompt's end; NULL: all */
  size_t token_count;
  const uint32_t* dims; /* columns of a row; NULL: all */
  size_t dim_count;
  bool values;         /* keep the values themselves; true after _init */
  bool statistics;     /* and measure them: doppler_values.statistics */
  uint64_t most_bytes; /* bound on what doppler_look_at keeps; a request beyond it is DOPPLER_LIMIT */
} doppler_look_request;
DOPPLER_API void doppler_look_request_init(doppler_look_request* request, size_t struct_size);

/* Smallest, largest, mean and rms are those of the finite values. */
typedef struct doppler_statistics {
  uint64_t count, nan, inf, zeros, negatives;
  uint64_t max_abs_index, first_bad; /* indices; first_bad: first NaN or infinity, else `count` */
  float min, max, max_abs;
  double mean, rms;
} doppler_statistics;

/* One stage of one layer: [tokens, columns], row-major; a whole row has heads x (width / heads) values. */
typedef struct doppler_values {
  const char* stage;
  int32_t layer;         /* -1: outside the layers */
  const int64_t* tokens; /* the position of each row */
  size_t token_count;
  size_t width, heads, columns;
  const uint32_t* dims; /* the columns that are here; NULL: all */
  const float* values;  /* NULL if they were not asked for */
  doppler_statistics statistics;
} doppler_values;

/* The values of stages for a prompt, which is computed anew as a whole in the engine's own sequence. `cancel`
 * may be NULL. */
DOPPLER_API doppler_status doppler_look_at(doppler_engine* engine, const doppler_token* prompt, size_t count,
                                           const doppler_look_request* request, const doppler_cancel* cancel,
                                           doppler_look** look);
DOPPLER_API size_t doppler_look_count(const doppler_look* look);
/* One stage of one layer, in the order in which a step computes them; NULL beyond the end. */
DOPPLER_API const doppler_values* doppler_look_get(const doppler_look* look, size_t index);
DOPPLER_API void doppler_look_free(doppler_look* look);

/* --- log probabilities: natural logarithms, at temperature 1, before penalties and biases */

typedef struct doppler_likely {
  doppler_token id;
  float logprob;
} doppler_likely;
typedef struct doppler_logprobs {
  doppler_token id;
  float logprob;
  const doppler_likely* top; /* the likeliest tokens at its position, best first */
  size_t top_count;
} doppler_logprobs;

/* The log probability of each token given those before it, and the `top` likeliest tokens at its position;
 * the first token is left out. Computed anew in the engine's own sequence. */
DOPPLER_API doppler_status doppler_score(doppler_engine* engine, const doppler_token* ids, size_t count,
                                         uint32_t top, const doppler_cancel* cancel, doppler_scores** scores);
DOPPLER_API size_t doppler_scores_count(const doppler_scores* scores);
/* NULL beyond the end. */
DOPPLER_API const doppler_logprobs* doppler_scores_get(const doppler_scores* scores, size_t index);
DOPPLER_API void doppler_scores_free(doppler_scores* scores);

/* --- generating */

typedef struct doppler_bias {
  doppler_token id;
  double bias; /* added to the token's logit */
} doppler_bias;

/* See GenerateOptions in doppler/types.h. */
typedef struct doppler_generate_options {
  size_t struct_size;
  uint32_t max_tokens;
  double temperature; /* 0: always the likeliest token */
  uint32_t top_k;     /* 0: all */
  double top_p, min_p;
  double repeat_penalty, presence_penalty, frequency_penalty;
  uint32_t penalty_window; /* 0: the whole sequence */
  const doppler_bias* logit_bias;
  size_t logit_bias_count;
  uint64_t seed;
  const char* const* stop; /* generation ends before the first of these appears */
  size_t stop_count;
  bool ignore_eos;
  int32_t logprobs;  /* this many likeliest tokens beside each generated one; -1: none */
  int32_t speculate; /* tokens guessed ahead, 1 to 16; 0: none; -1: as many as pay */
} doppler_generate_options;
/* Sets the values that the engine's model recommends; NULL: Doppler's own defaults. */
DOPPLER_API void doppler_generate_options_init(doppler_generate_options* options, size_t struct_size,
                                               const doppler_engine* engine);

/* Any member may be NULL. Callbacks that return false end the generation. */
typedef struct doppler_callbacks {
  size_t struct_size;
  void* user; /* handed to all of them */
  /* Whole characters, as they become certain; `text` ends with a zero that `length` does not count. */
  bool (*on_text)(void* user, const char* text, size_t length);
  /* `logprobs` is NULL unless the options ask for it. */
  bool (*on_token)(void* user, doppler_token id, const doppler_logprobs* logprobs);
  /* After each step the stages of `watch` that it computed. `values` lives until the callback returns. */
  const doppler_look_request* watch;
  void (*on_values)(void* user, const doppler_values* values);
  const doppler_cancel* cancel;
} doppler_callbacks;
DOPPLER_API void doppler_callbacks_init(doppler_callbacks* callbacks, size_t struct_size);

/* The prompt is the whole sequence; the beginning of it that the cache already holds is not computed again.
 * NULL options: the model's own. NULL callbacks: none. */
DOPPLER_API doppler_status doppler_generate_text(doppler_sequence* sequence, const char* prompt,
                                                 size_t length, const doppler_generate_options* options,
                                                 const doppler_callbacks* callbacks,
                                                 doppler_generation** generation);
DOPPLER_API doppler_status doppler_generate_tokens(doppler_sequence* sequence, const doppler_token* prompt,
                                                   size_t count, const doppler_generate_options* options,
                                                   const doppler_callbacks* callbacks,
                                                   doppler_generation** generation);
/* The answer to a conversation: see doppler_render_chat. */
DOPPLER_API doppler_status doppler_generate_chat(doppler_sequence* sequence, const char* conversation,
                                                 size_t length, const doppler_generate_options* options,
                                                 const doppler_callbacks* callbacks,
                                                 doppler_generation** generation);
/* Generates the tokens that follow those the sequence holds. */
DOPPLER_API doppler_status doppler_resume(doppler_sequence* sequence, const doppler_generate_options* options,
                                          const doppler_callbacks* callbacks,
                                          doppler_generation** generation);

typedef enum doppler_stop_reason {
  DOPPLER_STOP_EOS = 0,         /* an end-of-sequence token */
  DOPPLER_STOP_STRING = 1,      /* one of doppler_generate_options.stop */
  DOPPLER_STOP_MAX_TOKENS = 2,  /* doppler_generate_options.max_tokens are generated */
  DOPPLER_STOP_CONTEXT_END = 3, /* the sequence fills the context */
  DOPPLER_STOP_CANCELLED = 4    /* a callback returned false, or the cancel flag was set */
} doppler_stop_reason;
typedef struct doppler_timings {
  /* Of loading the engine; until the first token is known; from there to the last. */
  double load_ms, prompt_ms, decode_ms;
  /* cached_tokens: of the prompt, those that the cache already held. */
  uint64_t prompt_tokens, cached_tokens, generated_tokens;
} doppler_timings;

/* `length` may be NULL; the text ends with a zero that it does not count. */
DOPPLER_API const char* doppler_generation_text(const doppler_generation* generation, size_t* length);
DOPPLER_API const doppler_token* doppler_generation_ids(const doppler_generation* generation, size_t* count);
DOPPLER_API const doppler_token* doppler_generation_prompt_ids(const doppler_generation* generation,
                                                               size_t* count);
/* Those of the generated token `index`; NULL beyond the end, and if the options did not ask for them. */
DOPPLER_API const doppler_logprobs* doppler_generation_logprobs(const doppler_generation* generation,
                                                                size_t index);
DOPPLER_API doppler_stop_reason doppler_generation_stop_reason(const doppler_generation* generation);
DOPPLER_API doppler_timings doppler_generation_timings(const doppler_generation* generation);
/* Tokens that were guessed ahead, see doppler_generate_options.speculate. `right`, which may be NULL: those
 * of them that came. */
DOPPLER_API uint64_t doppler_generation_guessed(const doppler_generation* generation, uint64_t* right);
DOPPLER_API void doppler_generation_free(doppler_generation* generation);

/* --- sequences */

/* The engine's own sequence, which doppler_look_at and doppler_score use, too. */
DOPPLER_API doppler_status doppler_engine_sequence(const doppler_engine* engine, doppler_sequence** sequence);
/* A new, empty sequence. DOPPLER_LIMIT if all of doppler_load_options.sequences are open. */
DOPPLER_API doppler_status doppler_sequence_new(const doppler_engine* engine, doppler_sequence** sequence);
/* Its place in the cache is free again when its last handle is freed. */
DOPPLER_API void doppler_sequence_free(doppler_sequence* sequence);
DOPPLER_API doppler_status doppler_sequence_tokens(const doppler_sequence* sequence, doppler_token* ids,
                                                   size_t capacity, size_t* count);
/* Adds tokens to the end and computes all but the last one. `cancel` may be NULL. */
DOPPLER_API doppler_status doppler_sequence_append(doppler_sequence* sequence, const doppler_token* ids,
                                                   size_t count, const doppler_cancel* cancel);
/* Keeps the first `length` tokens. `recomputed` (may be NULL): how many of them the next call computes again,
 * because sliding windows have overwritten keys and values that they attend to. */
DOPPLER_API doppler_status doppler_sequence_cut(doppler_sequence* sequence, size_t length,
                                                size_t* recomputed);
DOPPLER_API doppler_status doppler_sequence_fork(const doppler_sequence* sequence, doppler_sequence** fork);
/* Tokens, keys and values to a file and back: see Sequence::load in doppler/doppler.h for what is refused. */
DOPPLER_API doppler_status doppler_sequence_save(const doppler_sequence* sequence, const char* file);
DOPPLER_API doppler_status doppler_sequence_load(doppler_sequence* sequence, const char* file);

/* --- the model's description */

typedef struct doppler_memory {
  uint64_t context;                     /* tokens */
  uint32_t sequences;                   /* how many the cache has room for */
  uint64_t weights, cache, activations; /* bytes; cache: of all sequences; activations: of one step */
  const char* kv_type;
} doppler_memory;
typedef struct doppler_fact {
  const char* name;    /* "layers[0..4].attention.window" */
  const char* value;   /* "512" */
  const char* because; /* "config.json: sliding_window" */
} doppler_fact;
typedef struct doppler_stage {
  const char* name;
  const char* meaning;
  size_t width, heads;   /* of a row; width 0: it grows with the sequence */
  const int32_t* layers; /* those that compute it */
  size_t layer_count;    /* 0: it is outside the layers */
} doppler_stage;

DOPPLER_API doppler_status doppler_engine_info(const doppler_engine* engine, doppler_info** info);
DOPPLER_API const char* doppler_info_family(const doppler_info* info);
DOPPLER_API const char* doppler_info_backend(const doppler_info* info);
/* The backend's device and why it was chosen; "" where there is nothing to say. */
DOPPLER_API const char* doppler_info_backend_choice(const doppler_info* info);
DOPPLER_API uint32_t doppler_info_vocab_size(const doppler_info* info);
DOPPLER_API doppler_memory doppler_info_memory(const doppler_info* info);
/* These return NULL beyond the end. */
DOPPLER_API const doppler_fact* doppler_info_fact(const doppler_info* info, size_t index);
DOPPLER_API const doppler_stage* doppler_info_stage(const doppler_info* info, size_t index);
/* Why the engine is slower than it could be or differs from what was asked, a sentence each. */
DOPPLER_API const char* doppler_info_note(const doppler_info* info, size_t index);
DOPPLER_API void doppler_info_free(doppler_info* info);

#ifdef __cplusplus
}
#endif

#endif
