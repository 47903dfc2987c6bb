/* The C interface in thirty lines: load a model, stream an answer, stop when told to.
 *   doppler_example_c MODEL "PROMPT" */
#include <stdio.h>

#include "doppler/c.h"

static bool print(void* user, const char* text, size_t length) {
  (void)user;
  fwrite(text, 1, length, stdout);
  return true; /* false would end the generation here */
}

int main(int argc, char** argv) {
  doppler_engine* engine = NULL;
  doppler_sequence* sequence = NULL;
  doppler_generation* answer = NULL;
  doppler_generate_options options;
  doppler_callbacks callbacks;
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  doppler_callbacks_init(&callbacks, sizeof callbacks);
  callbacks.on_text = print;
  doppler_status status = doppler_load(argv[1], NULL, &engine);
  if (status == DOPPLER_OK) status = doppler_engine_sequence(engine, &sequence);
  doppler_generate_options_init(&options, sizeof options, engine);
  options.max_tokens = 32;
  if (status == DOPPLER_OK)
    status = doppler_generate_text(sequence, argv[2], DOPPLER_TEXT, &options, &callbacks, &answer);
  if (status == DOPPLER_OK)
    printf("\n[%llu tokens]\n", (unsigned long long)doppler_generation_timings(answer).generated_tokens);
  else
    fprintf(stderr, "%s\n", doppler_last_error());
  doppler_generation_free(answer);
  doppler_sequence_free(sequence);
  doppler_engine_free(engine);
  return status == DOPPLER_OK ? 0 : 3;
}
