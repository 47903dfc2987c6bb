#include "cli/cli.h"

int main(int argc, char** argv) {
  return doppler::cli::main(argc, argv);
}
